import asyncio
import dataclasses
import threading

import pytest

import runstate
from runstate import (
    AsyncRunstate,
    ConfigError,
    ResultTooLargeError,
    StoppedError,
    TaskFailedError,
    WaitTimeoutError,
)
from runstate.decorators import queue as queue_module
from tests.sdk.workers import Call, Ran, working


@pytest.fixture(autouse=True)
def no_queues():
    """No queue is defined in this process yet."""
    queue_module.defined.clear()


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
        (object(), "ConfigError: the result is "),
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
            assert caught.value.reason.startswith(reason)
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
