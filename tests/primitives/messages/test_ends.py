"""Ends from outside: deadlines, the end of a scope, and what the holder of a delivery is told then."""

import pytest

from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import cancel, mailbox, nothing, redrive, row, sent, submitted, taken, task

HOW = [
    ("cancel", "SCOPE_CANCELLED", "CANCELLED"),
    ("complete", "SCOPE_CANCELLED", "CANCELLED"),
    (None, "DEADLINE_EXCEEDED", "EXPIRED"),
]


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


class Ending:
    """A chain of a run and a child whose one scope is going to end."""

    def __init__(self, api, clock, how, *, at):
        self._api, self._clock, self._how = api, clock, how
        soon = {"deadline": in_seconds(api, 60)} if how is None else {}
        self.root = scope(api, **(soon if at == "root" else {}))
        self.child = scope(api, parentId=self.root, **(soon if at == "child" else {}))
        self._ends = self.root if at == "root" else self.child

    def end(self):
        if self._how is None:
            self._clock.shift(61)
        else:
            ok(end(self._ends, self._how).send(self._api))


@pytest.mark.parametrize(("how", "code", "state"), HOW)
def test_after_the_end_of_the_run_all_calls_are_refused_with_its_code(api, clock, how, code, state):
    ending = Ending(api, clock, how, at="root")
    box = mailbox(api, ending.child)
    dead = sent(api, box)
    ok(taken(api, box.recv()).nack(retry=False).send(api))
    waiting, running = sent(api, box, 1, priority=-1), sent(api, box, 2)
    held = taken(api, box.recv(lease_s=3600))
    ending.end()
    for call in (box.send(), box.submit(), box.recv(waitMs=30_000), box.admit(), box.recv_below()):
        assert ending.child in refused(call.send(api), code)
    for call in (held.renew(), held.complete(), held.nack(), held.nack(handBack=True)):
        refused(call.send(api), code)
    refused(redrive(dead).send(api), code)
    assert {row(api, box, m)["state"] for m in (waiting, running)} == {state}
    assert row(api, box, dead)["state"] == "DEAD"


@pytest.mark.parametrize(("how", "code", "state"), HOW)
def test_a_delivery_ended_by_the_end_of_a_scope_below_its_root_is_stale(api, clock, how, code, state):
    """Clients take the scope codes on a message to mean that their whole run is over."""
    ending = Ending(api, clock, how, at="child")
    box = mailbox(api, ending.child)
    message = sent(api, box)
    held = taken(api, box.recv(lease_s=3600))
    ending.end()
    for call in (held.renew(), held.complete(), held.nack()):
        refused(call.send(api), "STALE_CLAIM")
    for call in (box.send(), box.submit(), box.recv(), box.admit()):
        refused(call.send(api), code)
    seen = row(api, box, message)
    assert (seen["state"], seen["holder"]) == (state, None)
    nothing(api, box.within(ending.root).recv_below())


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("cancel", "CANCELLED", "scope_cancelled"),
        ("complete", "CANCELLED", "scope_completed"),
        (None, "EXPIRED", "deadline"),
    ],
)
@pytest.mark.parametrize("at", ["root", "child"])
def test_tasks_of_an_ended_scope_tell_its_reason(api, clock, how, state, reason, at):
    ending = Ending(api, clock, how, at=at)
    box = mailbox(api, ending.child)
    tasks = [submitted(api, box, key) for key in ("queued", "running", "succeeded", "failed")]
    deliveries = {held.id: held for held in [taken(api, box.admit(lease_s=3600)) for _ in tasks]}
    ok(deliveries[tasks[0]].nack(handBack=True).send(api))
    ok(deliveries[tasks[2]].complete("kept").send(api))
    ok(deliveries[tasks[3]].nack(retry=False, error="kept").send(api))
    ending.end()
    seen = [task(api, t) for t in tasks]
    told = [(s["state"], s["outcomeReason"]) for s in seen]
    assert told == [(state, reason)] * 2 + [("SUCCEEDED", None), ("FAILED", "handler_error: kept")]
    assert seen[2]["outcome"] == "kept"


def test_an_end_writes_one_event_for_each_task_that_it_ends(api, space, database_url, box):
    child = box.within(scope(api, parentId=box.scope))
    tasks = [submitted(api, child, str(i)) for i in range(3)]
    taken(api, child.admit())
    ok(end(box.scope).send(api))
    told = [e.aggregate for e in events(database_url, space.id, "task.cancelled")]
    assert sorted(told) == sorted(tasks)


def test_a_deadline_that_passes_expires_what_waits(api, box, clock):
    message = sent(api, box, 1, deadline=in_seconds(api, 60))
    clock.shift(61)
    assert row(api, box, message)["state"] == "EXPIRED"
    nothing(api, box.recv())
    assert row(api, box, message)["state"] == "EXPIRED"


