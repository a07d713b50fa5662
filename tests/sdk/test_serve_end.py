import asyncio
import contextlib
import threading
import time

import pytest

import runstate
from runstate import AuthenticationError, LeaseLostError, StoppedError, TaskFailedError
from runstate.decorators import queue as queue_module
from runstate.decorators import serve as serve_module
from tests.sdk.workers import Call, Gate, Ran, working


@pytest.fixture(autouse=True)
def no_queues():
    """No queue is defined in this process yet."""
    queue_module.defined.clear()


@pytest.fixture
def brief(monkeypatch):
    """A worker that is stopped gives its handlers 0.3 s, not 30."""
    monkeypatch.setattr(serve_module, "_SHUTDOWN_S_MAX", 0.3)


# ------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("end", ["stop", "finish"])
def test_serve_returns_when_the_run_ends_and_handlers_are_told(here, end):
    run, told = here.run(), []
    inside = threading.Event()

    @run.queue("work")
    def work(given):
        inside.set()
        signal = runstate.context().signal
        told.append(signal.wait(30))
        told.append(type(signal.reason))

    worker = Call(run.serve)
    job = work.send(1)
    assert inside.wait(30)
    started = time.monotonic()
    getattr(here.run(), end)()
    assert worker.outcome is None
    assert time.monotonic() - started < 10
    assert told == [True, StoppedError]
    assert isinstance(Call(job.result).outcome, StoppedError)
    with pytest.raises(StoppedError):
        run.serve()


def test_an_idle_worker_returns_when_the_run_ends(here):
    run = here.run()
    run.queue("work")(Ran())
    worker = Call(run.serve)
    here.run().queue("work")(None)  # has been served: the worker is waiting for more
    started = time.monotonic()
    here.run().stop()
    assert worker.outcome is None
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("flag", [runstate.ThreadSafeEvent, threading.Event, asyncio.Event])
def test_a_flag_stops_the_worker_after_what_is_under_way(here, flag):
    run, gate, stop = here.run(), Gate(), flag()
    queue = run.queue("work")(gate)
    worker = Call(lambda: run.serve(signal=stop))
    first, second = queue.send(1), queue.send(2)
    gate.entered()
    stop.set()
    time.sleep(0.3)
    assert worker.alive
    gate.release.set()
    assert worker.outcome is None
    assert first.result(timeout=10) == [1, 1]
    assert second.status()["state"] == "QUEUED"


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_what_is_unfinished_at_the_stop_is_handed_back_without_costing_an_attempt(here, brief, kind):
    run = here.run()
    inside, told, never = threading.Event(), [], threading.Event()

    def plain(given):
        inside.set()
        told.append(runstate.context().signal)
        never.wait(60)
        return "too late"

    async def coroutine(given):
        inside.set()
        told.append(runstate.context().signal)
        await asyncio.sleep(60)

    queue = run.queue("work", attempts=1)({"plain": plain, "coroutine": coroutine}[kind])
    with working(run):
        job = queue.send(1)
        assert inside.wait(30)
    assert isinstance(told[0].reason, LeaseLostError)
    assert (job.status()["state"], job.status()["attempt"]) == ("QUEUED", 0)
    other = here.run(worker="other")
    other.queue("work", attempts=1)(lambda given: [given, runstate.context().attempt])
    with working(other):
        assert job.result(timeout=30) == [1, 1]
    never.set()  # the first handler returns now; nobody hears of it
    assert job.result(timeout=30) == [1, 1]


def test_aserve_runs_async_handlers_on_the_caller_s_loop_and_ends_with_its_task(here):
    run = here.run()
    seen = []

    @run.queue("work", concurrency=2)
    async def work(given):
        seen.append(asyncio.get_running_loop())
        await asyncio.sleep(60 if given == "long" else 0)
        return given

    async def main():
        serving = asyncio.ensure_future(run.aserve())
        long = await work.asend("long")
        assert await work("short") == "short"
        while (await long.astatus())["state"] != "RUNNING":
            await asyncio.sleep(0.01)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        assert serving.cancelled()
        assert seen == [asyncio.get_running_loop()] * 2
        return long

    job = asyncio.run(main())
    assert (job.status()["state"], job.status()["attempt"]) == ("QUEUED", 0)


