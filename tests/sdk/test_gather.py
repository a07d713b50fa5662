"""gather: so many good results of many jobs, and an end of the rest."""

import asyncio
import functools
import threading
from datetime import datetime, timedelta, timezone

import pytest

import runstate
from runstate import ConfigError, Job, ResultTooLargeError, StoppedError, TaskFailedError, WaitTimeoutError
from runstate.decorators import defaults
from runstate.run import Account
from tests.sdk.workers import Call, Gate, Ran, told, until_true, working


def doubled(given):
    return given * 2


def failing(given):
    if given in {"a", "b", "no such page"}:
        raise ValueError(given)
    return given


def jobs(run, *states):
    """The run's tasks by state, once there are none of `states`."""

    def counted():
        found = run.status()["tasks"]
        return found if not any(found.get(state) for state in states) else None

    return {state: count for state, count in until_true(counted).items() if count}


def nothing_left(run):
    """The run's tasks, none of which is unfinished."""
    return jobs(run, "QUEUED", "RUNNING")


@pytest.fixture
def run(here):
    return here.run()


# ------------------------------------------------------------------------------ results


def test_the_results_of_all_inputs_come_in_their_order(run):
    double = run.queue("double", concurrency=4)(doubled)
    with working(run):
        assert double.gather([3, 1, 2]) == [6, 2, 4]
        assert double.gather(iter(range(100))) == [2 * n for n in range(100)]
    assert nothing_left(run) == {"SUCCEEDED": 103}


def test_the_jobs_are_worked_on_in_the_order_of_the_inputs(run):
    ran = Ran()
    work = run.queue("work")(ran)
    with working(run):
        work.gather([3, 1, 4, 5, 9, 2, 6])
    assert ran == [3, 1, 4, 5, 9, 2, 6]


def test_as_soon_as_enough_are_accepted_the_rest_is_cancelled(run):
    gate = Gate()
    work = run.queue("work", concurrency=4)(lambda n: gate(n) if n > 4 else n)
    with working(run):
        found = work.gather([5, 1, 2, 3, 4, 6, 7], need=2, accept=lambda result, given: result == given > 2)
        assert found == [3, 4]
        assert nothing_left(run) == {"SUCCEEDED": 4, "CANCELLED": 3}
        gate.release.set()
        assert work.gather([1]) == [1]


def test_accept_is_called_once_for_each_result_with_the_input_as_it_was_given(run):
    seen = []

    def accept(result, given):
        seen.append((result, given, threading.current_thread()))
        return True

    pair = run.queue("pair")(lambda given: given)
    with working(run):
        assert pair.gather([(1, 2), (3, 4)], accept=accept) == [[1, 2], [3, 4]]
    here = threading.current_thread()
    assert sorted(seen, key=str) == [([1, 2], (1, 2), here), ([3, 4], (3, 4), here)]


def test_equal_inputs_are_one_job_that_counts_once_and_each_gets_its_result(run):
    ran = Ran()
    work = run.queue("work")(ran)
    got = [{"got": n} for n in (1, 2, 1)]
    with working(run):
        assert work.gather([1, 2, 1]) == work.gather([1, 2, 1], need=2) == got
        with pytest.raises(ConfigError, match="need is 3, and there are 2 different ones among 3 inputs"):
            work.gather([1, 2, 1], need=3)
    assert ran == [1, 2, 1, 2]


def test_key_decides_what_the_same_job_is(run):
    ran = Ran()
    work = run.queue("work", key=lambda given: given["company"])(ran)
    acme, again = {"company": "acme", "at": 1}, {"company": "acme", "at": 2}
    with working(run):
        assert work.gather([acme, again]) == [{"got": acme}, {"got": acme}]
    assert ran == [acme]


def test_each_call_has_jobs_of_its_own(run):
    ran = Ran()
    work = run.queue("work")(ran)
    with working(run):
        assert work.gather([1]) == work.gather([1]) == [work(1)] == [{"got": 1}]
    assert ran == [1, 1, 1]


def test_no_inputs_need_no_server(monkeypatch):
    monkeypatch.setenv("RUNSTATE_BASE_URL", "http://127.0.0.1:9")
    assert runstate.queue("work").gather([]) == []
    assert asyncio.run(runstate.queue("work").agather([])) == []


def test_the_queue_of_the_module_gathers_in_the_default_run(here):
    runstate.queue("double")(doubled)
    with working(here.run()):
        assert runstate.queue("double").gather([1, 2]) == [2, 4]


def test_the_jobs_need_what_the_queue_needs_and_losers_give_it_back(run):
    run.setup(slots={"browser": 2})
    gate = Gate()
    work = run.queue("work", concurrency=4, slots="browser")(lambda n: gate(n) if n else n)
    with working(run):
        call = Call(lambda: work.gather([1, 2, 3, 0], need=2))
        gate.entered(2)
        gate.release.set()
        assert len(call.result) == 2
        assert gate.most <= 2
        nothing_left(run)
        with run.slots("browser", units=2, timeout=30) as lease:
            assert not lease.is_lost


