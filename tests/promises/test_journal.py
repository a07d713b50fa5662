"""Every state change is one event in its own transaction; payloads hold names and numbers, never secrets."""

import pytest

from tests.promises.table import MUTATIONS
from tests.support.builders import Once, end, held, ok, scope
from tests.support.journal import events

TYPES = {
    "scope.created",
    "scope.cancelled",
    "scope.completed",
    "scope.expired",
    "once.acquired",
    "once.completed",
    "once.failed",
    "once.lapsed",
    "claim.acquired",
    "claim.released",
    "claim.lapsed",
    "message.sent",
    "message.delivered",
    "message.acked",
    "message.retried",
    "message.dead",
    "message.lapsed",
    "message.expired",
    "task.submitted",
    "task.started",
    "task.succeeded",
    "task.failed",
    "task.cancelled",
    "task.expired",
    "task.retried",
    "resource.created",
    "resource.updated",
    "key.created",
}
# A renewal is no event: it would bind the journal for nothing. Who waits for a task is no state of it.
QUIET = {
    "POST /once/renew",
    "POST /claims/{key}/renew",
    "POST /messages/{id}/renew",
    "POST /tasks/{id}/join",
    "POST /tasks/{id}/detach",
}


@pytest.mark.parametrize("row", MUTATIONS, ids=str)
def test_a_change_is_one_event_and_a_refusal_none(api, space, database_url, row):
    call = row.changes(api)
    before = len(events(database_url, space.id))
    assert call.send(api).is_success
    told = events(database_url, space.id)[before:]
    assert len(told) == (0 if row.name in QUIET else 1)
    assert {event.type for event in told} <= TYPES
    for make in (row.refused, row.idle):
        if make is not None:
            call = make(api)
            before = len(events(database_url, space.id))
            call.send(api)
            assert len(events(database_url, space.id)) == before


def test_an_event_says_what_happened_where_and_to_what(api, space, database_url):
    root = scope(api)
    child = scope(api, parentId=root)
    once = Once(child, "k")
    ok(once.fail(held(api, once, holder="ann"), "secret words", 2).send(api))
    token = held(api, once, holder="bob")
    ok(once.complete(token, {"secret": "result"}).send(api))
    told = [e for e in events(database_url, space.id) if e.type.startswith("once.")]
    assert [(e.type, e.aggregate, e.scope_id) for e in told] == [
        ("once.acquired", "k", child),
        ("once.failed", "k", child),
        ("once.acquired", "k", child),
        ("once.completed", "k", child),
    ]
    assert told[1].payload == {"key": "k", "holder": "ann", "attempts": 1, "state": "OPEN"}
    assert told[3].payload == {"key": "k", "holder": "bob", "attempts": 1}
    assert not [e for e in told if "secret" in e.text or token in e.text]


def test_a_takeover_tells_of_the_lapse_before_the_new_owner(api, space, database_url, clock):
    once = Once(scope(api), "k")
    held(api, once, holder="dead", lease_s=60)
    clock.shift(61)
    held(api, once, holder="heir")
    told = [(e.type, e.payload["holder"]) for e in events(database_url, space.id) if e.aggregate == "k"]
    assert told == [("once.acquired", "dead"), ("once.lapsed", "dead"), ("once.acquired", "heir")]


def test_an_end_tells_of_the_leases_it_ended_before_itself(api, space, database_url):
    root = scope(api)
    held(api, Once(root, "k"), holder="ann")
    ok(end(root, "complete").send(api))
    told = events(database_url, space.id)[-2:]
    assert [(e.type, e.payload.get("reason")) for e in told] == [
        ("once.lapsed", "scope_completed"),
        ("scope.completed", None),
    ]


def test_numbers_are_1_to_n_in_every_space(api, space, database_url):
    for _ in range(20):
        scope(api)
    assert [e.num for e in events(database_url, space.id)] == list(range(1, 22))
