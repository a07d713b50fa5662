"""ACTIVE → CANCELLED | COMPLETED | EXPIRED, for good, and for the whole subtree at once."""

import pytest

from tests.support.builders import Once, contents, end, held, in_seconds, ok, refused, scope
from tests.support.journal import events

ENDS = {"cancel": "CANCELLED", "complete": "COMPLETED"}


def view(api, scope_id):
    return ok(api.get(f"/scopes/{scope_id}"))


def states(api, *scopes):
    return [(seen["storedState"], seen["effective"]) for seen in (view(api, s) for s in scopes)]


@pytest.mark.parametrize("how", ENDS)
def test_an_end_is_the_end_of_the_subtree_at_once(api, how):
    root = scope(api)
    child, sibling = scope(api, parentId=root), scope(api, parentId=root)
    below = scope(api, parentId=child)
    answer = ok(end(child, how).send(api))
    assert answer == {"id": child, "state": ENDS[how], "version": 2, "ended": contents(scopes=2)}
    ended = (ENDS[how], ENDS[how])
    assert states(api, root, child, sibling, below) == [
        ("ACTIVE", "ACTIVE"),
        ended,
        ("ACTIVE", "ACTIVE"),
        ("ACTIVE", ENDS[how]),
    ]
    assert view(api, child)["endedAt"] is not None
    assert view(api, below)["endedAt"] is None
    refused(api.post("/scopes", json={"parentId": below}), "SCOPE_CANCELLED")


@pytest.mark.parametrize("how", ENDS)
def test_repeating_an_end_is_a_no_op_and_the_other_end_a_conflict(api, space, database_url, how):
    root = scope(api)
    first = ok(end(root, how).send(api))
    assert ok(end(root, how).send(api)) == first
    other = "complete" if how == "cancel" else "cancel"
    assert ENDS[how] in refused(end(root, other).send(api), "CONFLICT")
    assert view(api, root)["version"] == first["version"] == 2
    types = [event.type for event in events(database_url, space.id)]
    assert types.count(f"scope.{ENDS[how].lower()}") == 1


def test_a_scope_below_an_ended_one_has_ended_the_same_way(api):
    root = scope(api)
    child = scope(api, parentId=root)
    ok(end(root).send(api))
    assert ok(end(child).send(api)) == {"id": child, "state": "CANCELLED", "version": 1}
    assert "CANCELLED" in refused(end(child, "complete").send(api), "CONFLICT")


def test_what_ended_first_stays_as_it_ended(api):
    root = scope(api)
    child = scope(api, parentId=root)
    ok(end(child, "complete").send(api))
    ok(end(root, "cancel").send(api))
    assert states(api, root, child) == [("CANCELLED", "CANCELLED"), ("COMPLETED", "COMPLETED")]


def test_a_deadline_ends_the_subtree_before_anybody_wrote_it(api, clock):
    root = scope(api, deadline=in_seconds(api, 3600))
    child = scope(api, parentId=root)
    assert states(api, root, child) == [("ACTIVE", "ACTIVE")] * 2
    clock.shift(3601)
    assert [effective for _, effective in states(api, root, child)] == ["EXPIRED"] * 2
    for call in (end(root), end(root, "complete"), end(child)):
        assert "EXPIRED" in refused(call.send(api), "CONFLICT")
    refused(api.post("/scopes", json={"parentId": child}), "DEADLINE_EXCEEDED")


def test_the_earliest_deadline_of_the_chain_counts(api, clock):
    root = scope(api, deadline=in_seconds(api, 600))
    later = scope(api, parentId=root, deadline=in_seconds(api, 3600))
    sooner = scope(api, parentId=root, deadline=in_seconds(api, 60))
    clock.shift(120)
    effective = [view(api, s)["effective"] for s in (root, later, sooner)]
    assert effective == ["ACTIVE", "ACTIVE", "EXPIRED"]
    clock.shift(600)
    assert view(api, later)["effective"] == "EXPIRED"


def test_a_deadline_in_the_past_makes_a_scope_that_has_expired(api):
    root = scope(api, deadline="2001-02-03T04:05:06Z")
    assert view(api, root)["effective"] == "EXPIRED"
    refused(api.post("/scopes", json={"parentId": root}), "DEADLINE_EXCEEDED")


def test_an_expiry_is_told_once_whoever_comes_first(api, space, database_url, clock):
    root = scope(api, deadline=in_seconds(api, 60))
    keys = [Once(root, f"k{i}") for i in range(3)]
    tokens = [held(api, key, lease_s=3600) for key in keys]
    clock.shift(61)
    for key, token in zip(keys, tokens, strict=True):
        for call in (key.acquire(), key.renew(token), key.complete(token), key.fail(token)):
            refused(call.send(api), "DEADLINE_EXCEEDED")
    refused(end(root).send(api), "CONFLICT")
    told = events(database_url, space.id, "scope.expired")
    assert [event.aggregate for event in told] == [root]
    assert states(api, root) == [("EXPIRED", "EXPIRED")]
    assert view(api, root)["endedAt"] is not None


def test_an_expiry_nobody_noticed_is_told_before_a_later_end_of_the_run(api, space, database_url, clock):
    root = scope(api)
    child = scope(api, parentId=root, deadline=in_seconds(api, 60))
    clock.shift(61)
    ok(end(root).send(api))
    told = events(database_url, space.id, "scope.expired", "scope.cancelled")
    assert [(event.type, event.aggregate) for event in told] == [
        ("scope.expired", child),
        ("scope.cancelled", root),
    ]
    assert states(api, root, child) == [("CANCELLED", "CANCELLED"), ("EXPIRED", "EXPIRED")]


def test_nobody_can_create_in_a_scope_that_has_ended(api):
    root = scope(api)
    ok(end(root, "complete").send(api))
    assert root in refused(api.post("/scopes", json={"parentId": root}), "SCOPE_CANCELLED")


def test_a_tree_is_32_deep_below_its_root_and_no_deeper(api):
    parent = scope(api)
    for depth in range(1, 33):
        parent = scope(api, parentId=parent)
        assert view(api, parent)["depth"] == depth
    assert "32" in refused(api.post("/scopes", json={"parentId": parent}), "CONFLICT")
    assert ok(end(view(api, parent)["rootId"]).send(api))["state"] == "CANCELLED"
    assert view(api, parent)["effective"] == "CANCELLED"


def test_a_child_limit_counts_children_ever_created(api):
    root = scope(api, childLimit=2)
    first = scope(api, parentId=root)
    ok(end(first).send(api))
    second = scope(api, parentId=root)
    assert "2" in refused(api.post("/scopes", json={"parentId": root}), "CONFLICT")
    scope(api, parentId=second)  # a child's children are its own


def test_every_change_of_a_scope_is_one_event(api, space, database_url):
    root = scope(api, name="nightly")
    child = scope(api, parentId=root, deadline="2999-01-01T00:00:00+01:00")
    ok(end(child, "complete").send(api))
    ok(end(root).send(api))
    told = [e for e in events(database_url, space.id) if e.type.startswith("scope.")]
    assert [(e.type, e.aggregate, e.scope_id) for e in told] == [
        ("scope.created", root, root),
        ("scope.created", child, child),
        ("scope.completed", child, child),
        ("scope.cancelled", root, root),
    ]
    assert told[0].payload == {"name": "nightly", "parentId": None, "deadline": None}
    assert told[1].payload["deadline"] == "2998-12-31T23:00:00.000Z"
