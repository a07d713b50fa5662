import asyncio
import dataclasses
import inspect

import pytest

import runstate
from runstate import (
    ConfigError,
    Job,
    Queue,
    Run,
)
from runstate.decorators import queue as queue_module
from runstate.run import RunRef
from tests.sdk.workers import Call, Ran, working


@pytest.fixture(autouse=True)
def no_queues():
    """No queue is defined in this process yet."""
    queue_module.defined.clear()


# ------------------------------------------------------------------------------ one input, one job


def test_the_same_input_from_many_producers_is_one_job_with_one_result(here):
    ran = Ran()
    run = here.run()
    run.queue("research", concurrency=4)(ran)
    producers = [here.run().queue("research") for _ in range(4)]
    calls = [Call(lambda p=p: p({"company": "acme"})) for p in producers * 5]
    with working(run):
        assert [call.result for call in calls] == [{"got": {"company": "acme"}}] * 20
        assert producers[0].send({"company": "acme"}).id == producers[1].send({"company": "acme"}).id
        assert producers[0]({"company": "globex"}) == {"got": {"company": "globex"}}
    assert ran == [{"company": "acme"}, {"company": "globex"}]


def test_the_key_of_a_job_is_the_hash_of_its_input_as_for_once(here):
    from runstate._keys import hash_key

    job = here.run().queue("research").send({"b": 1, "a": [2.0]})
    assert job.status()["taskKey"] == hash_key("research", [{"a": [2], "b": 1.0}])


def test_key_decides_what_the_same_work_is(here):
    ran = Ran()
    run = here.run()
    research = run.queue("research", key=lambda given: given["company"])(ran)
    first = research.send({"company": "acme", "at": 1})
    assert first.status()["taskKey"] == "research:acme"
    assert research.send({"company": "acme", "at": 2}).id == first.id
    with working(run):
        assert research({"company": "acme", "at": 3}) == {"got": {"company": "acme", "at": 1}}
    assert len(ran) == 1


def test_a_finished_job_stays_the_answer_until_the_run_ends(here):
    ran = Ran()
    run = here.run()
    research = run.queue("research")(ran)
    with working(run):
        assert research("acme") == research("acme") == {"got": "acme"}
    run.finish()
    again = here.run()
    research = again.queue("research")(ran)
    with working(again):
        assert research("acme") == {"got": "acme"}
    assert ran == ["acme", "acme"]


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, "é\u2028\x00", {"a": [1.5, None]}])
def test_every_json_value_is_an_input_and_a_result(here, value):
    run = here.run()
    echo = run.queue("echo")(lambda given: given)
    with working(run):
        assert echo(value) == value
        assert echo.send(value).result(timeout=30) == value


# ------------------------------------------------------------------------------ callers of all kinds


def test_sync_and_async_producers_reach_sync_and_async_handlers(here):
    run = here.run()

    @run.queue("plain")
    def plain(given):
        return ["plain", given]

    @run.queue("coroutine")
    async def coroutine(given):
        await asyncio.sleep(0)
        return ["coroutine", given]

    async def produce():
        job = await plain.asend(2)
        return (
            await coroutine(1),
            await job.aresult(timeout=30),
            (await job.astatus())["state"],
            await (await coroutine.asend(1)).aresult("30s"),
        )

    with working(run):
        assert plain(1) == ["plain", 1]
        assert coroutine.send(3).result(timeout=30) == ["coroutine", 3]
        assert asyncio.run(coroutine(4)) == ["coroutine", 4]
        assert asyncio.run(produce()) == (
            ["coroutine", 1],
            ["plain", 2],
            "SUCCEEDED",
            ["coroutine", 1],
        )


def test_handlers_produce_too(here):
    run = here.run()
    leaf = run.queue("leaf", concurrency=4)(lambda given: given * 2)

    @run.queue("plain")
    def plain(given):
        return [leaf(given), leaf.send(given + 1).result()]

    @run.queue("coroutine")
    async def coroutine(given):
        sent = await leaf.asend(given)
        return [await sent.aresult(), leaf.send(given + 1).status()["taskKey"][:5], await other(given)]

    @run.queue("other", concurrency=2)
    async def other(given):
        return await asyncio.to_thread(leaf, given)

    with working(run):
        assert plain(1) == [2, 4]
        assert asyncio.run(coroutine(5)) == [10, "leaf:", 10]


