"""One run as GET /ops/runs shows it: who holds what, queues, tasks; of the subtree that is asked about."""

import uuid

import pytest

from runstate_server.foundation import db
from runstate_server.primitives.ops.reads import finished, runs
from tests.support.builders import Once, end, held, in_seconds, ok, scope
from tests.support.clock import Clock
from tests.support.queues import Claim, cancel, mailbox, redrive, sent, submitted, taken

NOTHING = dict.fromkeys(("QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"), 0)


def report(api, scope_id):
    return ok(api.get(f"/ops/runs/{scope_id}"))


def tasks(api, scope_id):
    return report(api, scope_id)["tasks"]


def chain(api, depth):
    """Scopes from a run down, each the child of the one before."""
    found = [scope(api, name="run")]
    for _ in range(depth):
        found.append(scope(api, parentId=found[-1]))
    return found


def test_an_empty_run_has_every_field_and_nothing_in_it(api):
    run = scope(api)
    assert report(api, run) == {
        "rootScopeId": run,
        "scope": ok(api.get(f"/scopes/{run}")),
        "workers": [],
        "waiting": [],
        "queues": [],
        "tasks": NOTHING,
        "timers": [],
        "barriers": [],
        "groups": [],
    }


def test_a_worker_is_a_holder_and_session_with_all_that_it_holds_now(api):
    run, child = chain(api, 1)
    box = mailbox(api, child)
    first = ok(Claim(run, "b").acquire("ann", lease_s=50).send(api), 201)["leaseExpiresAt"]
    held(api, Once(child, "a"), holder="ann", lease_s=60)
    held(api, Once(child, "c"), holder="ann", session="2", lease_s=60)
    message = sent(api, box)
    taken(api, box.recv("ann", lease_s=90))
    mine, other = report(api, run)["workers"]
    assert mine == {
        "holder": "ann",
        "session": "1",
        "keys": ["a", "b"],
        "grants": [],
        "messages": [message],
        "earliestLeaseExpiry": first,
    }
    assert (other["session"], other["keys"], other["messages"]) == ("2", ["c"], [])


def test_what_has_lapsed_was_given_up_or_has_ended_is_held_by_nobody(api, clock):
    run, child = chain(api, 1)
    box = mailbox(api, run)
    sent(api, box)
    taken(api, box.recv(lease_s=5))
    token = ok(Claim(run).acquire().send(api), 201)["token"]
    ok(Claim(run).release(token).send(api))
    once = Once(run, "done")
    ok(once.complete(held(api, once)).send(api))
    held(api, Once(run, "lapses"), lease_s=5)
    held(api, Once(child, "ends"), lease_s=3600)
    ok(end(child).send(api))
    clock.shift(5)
    found = report(api, run)
    assert found["workers"] == []
    (queue,) = found["queues"]
    assert (queue["ready"], queue["leased"]) == (1, 0)  # the message can be taken again


@pytest.mark.parametrize("asked", range(6))
def test_a_scope_is_shown_with_all_below_it_and_nothing_beside_or_above(api, asked):
    scopes = chain(api, 5)
    box = mailbox(api, "", "work")
    for i, each in enumerate(scopes):
        inside = box.within(each)
        submitted(api, inside, "waits", delaySeconds=60)
        submitted(api, inside, "runs")
        taken(api, inside.admit(each, lease_s=600))
        submitted(api, inside, "dies")
        ok(taken(api, inside.recv()).nack(retry=False).send(api))
        sent(api, inside)
        beside = box.within(scope(api, parentId=scopes[i - 1]) if i else scope(api))
        submitted(api, beside, "beside")
    found = report(api, scopes[asked])
    below = len(scopes) - asked
    assert (found["rootScopeId"], found["scope"]["id"]) == (scopes[0], scopes[asked])
    assert {worker["holder"] for worker in found["workers"]} == set(scopes[asked:])
    (queue,) = found["queues"]
    assert queue | {"oldestReadyAt": None} == {
        "mailboxId": box.id,
        "name": "work",
        "mode": "WORK",
        "ready": 2 * below - 1,  # those beside the ones below are below, too
        "delayed": below,
        "leased": below,
        "dead": below,
        "oldestReadyAt": None,
    }
    counts = {"QUEUED": 2 * below - 1, "RUNNING": below, "FAILED": below}
    assert found["tasks"] == NOTHING | counts


def test_queues_are_those_with_work_in_the_run_with_the_age_of_the_oldest(api):
    run, other = scope(api), scope(api)
    second, first, busy, idle = (mailbox(api, run, name) for name in ("b", "a", "c", "d"))
    for box in (second.within(other), second, first, first, busy, idle):
        sent(api, box)
    taken(api, busy.recv())
    ok(taken(api, idle.recv()).complete().send(api))
    queues = report(api, run)["queues"]
    assert [(queue["name"], queue["ready"]) for queue in queues] == [("a", 2), ("b", 1), ("c", 0)]
    assert queues[0]["oldestReadyAt"] == ok(first.view().send(api))["oldestReadyAt"]
    assert queues[2]["oldestReadyAt"] is None