# ------------------------------------------------------------------------------ both faces


@pytest.mark.parametrize("kind", ["plain", "async", "partial of an async one"])
@pytest.mark.parametrize("caller", ["plain", "async"])
def test_accept_may_be_plain_or_async_under_both_faces(run, caller, kind):
    async def later(result, given):
        await asyncio.sleep(0)
        return result == given * 2 and given != 2

    accept = {
        "plain": lambda result, given: result == given * 2 and given != 2,
        "async": later,
        "partial of an async one": functools.partial(lambda check, *args: check(*args), later),
    }[kind]
    double = run.queue("double", concurrency=3)(doubled)
    with working(run):
        if caller == "plain":
            found = double.gather([1, 2, 3], need=2, accept=accept)
        else:
            found = asyncio.run(double.agather([1, 2, 3], need=2, accept=accept))
    assert found == [2, 6]


def test_an_async_accept_runs_on_the_caller_s_loop(run):
    async def caller():
        loops = []

        async def accept(_result, _given):
            loops.append(asyncio.get_running_loop())
            return True

        await run.queue("double").agather([1, 2], accept=accept)
        assert loops == [asyncio.get_running_loop()] * 2

    run.queue("double")(doubled)
    with working(run):
        asyncio.run(caller())


def test_the_results_of_async_handlers_are_gathered(run):
    @run.queue("later")
    async def later(given: int) -> int:
        await asyncio.sleep(0)
        return given + 1

    with working(run):
        assert later.gather([1, 2]) == asyncio.run(later.agather([1, 2])) == [2, 3]


# ------------------------------------------------------------------------------ out of reach


def test_one_failure_is_the_end_when_all_are_needed(run):
    gate = Gate()
    work = run.queue("work", attempts=1, concurrency=4)(lambda n: gate(n) if n == 1 else failing(n))
    with working(run):
        with pytest.raises(TaskFailedError, match="no such page") as caught:
            work.gather([1, "no such page", 2])
        assert caught.value.reason == "ValueError: no such page"
        assert Job(run, caught.value.job_id).status()["state"] == "FAILED"
        found = nothing_left(run)
        assert (found["FAILED"], found["CANCELLED"] + found.get("SUCCEEDED", 0)) == (1, 2)
        gate.release.set()


def test_failures_are_borne_while_enough_can_still_be_good(run):
    work = run.queue("work", attempts=1)(failing)
    with working(run):
        assert work.gather(["a", 1, "b", 2], need=2) == [1, 2]
        with pytest.raises(TaskFailedError) as caught:
            work.gather([1, "a", 2, "b"], need=3)
    assert caught.value.reason in {"ValueError: a", "ValueError: b"}
    assert "3 results of 4 jobs were needed" in str(caught.value)


def test_too_many_rejections_put_it_out_of_reach(run):
    double = run.queue("double")(doubled)
    with working(run), pytest.raises(TaskFailedError) as caught:
        double.gather([1, 2, 3], need=2, accept=lambda _result, given: given == 1)
    assert (caught.value.reason, caught.value.job_id) == ("threshold_unreachable", None)
    assert "2 rejected" in str(caught.value)


def test_a_member_that_is_cancelled_does_not_hold_it_up(run, api):
    work = run.queue("work")
    call = Call(lambda: work.gather([1, 2]))
    first, _ = submitted(api, 2)
    Job(run, first["id"]).cancel("not needed")
    assert isinstance(call.outcome, TaskFailedError)
    assert (call.outcome.job_id, call.outcome.reason) == (first["id"], "not needed")
    assert nothing_left(run) == {"CANCELLED": 2}


def test_the_end_of_its_scope_alone_is_a_failure_and_the_run_goes_on(run, api):
    work = run.queue("work")
    call = Call(lambda: work.gather([1, 2]))
    first, _ = submitted(api, 2)
    api.post(f"/scopes/{first['scopeId']}/cancel").raise_for_status()
    assert isinstance(call.outcome, TaskFailedError)
    assert call.outcome.reason == "scope_cancelled"
    assert work.send(3).id


# ------------------------------------------------------------------------------ given up


@pytest.mark.parametrize("how", ["stop", "finish"])
def test_the_end_of_the_run_ends_it(here, run, api, how):
    call = Call(lambda: run.queue("work").gather([1, 2]))
    submitted(api, 2)
    getattr(here.run(), how)()
    assert isinstance(call.outcome, StoppedError)
    with pytest.raises(StoppedError):
        run.queue("work").gather([1])


