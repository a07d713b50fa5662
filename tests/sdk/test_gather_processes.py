"""gather with workers, callers and servers in processes of their own, some of which are killed."""

import asyncio
import signal
import time

import pytest

from runstate import TaskFailedError
from tests.sdk.conftest import Here
from tests.sdk.workers import Call, told, until_true, working
from tests.support import spaces
from tests.support.processes import Python, Replica
from tests.support.proxy import RoundRobin

pytestmark = pytest.mark.processes

# A reviewer says what it begins, and how it ends. It takes until a file is there, or its signal is set.
REVIEWER = """
import os, time
import runstate

@runstate.queue("review", lease=1.5, attempts=int(os.environ.get("ATTEMPTS", 5)))
def review(given):
    context = runstate.context()
    print("begins", given["n"], context.attempt, flush=True)
    while given["until"] and not os.path.exists(given["until"]) and not context.signal.is_set():
        time.sleep(0.02)
    reason = context.signal.reason
    print("ends", given["n"], reason and type(reason).__name__, flush=True)
    return {"n": given["n"], "by": os.getpid(), "attempt": context.attempt}

print("serving", flush=True)
runstate.serve()
print("served", flush=True)
"""

CALLER = """
import runstate
print("asks", flush=True)
try:
    runstate.queue("review").gather([{"n": n, "until": "/nonexistent"} for n in range(3)])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def reviewer(here, **variables):
    return Python(REVIEWER, env=here.environment | variables)


def leave(each):
    """Ends a worker well; what was left of its output."""
    each.process.send_signal(signal.SIGTERM)
    out, err = each.process.communicate(timeout=20)
    assert (each.process.returncode, err) == (0, "")
    return out


def states(api):
    """The state of each task of the space, in the order of their keys."""
    return sorted(task["state"] for task in told(api, "/tasks")["tasks"])


def over(api):
    return until_true(
        lambda: found if not {"QUEUED", "RUNNING"} & set(found := states(api)) else None,
        what="the end of all",
    )


def reviews(count, until=""):
    return [{"n": n, "until": str(until)} for n in range(count)]


def test_of_ten_reviews_the_first_three_good_ones_come_and_the_rest_is_cancelled(here, api, tmp_path):
    """Of four reviewers one is killed at its work and one is busy with what is not needed any more."""
    slow = str(tmp_path / "never")
    asked = [{"n": 0, "until": slow}, {"n": 1, "until": slow}, *reviews(10)[2:]]
    with (
        reviewer(here) as killed,
        reviewer(here) as busy,
        reviewer(here) as third,
        reviewer(here) as fourth,
    ):
        for each in (killed, busy, third, fourth):
            each.until_line("serving")
        call = Call(
            lambda: (
                here.run()
                .queue("review")
                .gather(asked, need=3, accept=lambda result, given: result["n"] == given["n"] >= 6)
            )
        )
        lines = {each: Call(lambda each=each: each.line()) for each in (killed, busy)}
        begun = {each: lines[each].result for each in lines}
        killed.kill()
        found = call.result
        assert len(found) == 3
        assert [one["n"] for one in found] == sorted(one["n"] for one in found)
        assert min(one["n"] for one in found) >= 6
        ended = over(api)
        assert (ended.count("SUCCEEDED") >= 3, ended.count("CANCELLED") >= 1) == (True, True)
        assert set(ended) == {"SUCCEEDED", "CANCELLED"}
        if begun[busy].startswith(("begins 0", "begins 1")):
            assert busy.line() == f"ends {begun[busy].split()[1]} LeaseLostError"
        assert here.run().queue("review").gather(reviews(1), timeout=30)[0]["n"] == 0
        for each in (busy, third, fourth):
            assert leave(each).endswith("served\n")


def test_the_job_of_a_killed_worker_is_done_by_the_next(here, tmp_path):
    release = tmp_path / "go"
    with reviewer(here) as first:
        call = Call(lambda: here.run().queue("review").gather(reviews(1, release)))
        assert first.until_line("begins") == "begins 0 1"
        with reviewer(here) as second:
            first.kill()
            assert second.until_line("begins") == "begins 0 2"
            release.touch()
            assert call.result == [{"n": 0, "by": second.pid, "attempt": 2}]


def test_a_job_whose_workers_are_all_killed_does_not_hold_it_up(here, tmp_path):
    with reviewer(here, ATTEMPTS="1") as only:
        call = Call(lambda: here.run().queue("review").gather(reviews(1, tmp_path / "never")))
        only.until_line("begins")
        only.kill()
        assert isinstance(call.outcome, TaskFailedError)
        assert call.outcome.reason == "lease_expired"


def test_an_interrupted_caller_leaves_no_job_behind(here, api):
    with Python(CALLER, env=here.environment) as caller:
        until_true(lambda: len(told(api, "/tasks")["tasks"]) == 3, what="the jobs")
        caller.process.send_signal(signal.SIGINT)
        caller.until_line("interrupted")
        assert states(api) == ["CANCELLED"] * 3
        assert caller.end(silent=True) == ""


def test_it_outlives_a_server_that_restarts(fresh_database, tmp_path):
    space, release = spaces.create(fresh_database), tmp_path / "go"
    with Replica(fresh_database) as replica:
        place = Here(replica.url, space.id, space.key)
        with reviewer(place) as first, reviewer(place) as second:
            call = Call(lambda: place.run().queue("review").gather([*reviews(3), *reviews(5, release)[3:]]))
            first.until_line("serving")
            second.until_line("serving")
            with space.client(replica.url) as api:
                until_true(lambda: states(api).count("SUCCEEDED") == 3, what="the quick ones")
            for stop in (replica.stop, replica.kill):
                stop()
                replica.start()
            release.touch()
            assert [one["n"] for one in call.result] == [0, 1, 2, 3, 4]


LOST = {"creation": b"/task-groups HTTP", "submission": b"/tasks HTTP", "verdict": b"/accept HTTP"}


@pytest.mark.parametrize("what", LOST)
def test_a_reply_that_is_lost_doubles_nothing(here, api, what):
    run = here.run()
    run.queue("double")(lambda n: n * 2)
    with RoundRobin([int(here.url.rpartition(":")[2])]) as wire, working(run):
        through = here.run(base_url=wire.url, retries=0)
        wire.drop_reply(LOST[what])
        assert through.queue("double").gather([1, 2, 3], need=2, timeout=60) in ([2, 4], [2, 6], [4, 6])
        assert wire.dropped.is_set()
    events = told(api, "/events", types="group.created,group.accepted,task.submitted")["events"]
    assert sorted(event["type"] for event in events) == [
        *["group.accepted"] * 2,
        "group.created",
        *["task.submitted"] * 3,
    ]


async def test_a_caller_that_is_cancelled_before_it_knows_its_group_leaves_none_behind(here, api):
    with RoundRobin([int(here.url.rpartition(":")[2])]) as wire:
        run = here.run(base_url=wire.url, retries=0)
        await run.arun_id()
        wire.drop_reply(LOST["creation"])
        gathering = asyncio.ensure_future(run.queue("double").agather([1, 2]))
        while not wire.dropped.is_set():
            await asyncio.sleep(0.005)
        wire.blackhole(True)
        gathering.cancel()
        begun_at = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        assert time.monotonic() - begun_at < 30
        wire.blackhole(False)

        def ended():
            found = told(api, "/events", types="group.created,group.finalized")["events"]
            return [event["type"] for event in found] == ["group.created", "group.finalized"]

        await asyncio.to_thread(until_true, ended, what="the end of the group")