def test_aserve_stops_by_a_flag_of_its_loop(here):
    run = here.run()
    queue = run.queue("work")(Ran())

    async def main():
        stop = asyncio.Event()
        serving = asyncio.ensure_future(run.aserve(signal=stop))
        assert await (await queue.asend(1)).aresult() == {"got": 1}
        stop.set()
        await asyncio.wait_for(serving, 10)

    asyncio.run(main())


def test_a_loop_that_goes_down_with_everything_on_it_hands_its_jobs_back(here):
    run = here.run()

    @run.queue("work")
    async def work(given):
        await asyncio.sleep(60)

    async def main():
        serving = asyncio.ensure_future(run.aserve())
        job = await work.asend(1)
        while (await job.astatus())["state"] != "RUNNING":
            await asyncio.sleep(0.01)
        assert not serving.done()
        return job  # asyncio.run cancels the worker and its handler, in no order

    job = asyncio.run(main())
    assert (job.status()["state"], job.status()["attempt"]) == ("QUEUED", 0)


# ------------------------------------------------------------------------------ more than failures


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_keyboard_interrupt_in_a_handler_ends_the_worker_and_hands_the_job_back(here, kind):
    run = here.run()

    def plain(given):
        raise KeyboardInterrupt

    async def coroutine(given):
        raise KeyboardInterrupt

    queue = run.queue("work", attempts=1)({"plain": plain, "coroutine": coroutine}[kind])
    job = queue.send(1)
    assert isinstance(Call(run.serve).outcome, KeyboardInterrupt)
    assert (job.status()["state"], job.status()["attempt"]) == ("QUEUED", 0)


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_an_exit_in_a_handler_ends_the_worker_and_costs_the_attempt(here, kind):
    """A library that exits on some input must not take one worker after the other with it for ever."""
    run = here.run()

    def plain(given):
        raise SystemExit(3)

    async def coroutine(given):
        raise SystemExit(3)

    queue = run.queue("work", attempts=2)({"plain": plain, "coroutine": coroutine}[kind])
    job = queue.send(1)
    for state in ("QUEUED", "FAILED"):
        outcome = Call(run.serve).outcome
        assert isinstance(outcome, SystemExit)
        assert outcome.code == 3
        assert job.status()["state"] == state
    assert job.status()["outcomeReason"] == "handler_error: SystemExit: 3"


def test_a_handler_that_cancels_itself_has_failed(here):
    run = here.run()

    @run.queue("work", attempts=1)
    async def work(given):
        raise asyncio.CancelledError("by itself")

    with working(run):
        job = work.send(1)
        with pytest.raises(TaskFailedError, match="CancelledError: by itself"):
            job.result(timeout=30)


def test_an_error_that_cannot_be_written_is_recorded_all_the_same(here):
    class ShyError(Exception):
        def __str__(self):
            raise RuntimeError

    run = here.run()

    @run.queue("work", attempts=1)
    def work(given):
        raise ShyError if given == "shy" else ValueError("x" * 5_000 + "\ud800\0")

    with working(run):
        with pytest.raises(TaskFailedError, match="no message"):
            work("shy")
        with pytest.raises(TaskFailedError) as caught:
            work("long")
    assert caught.value.reason == ("ValueError: " + "x" * 5_000)[:2_000]


# ------------------------------------------------------------------------------ what cannot be waited out


def test_a_key_that_is_refused_ends_the_worker(here):
    run = here.run(api_key="rs_test_unknown_0123456789")
    run.queue("work")(Ran())
    assert isinstance(Call(run.serve).outcome, AuthenticationError)


def test_a_space_that_is_not_there_ends_the_worker(here):
    run = here.run(space_id="nowhere")
    run.queue("work")(Ran())
    assert isinstance(Call(run.serve).outcome, AuthenticationError)