def test_the_deadline_of_the_run_ends_it(here):
    deadline = datetime.now(timezone.utc) + timedelta(seconds=2)
    run = defaults.Run(Account(**here.settings), name="short", deadline=deadline)
    with pytest.raises(StoppedError):
        run.queue("work").gather([1, 2])


def test_a_call_that_runs_out_of_time_leaves_nothing_behind(run):
    gate = Gate()
    work = run.queue("work", concurrency=3)(lambda n: gate(n) if n else n)
    with working(run):
        reason = "only 1 of the 2 results that were needed of 'work' came within 3 s"
        with pytest.raises(WaitTimeoutError, match=reason):
            work.gather([1, 0, 2], need=2, timeout="3s")
        assert nothing_left(run) == {"SUCCEEDED": 1, "CANCELLED": 2}
        gate.release.set()


def test_an_exception_of_accept_ends_it_and_what_is_left_of_its_jobs(run):
    gate = Gate()

    def accept(_result, _given):
        raise KeyError("mine")

    work = run.queue("work", concurrency=3)(lambda n: gate(n) if n else n)
    with working(run):
        with pytest.raises(KeyError, match="mine"):
            work.gather([0, 1, 2], accept=accept)
        assert nothing_left(run) == {"SUCCEEDED": 1, "CANCELLED": 2}
        gate.release.set()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_exception_of_accept_reaches_an_async_caller_too(run, kind):
    def accept(_result, _given):
        raise KeyError("mine")

    async def later(result, given):
        accept(result, given)

    work = run.queue("work")(doubled)
    with working(run):
        with pytest.raises(KeyError, match="mine"):
            asyncio.run(work.agather([0, 1], accept=accept if kind == "plain" else later))
        assert nothing_left(run).keys() <= {"SUCCEEDED", "CANCELLED"}


def test_a_caller_that_is_cancelled_in_accept_cancels_its_jobs(run):
    async def caller():
        judging = asyncio.Event()

        async def accept(_result, _given):
            judging.set()
            await asyncio.Event().wait()

        gathering = asyncio.ensure_future(run.queue("work").agather([0, 1, 2], accept=accept))
        await judging.wait()
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering

    gate = Gate()
    run.queue("work", concurrency=3)(lambda n: gate(n) if n else n)
    with working(run):
        asyncio.run(caller())
        assert nothing_left(run) == {"SUCCEEDED": 1, "CANCELLED": 2}
        gate.release.set()


def test_a_caller_that_is_cancelled_cancels_its_jobs(run, api):
    async def caller():
        gathering = asyncio.ensure_future(run.queue("work").agather([1, 2, 3]))
        await asyncio.to_thread(submitted, api, 3)
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering

    asyncio.run(caller())
    assert nothing_left(run) == {"CANCELLED": 3}


def test_a_worker_whose_job_has_lost_sees_its_signal_and_serves_on(run):
    lost = []

    @run.queue("work", concurrency=2)
    def work(given):
        if given == "slow":
            signal = runstate.context().signal
            assert signal.wait(30)
            lost.append(type(signal.reason).__name__)
        return given

    with working(run):
        assert work.gather(["slow", "quick"], need=1) == ["quick"]
        until_true(lambda: lost == ["LeaseLostError"], what="the signal")
        assert work.gather(["quick"]) == ["quick"]


# ------------------------------------------------------------------------------ refusals


def test_what_cannot_be_asked_for_is_refused_by_name(run):
    work = run.queue("work")
    for call, reason in (
        (lambda: work.gather(range(101)), "at most 100"),
        (lambda: work.gather([1, 2], need=3), "need is 3, and there are 2 inputs"),
        (lambda: work.gather([], need=1), "need is 1, and there are 0 inputs"),
        (lambda: work.gather([1], need=0), "need"),
        (lambda: work.gather([1], need=True), "need"),
        (lambda: work.gather([1], need="some"), '"all"'),
        (lambda: work.gather("abc"), "str"),
        (lambda: work.gather({"company": "acme"}), "dict"),
        (lambda: work.gather(5), "int"),
        (lambda: work.gather([object()]), "the input"),
        (lambda: work.gather([1], accept="yes"), "accept"),
        (lambda: work.gather([1], timeout="soon"), "timeout"),
    ):
        with pytest.raises(ConfigError, match=reason):
            call()
    with pytest.raises(ResultTooLargeError):
        work.gather([1, "x" * 70_000])
    assert run.status()["tasks"].get("QUEUED", 0) == 0


def submitted(api, count):
    """The tasks of the space, once there are so many, in the order they were submitted."""

    def found():
        tasks = told(api, "/tasks")["tasks"]
        return sorted(tasks, key=lambda task: task["createdAt"]) if len(tasks) >= count else None

    return until_true(found, what=f"{count} tasks")
