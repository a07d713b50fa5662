import asyncio
import contextlib
import threading
import time

import httpx
import pytest

import runstate
from runstate import AuthenticationError, ConfigError, LeaseLostError, StoppedError, TaskFailedError
from runstate.decorators import queue as queue_module
from runstate.decorators import serve as serve_module
from tests.sdk.peer import DROP, Answer, Peer
from tests.sdk.workers import Call, Ran, working


@pytest.fixture(autouse=True)
def no_queues():
    """No queue is defined in this process yet."""
    queue_module.defined.clear()


@pytest.fixture
def brief(monkeypatch):
    """A worker that is stopped gives its handlers 0.3 s, not 30."""
    monkeypatch.setattr(serve_module, "_SHUTDOWN_S_MAX", 0.3)


class Gate:
    """A handler that is inside until it is let go."""

    def __init__(self):
        self.inside = threading.Semaphore(0)
        self.release = threading.Event()
        self.now = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, given):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.inside.release()
        assert self.release.wait(60)
        with self._lock:
            self.now -= 1
        return [given, runstate.context().attempt]

    def entered(self, count=1):
        for _ in range(count):
            assert self.inside.acquire(timeout=30)


# ------------------------------------------------------------------------------ how many at once


def test_a_queue_runs_as_many_jobs_at_once_as_it_says_and_queues_do_not_wait_for_each_other(here):
    run, three, one = here.run(), Gate(), Gate()
    run.queue("three", concurrency=3)(three)
    run.queue("one")(one)
    jobs = [run.queue(name).send(i) for i in range(4) for name in ("three", "one")]
    with working(run):
        three.entered(3)
        one.entered()
        three.release.set()
        one.release.set()
        assert [job.result(timeout=60) for job in jobs] == [[i, 1] for i in range(4) for _ in range(2)]
    assert (three.most, one.most) == (3, 1)


def test_concurrency_caps_the_process_and_busy_queues_take_turns(here):
    run, order = here.run(), []
    for name in ("a", "b"):
        run.queue(name, concurrency=5)(lambda given, name=name: order.append(name))
    jobs = [run.queue(name).send(i) for name in ("a", "b") for i in range(6)]
    with working(run, concurrency=1):
        for job in jobs:
            assert job.result(timeout=60) is None
            assert job.status()["attempt"] == 1
    assert order in (["a", "b"] * 6, ["b", "a"] * 6)


def test_work_that_comes_to_an_idle_queue_of_a_full_process_goes_back_at_once(here):
    run, gate = here.run(), Gate()
    run.queue("a")(gate)
    run.queue("b")(gate)
    with working(run, concurrency=1):
        time.sleep(0.5)  # both queues are waiting by now; the promise holds either way
        first = run.queue("a").send(1)
        gate.entered()
        second = run.queue("b").send(2)
        other = here.run(worker="other")
        other.queue("b")(Ran())
        with working(other, queues="b"):
            assert second.result(timeout=30) == {"got": 2}
        assert second.status()["attempt"] == 1
        gate.release.set()
        assert first.result(timeout=30) == [1, 1]
    assert gate.most == 1


def test_queues_chooses_which_are_served(here):
    run = here.run()
    a, b = run.queue("a")(Ran()), run.queue("b")(Ran())
    for chosen in ("a", ["a"], a, [run.queue("a")]):
        with working(run, queues=chosen):
            assert a(repr(chosen)) == {"got": repr(chosen)}
    assert b.send(1).status()["state"] == "QUEUED"
    for wrong in ("c", [], [run.queue("c")]):
        with pytest.raises(ConfigError):
            run.serve(queues=wrong)


def test_a_process_without_queues_has_nothing_to_serve(here):
    with pytest.raises(ConfigError, match="no queue"):
        runstate.serve()
    runstate.queue("for-producers")
    with pytest.raises(ConfigError, match="no queue"):
        runstate.serve()
    for wrong in (0, "many", True):
        with pytest.raises(ConfigError, match="concurrency"):
            here.run().serve(concurrency=wrong, queues=here.run().queue("a")(Ran()))


# ------------------------------------------------------------------------------ jobs and their context


def test_jobs_of_child_scopes_are_taken_too_and_run_as_theirs(here):
    run = here.run()
    run.queue("where")(lambda given: [runstate.context().run.id, runstate.context().run.name])
    named, nameless = run.child(name="part"), run.child()
    grandchild = named.child(name="deep")
    with working(run):
        for below, name in ((named, "part"), (nameless, None), (grandchild, "deep"), (named, "part")):
            assert below.queue("where")(time.time()) == [below.run_id(), name]


def test_leases_are_renewed_whatever_the_handler_does_to_its_loop(here):
    run = here.run()

    @run.queue("blocking", lease=1)
    async def blocking(given):
        time.sleep(2.5)  # noqa: ASYNC251 - that is the point
        return runstate.context().attempt

    @run.queue("plain", lease=1)
    def plain(given):
        ends_at = time.monotonic() + 2.5
        while time.monotonic() < ends_at:
            pass
        return runstate.context().attempt

    with working(run):
        jobs = [blocking.send(1), plain.send(1)]
        assert [job.result(timeout=60) for job in jobs] == [1, 1]


def test_a_job_that_comes_after_a_long_wait_has_its_whole_lease(here):
    run = here.run()

    @run.queue("work", lease=1)
    def work(given):
        return [runstate.context().attempt, runstate.context().signal.wait(1.5)]

    with working(run):
        time.sleep(1.5)  # longer than the lease, in one long poll
        assert work(1) == [1, False]


def test_a_reply_that_is_lost_does_not_lose_the_job(here):
    """The answer to the admit is dropped on its way; the next request finds the same lease."""
    lost = []

    def forward(request):
        answer = httpx.request(
            request.method,
            here.url + request.path,
            content=request.body,
            headers={
                k: request.headers[k] for k in ("authorization", "idempotency-key") if k in request.headers
            },
            timeout=60,
            trust_env=False,
        )
        if request.path.endswith("/admit") and answer.status_code == 200 and len(lost) < 2:
            lost.append(request.headers["idempotency-key"])
            return DROP
        return Answer(answer.status_code, answer.content)

    with Peer(forward) as peer:
        run = here.run(base_url=peer.url)
        queue = run.queue("work", lease=30)(lambda given: [given, runstate.context().attempt])
        job = here.run().queue("work").send("a")
        with working(run, queues=queue):
            assert job.result(timeout=20) == ["a", 1]
    assert lost[0] == lost[1]


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
