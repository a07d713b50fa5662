"""together: so many workers wait for each other and go on at once."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

import runstate
from runstate import ConfigError, ConflictError, StoppedError, WaitTimeoutError
from tests.sdk.callers import in_thread, together
from tests.sdk.workers import Call, until_true
from tests.support.processes import Python
from tests.support.proxy import RoundRobin

MEMBER = """
import runstate
print("here", flush=True)
runstate.together("start", 3)
print("on", flush=True)
"""


def workers(here, *names):
    """The default run as processes of these names see it."""
    return [here.run(worker=name) for name in names]


def here_already(here, count, name="start"):
    """Wait until so many have arrived, by the run's report."""

    def arrived():
        found = here.run().status()["barriers"]
        return [b for b in found if (b["name"], b["arrivals"]) == (name, count)]

    until_true(arrived, what=f"{count} arrivals")


def test_all_go_on_once_the_last_has_come(here):
    *first, last = workers(here, "a", "b", "c")
    calls = [Call(lambda run=run: run.together("start", 3)) for run in first]
    here_already(here, 2)
    assert all(call.alive for call in calls)
    assert last.together("start", 3) is None
    assert [call.result for call in calls] == [None, None]


def test_two_callers_of_one_worker_count_once(here):
    one, other = workers(here, "a", "b")
    calls = [Call(lambda: one.together("start", 2)) for _ in range(3)]
    here_already(here, 1)
    other.together("start", 2)
    assert [call.result for call in calls] == [None] * 3


def test_after_the_release_members_pass_and_others_are_told_that_they_are_late(here):
    one, other, late = workers(here, "a", "b", "c")
    call = Call(lambda: one.together("start", 2))
    other.together("start", 2)
    assert call.result is None
    one.together("start", 2)
    here.run(worker="b").together("start", 2)  # restarted, under its name
    with pytest.raises(ConflictError) as caught:
        late.together("start", 2)
    assert caught.value.code == "BARRIER_RELEASED"
    late.together("another", 1)


def test_a_count_that_differs_is_a_conflict_that_names_both(here):
    one, other = workers(here, "a", "b")
    one.together("start", 1)
    with pytest.raises(ConflictError, match=r"1.*7"):
        other.together("start", 7)


def test_a_wait_that_runs_out_leaves_the_caller_counted(here):
    one, other = workers(here, "a", "b")
    with pytest.raises(WaitTimeoutError, match="start"):
        one.together("start", 2, timeout="200ms")
    other.together("start", 2)
    one.together("start", 2)


def test_the_twin_and_the_functions_of_the_module(here):
    async def both():
        await asyncio.gather(
            runstate.atogether("start", 2), here.run(worker="b").atogether("start", 2, timeout=None)
        )

    asyncio.run(both())
    runstate.together("alone", 1)


@pytest.mark.parametrize(
    "options",
    [{"count": 0}, {"count": 10_001}, {"count": 1.5}, {"count": True}, {"timeout": "soon"}, {"name": ""}],
)
def test_options_that_cannot_be_used_are_refused_where_they_stand(options):
    with pytest.raises(ConfigError):
        runstate.together(**{"name": "start", "count": 2, **options})


@pytest.mark.parametrize("how", ["stop", "finish"])
def test_waiting_ends_with_the_run(here, how):
    one, other = workers(here, "a", "b")
    call = Call(lambda: one.together("start", 2))
    here_already(here, 1)
    getattr(other, how)()
    assert isinstance(call.outcome, StoppedError)
    with pytest.raises(StoppedError):
        one.together("start", 2)


def test_waiting_ends_with_the_deadline_of_the_run(here):
    short = here.run().child("short", deadline=datetime.now(timezone.utc) + timedelta(seconds=2))
    with pytest.raises(StoppedError):
        short.together("start", 2)


def test_connections_that_break_and_answers_that_are_lost_are_asked_for_again(here):
    port = int(here.url.rpartition(":")[2])
    with RoundRobin([port]) as wire:
        one = here.run(worker="a", base_url=wire.url)
        one.run_id()
        wire.drop_reply(b"/arrive")
        call = Call(lambda: one.together("start", 2))
        assert wire.dropped.wait(30)
        here_already(here, 1)
        wire.sever()
        here.run(worker="b").together("start", 2)
        assert call.result is None


def test_many_threads_of_many_workers_meet(here):
    runs = workers(here, *(f"w{n}" for n in range(5)))
    threads = [in_thread(lambda run=run: run.together("start", 5)) for run in runs for _ in range(2)]
    for thread in threads:
        thread.join(60)
    assert [thread.outcome for thread in threads] == [None] * 10
    assert together(2, lambda: runs[0].together("start", 5)) == [None, None]


@pytest.mark.processes
def test_three_processes_meet(here):
    with Python(MEMBER, env=here.environment) as one, Python(MEMBER, env=here.environment) as two:
        assert (one.line(), two.line()) == ("here", "here")
        here_already(here, 2)
        with Python(MEMBER, env=here.environment) as three:
            assert [each.line() for each in (three, three, one, two)] == ["here", "on", "on", "on"]
            for each in (one, two, three):
                each.end(silent=True)