def test_a_plain_function_may_return_something_to_await(here):
    run = here.run()

    async def work(given):
        return [given, runstate.context().attempt]

    def plain(given):
        return work(given)

    queue = run.queue("work")(plain)
    with working(run):
        assert queue("a") == ["a", 1]


def test_the_module_s_queue_and_serve_are_those_of_the_default_run(here):
    @runstate.queue("research", attempts=2, lease="45s", concurrency=3)
    def research(given):
        """Says what it got."""
        context = runstate.context()
        return [given, context.run.name, context.run.id == runstate.run_id(), context.attempt, context.key]

    assert isinstance(research, Queue)
    assert (research.name, research.__name__, research.__doc__) == (
        "research",
        "research",
        "Says what it got.",
    )
    stop = runstate.ThreadSafeEvent()
    worker = Call(lambda: runstate.serve(signal=stop))
    found = research({"company": "acme"})
    assert found[:4] == [{"company": "acme"}, "default", True, 1]
    assert found[4] == runstate.queue("research").send({"company": "acme"}).status()["taskKey"]
    assert runstate.context() is None
    stop.set()
    assert worker.outcome is None


def test_another_run_serves_the_module_s_queues_in_its_own_scope(here):
    runstate.queue("where")(lambda given: runstate.context().run.name)
    other = runstate.run("other")
    with working(other):
        assert other.queue("where")(1) == "other"
    assert other.queue("where").send(1).status()["scopeId"] == other.run_id()


def test_the_attempts_of_the_worker_are_those_of_the_mailbox(here):
    run = here.run()
    early = here.run().queue("work", attempts=50).send(1)  # a producer declares nothing
    assert early.status()["maxAttempts"] == 5
    run.queue("work", attempts=2)(Ran())
    with working(run):
        early.result(timeout=30)
    assert early.status()["maxAttempts"] == 2


# ------------------------------------------------------------------------------ definitions


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 101},
        {"attempts": True},
        {"lease": 0.5},
        {"lease": "2h"},
        {"lease": "soon"},
        {"concurrency": 0},
        {"key": "company"},
        {"name": ""},
        {"name": "a" * 257},
        {"name": "a\0"},
        {"name": print},
    ],
)
def test_options_that_cannot_be_used_are_refused_where_they_stand(options):
    with pytest.raises(ConfigError):
        runstate.queue(**{"name": "work", **options})


@pytest.mark.parametrize("handler", [lambda: 1, lambda a, b: 1, lambda *, a: 1])
def test_a_handler_takes_one_argument(handler):
    with pytest.raises(ConfigError, match="one argument"):
        runstate.queue("work")(handler)


def test_generators_are_no_handlers():
    def plain(given):
        yield given

    async def coroutine(given):
        yield given

    for handler in (plain, coroutine, runstate.queue("work")(Ran())):
        with pytest.raises(ConfigError):
            runstate.queue("work")(handler)


@pytest.mark.parametrize("name", ["serve"])
def test_serve_has_an_async_twin_with_the_same_arguments(name):
    for owner in (runstate, Run):
        plain, twin = getattr(owner, name), getattr(owner, f"a{name}")
        assert inspect.iscoroutinefunction(twin)
        assert inspect.signature(plain) == inspect.signature(twin)
    assert [*inspect.signature(runstate.serve).parameters] == ["concurrency", "queues", "signal"]


@pytest.mark.parametrize(
    ("owner", "name"), [(Job, "result"), (Job, "status"), (Job, "cancel"), (Queue, "send")]
)
def test_every_blocking_method_has_an_async_twin_with_the_same_arguments(owner, name):
    plain, twin = getattr(owner, name), getattr(owner, f"a{name}")
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(plain) == inspect.signature(twin)


def test_defining_a_queue_asks_the_server_nothing(monkeypatch):
    monkeypatch.delenv("RUNSTATE_API_KEY", raising=False)
    monkeypatch.setattr(
        runstate.decorators.defaults._defaults, "run", Run(runstate.run.__globals__["Account"]())
    )
    work = runstate.queue("work")(Ran())
    with pytest.raises(ConfigError, match="api_key"):
        work.send(1)
    with pytest.raises(ConfigError, match="api_key"):
        runstate.serve()


def test_the_context_names_the_run(here):
    run = here.run()
    queue = run.queue("work")(lambda given: dataclasses.asdict(runstate.context().run))
    with working(run):
        assert RunRef(**queue(1)) == RunRef(run.run_id(), "default")
