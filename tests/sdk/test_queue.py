import asyncio
import dataclasses
import inspect
import threading

import pytest

import runstate
from runstate import (
    AsyncRunstate,
    ConfigError,
    Job,
    Queue,
    ResultTooLargeError,
    Run,
    StoppedError,
    TaskFailedError,
    WaitTimeoutError,
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


# ------------------------------------------------------------------------------ what goes wrong


@dataclasses.dataclass
class Company:
    name: str


@pytest.mark.parametrize("given", [object(), {1: 2}, float("nan"), {"a": {1, 2}}, Company("acme"), "\ud800"])
def test_an_input_that_is_not_json_is_refused_at_the_producer(here, given):
    queue = here.run().queue("work")
    for call in (queue, queue.send):
        with pytest.raises(ConfigError, match="the input"):
            call(given)
    with pytest.raises(ConfigError, match="the input"):
        asyncio.run(queue.asend(given))


def test_an_input_over_64_kib_is_refused_at_the_producer(here):
    queue = here.run().queue("work")
    assert queue.send("é" * ((65_536 - 2) // 2)).id
    with pytest.raises(ResultTooLargeError, match="the input exceeds 65536 bytes"):
        queue.send("é" * (65_536 // 2))


@pytest.mark.parametrize("key", ["", "a" * 256, 5, None])
def test_a_key_that_is_none_is_refused(here, key):
    queue = here.run().queue("work", key=lambda given: key)
    with pytest.raises(ConfigError, match="key="):
        queue.send(1)


def test_a_handler_that_raises_at_every_attempt_fails_the_job_with_its_last_error(here):
    run = here.run()
    seen = []

    @run.queue("work", attempts=2)
    def work(given):
        seen.append(runstate.context().attempt)
        raise ValueError(f"no {given}, {len(seen)}")

    with working(run):
        job = work.send("luck")
        for call in (lambda: work("luck"), job.result, lambda: asyncio.run(job.aresult())):
            with pytest.raises(TaskFailedError) as caught:
                call()
            assert str(caught.value) == caught.value.reason == "ValueError: no luck, 2"
            assert caught.value.job_id == job.id
    assert seen == [1, 2]
    assert job.status()["outcomeReason"] == "handler_error: ValueError: no luck, 2"


def test_a_handler_that_raises_is_tried_again_and_may_succeed(here):
    run = here.run()

    @run.queue("work")
    def work(given):
        if runstate.context().attempt == 1:
            raise OSError("not yet")
        return runstate.context().attempt

    with working(run):
        assert work("a") == 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "ConfigError: the result is a object, which is not a JSON value"),
        ("x" * 65_535, "ResultTooLargeError: the result exceeds 65536 bytes (65537)"),
    ],
)
def test_a_result_that_cannot_be_recorded_fails_the_job_at_once(here, value, reason):
    run = here.run()
    ran = []

    @run.queue("plain")
    def plain(given):
        ran.append(given)
        return value

    @run.queue("coroutine")
    async def coroutine(given):
        ran.append(given)
        return value

    with working(run):
        for queue in (plain, coroutine):
            with pytest.raises(TaskFailedError) as caught:
                queue.send(queue.name).result(timeout=30)
            assert caught.value.reason == reason
    assert ran == ["plain", "coroutine"]


def test_a_cancelled_job_says_so_to_who_waits_and_to_its_handler(here):
    run = here.run()
    inside = threading.Event()
    told = []

    @run.queue("work")
    def work(given):
        inside.set()
        told.append(runstate.context().signal.wait(30))
        return "too late"

    with working(run):
        job = work.send(1)
        waiting = Call(job.result)
        assert inside.wait(30)
        assert job.cancel("no longer wanted")["state"] == "CANCELLED"
        assert isinstance(waiting.outcome, TaskFailedError)
        assert waiting.outcome.reason == "no longer wanted"
        assert asyncio.run(job.acancel())["state"] == "CANCELLED"
    assert told == [True]
    assert job.status()["outcome"] is None


def test_a_result_that_does_not_come_in_time_is_a_wait_timeout(here):
    job = here.run().queue("work").send(1)
    for timeout in (0, 0.2, "200ms"):
        with pytest.raises(WaitTimeoutError, match=job.id):
            job.result(timeout=timeout)
    assert job.status()["state"] == "QUEUED"


@pytest.mark.parametrize("end", ["stop", "finish"])
def test_the_end_of_the_run_ends_the_waits_for_its_jobs(here, end):
    run = here.run()
    job = run.queue("work").send(1)
    waits = [Call(job.result), Call(lambda: run.queue("work")(1)), Call(lambda: asyncio.run(job.aresult()))]
    getattr(here.run(), end)()
    for wait in waits:
        assert isinstance(wait.outcome, StoppedError), wait.outcome
    with pytest.raises(StoppedError):
        run.queue("work").send(2)
    with pytest.raises(StoppedError):
        run.serve(queues=run.queue("work")(Ran()))


def test_a_job_of_a_child_that_ended_stops_the_child_alone(here):
    run = here.run()
    child = run.child(name="part")
    job = child.queue("work").send(1)
    child.stop()
    with pytest.raises(StoppedError):
        job.result()
    assert run.queue("work").send(1).id != job.id


def test_a_handler_that_waits_for_its_own_job_is_told_so(here):
    run = here.run()

    @run.queue("work")
    def work(given):
        try:
            return work(given)
        except ConfigError as error:
            return str(error)

    with working(run):
        assert "its own result" in work(1)


def test_two_clients_may_use_the_object_graph_and_the_decorators_on_one_job(here):
    async def consume_one(scope_id):
        async with AsyncRunstate(**here.settings) as rs:
            work = await rs.scope(scope_id).mailbox("work").admit(wait_ms=20_000)
            await work.delivery.complete(result={"payload": ["done", work.delivery.data]})

    run = here.run()
    job = run.queue("work").send({"n": 1})
    asyncio.run(consume_one(run.run_id()))
    assert job.result(timeout=30) == ["done", {"n": 1}]


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


@pytest.mark.parametrize("later", ["slots", "limit", "budget"])
def test_what_comes_later_is_unknown_today(later):
    with pytest.raises(TypeError):
        runstate.queue("work", **{later: "browser"})


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