def test_what_stands_in_line_behind_the_head_of_an_inbox_is_ready_too(api):
    run, child = chain(api, 1)
    box = mailbox(api, run, mode="INBOX")
    for where in (run, run, run, child, child):
        sent(api, box.within(where))
    taken(api, box.recv())
    (queue,) = report(api, run)["queues"]
    assert (queue["mode"], queue["ready"], queue["leased"]) == ("INBOX", 4, 1)
    (queue,) = report(api, child)["queues"]
    assert (queue["ready"], queue["leased"]) == (2, 0)


def test_tasks_are_counted_by_what_they_are_at_this_instant(api, clock):
    run, child = chain(api, 1)
    box = mailbox(api, run)
    sent(api, box, delaySeconds=60)  # a message is no task
    for key in ("succeeds", "fails"):
        submitted(api, box, key)
        delivery = taken(api, box.admit())
        ok((delivery.complete() if key == "succeeds" else delivery.nack(retry=False)).send(api))
    ok(cancel(submitted(api, box, "cancelled")).send(api))
    submitted(api, box, "expires", deadline=in_seconds(api, 30))
    submitted(api, box.within(child), "ends with its scope")
    submitted(api, box, "runs")
    taken(api, box.admit(lease_s=20))
    submitted(api, box, "waits")
    counts = {"QUEUED": 3, "RUNNING": 1, "SUCCEEDED": 1, "FAILED": 1, "CANCELLED": 1}
    assert tasks(api, run) == NOTHING | counts
    ok(end(child).send(api))
    clock.shift(30)
    counts = {"QUEUED": 2, "SUCCEEDED": 1, "FAILED": 1, "CANCELLED": 2, "EXPIRED": 1}
    assert tasks(api, run) == NOTHING | counts


def test_counts_are_exact_whenever_one_looks(api, clock):
    """What was counted before is not counted again: also when failed ones come back, and time goes back."""
    run, child = chain(api, 1)
    box = mailbox(api, run)
    done = 0
    for seconds in (0, 30, 3_600, -3_000, 3_000):
        clock.shift(seconds)
        for where in (run, child):
            for i in range(3):
                submitted(api, box.within(where), f"{seconds} {i}")
                ok(taken(api, box.within(where).admit()).complete().send(api))
        done += 3
        for _ in range(2):
            assert tasks(api, run)["SUCCEEDED"] == 2 * done
            assert tasks(api, child)["SUCCEEDED"] == done
    submitted(api, box, "fails")
    failed = taken(api, box.admit())
    ok(failed.nack(retry=False).send(api))
    assert tasks(api, run)["FAILED"] == 1
    clock.shift(60)
    assert tasks(api, run)["FAILED"] == 1
    ok(redrive(failed.id).send(api))
    assert (tasks(api, run)["FAILED"], tasks(api, run)["QUEUED"]) == (0, 1)


async def test_more_than_one_look_can_count_is_counted_by_several(
    api, space, database_url, kernel_schema, monkeypatch
):
    run = scope(api)
    box = mailbox(api, run)
    for i in range(10):
        submitted(api, box, str(i))
        ok(taken(api, box.admit()).complete().send(api))
    monkeypatch.setattr(finished, "LOOKED_AT_MAX", 4)
    engine = db.open_engine(database_url, named_statements=True)
    clock = Clock(database_url)
    clock.shift(60)
    try:
        seen = [
            (await runs.run(engine, kernel_schema, space.id, uuid.UUID(run)))["tasks"]["SUCCEEDED"]
            for _ in range(6)
        ]
    finally:
        clock.reset()
        await engine.dispose()
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (4, 10)


def test_an_ended_run_holds_nothing_and_has_ended_tasks(api):
    run = scope(api)
    box = mailbox(api, run)
    ok(Claim(run).acquire().send(api), 201)
    submitted(api, box, "runs")
    taken(api, box.admit())
    submitted(api, box, "waits")
    ok(end(run, "complete").send(api))
    found = report(api, run)
    assert (found["workers"], found["queues"], found["waiting"]) == ([], [], [])
    assert found["tasks"] == NOTHING | {"CANCELLED": 2}
    assert found["scope"]["effective"] == "COMPLETED"


def test_no_list_is_longer_than_five_hundred(api):
    run = scope(api)
    for i in range(501):
        ok(Claim(run, f"{i:03}").acquire("ann").send(api), 201)
    (worker,) = report(api, run)["workers"]
    assert worker["keys"] == [f"{i:03}" for i in range(500)]