def test_a_deadline_that_passes_expires_what_runs_and_its_holder_is_stale(api, box, clock):
    message = sent(api, box, deadline=in_seconds(api, 60))
    held = taken(api, box.recv(lease_s=3600))
    clock.shift(61)
    for call in (held.renew(), held.complete(), held.nack()):
        assert "deadline" in refused(call.send(api), "STALE_CLAIM")
    assert row(api, box, message)["state"] == "EXPIRED"
    nothing(api, box.recv())


def test_the_holder_is_told_which_end_it_was(api, box):
    submitted(api, box)
    held = taken(api, box.admit())
    ok(cancel(held.id, reason="not needed").send(api))
    assert "not needed" in refused(held.complete().send(api), "STALE_CLAIM")


def test_a_deadline_in_the_past_expires_at_once(api, box):
    message = sent(api, box, deadline="2001-01-01T00:00:00Z")
    assert row(api, box, message)["state"] == "EXPIRED"
    nothing(api, box.recv())


def test_a_deadline_during_a_delay_expires_the_message_unseen(api, box, clock):
    message = sent(api, box, delaySeconds=600, deadline=in_seconds(api, 60))
    clock.shift(601)
    nothing(api, box.recv())
    assert row(api, box, message)["state"] == "EXPIRED"


def test_a_sweep_writes_deadlines_and_lapses_that_nobody_noticed(api, space, database_url, clock):
    box = mailbox(api, scope(api), maxAttempts=1)
    sent(api, box, deadline=in_seconds(api, 60), delaySeconds=600)
    sent(api, box)
    lapsing = taken(api, box.recv(lease_s=60))
    expiring = submitted(api, box, deadline=in_seconds(api, 60))
    taken(api, box.admit(lease_s=3600))
    clock.shift(61)
    from tests.support import races

    def told():
        found = events(database_url, space.id, "message.expired", "message.dead", "task.expired")
        return found if len(found) == 3 else None

    found = races.until_blocking(told, what="three ends")
    by_type = {e.type: e for e in found}
    assert by_type["message.dead"].aggregate == lapsing.id
    assert by_type["task.expired"].aggregate == expiring
    assert by_type["task.expired"].payload["deadline"]


def test_the_deadline_is_shown_as_it_was_given_whatever_the_scope_s(api):
    deadline = "2997-01-01T00:00:00.000Z"
    for scopes in ("2996-01-01T00:00:00Z", "2998-01-01T00:00:00Z"):
        box = mailbox(api, scope(api, deadline=scopes), f"box {scopes}")
        sent(api, box, deadline=deadline)
        assert ok(box.recv().send(api))["message"]["deadline"] == deadline


def test_a_large_run_ends_at_once_and_is_tidied_by_the_sweeps(api, space, database_url, box):
    from tests.support import database, races
    from tests.support.queues import batch

    many = 1_200
    for start in range(0, many, 400):
        ok(batch([box.task(str(i), input=i) for i in range(start, start + 400)]).send(api))
    some = ok(box.admit(max=50, lease_s=3600).send(api))["admitted"]
    ok(end(box.scope).send(api))
    listed = ok(api.get("/tasks", params={"limit": 500, "state": "CANCELLED"}))["tasks"]
    assert len(listed) == 500
    body = {"token": some[0]["token"]}
    refused(api.post(f"/messages/{some[0]['messageId']}/complete", json=body), "SCOPE_CANCELLED")

    def left():
        sql = "SELECT (SELECT count(*) FROM runstate.{} WHERE space_id = $1)"
        tables = ("queue_ready", "queue_leased", "queue_lanes", "scope_tidies")
        return [database.fetchval(database_url, sql.format(t), space.id) for t in tables]

    races.until_blocking(lambda: left() == [0, 0, 0, 0], what="tidying")
    assert len(events(database_url, space.id, "task.cancelled")) == many


def test_ten_thousand_ineligible_messages_do_not_hide_one_that_can_be_delivered(
    api, space, database_url, kernel_schema, box
):
    """Delayed ones, those of other scopes, and those whose deadline has passed, all before it."""
    from tests.support import database

    sibling = scope(api, parentId=box.scope)
    fill = f"""
    SELECT count(*) FROM generate_series(1, $4) i, LATERAL {kernel_schema}.message_send('{space.id}',
      gen_random_uuid(), '{box.id}', $1::text::uuid, '0', NULL, $2::text::timestamptz, 100, $3, NULL, NULL) r
    """
    database.fetch(database_url, fill, box.scope, None, 600.0, 4_000)
    database.fetch(database_url, fill, sibling, None, 0.0, 4_000)
    database.fetch(database_url, fill, box.scope, "2001-01-01T00:00:00Z", 0.0, 2_000)
    message = sent(api, box, "found", priority=-100)
    assert taken(api, box.recv()).id == message
