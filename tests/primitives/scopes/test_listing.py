"""GET /scopes: roots or children, newest first, filtered, page by page."""

import base64
import json

import pytest

from tests.support.builders import end, in_seconds, ok, refused, scope


def listed(api, **query):
    return [seen["id"] for seen in ok(api.get("/scopes", params=query))["scopes"]]


def test_nothing_is_an_empty_list(api):
    assert ok(api.get("/scopes")) == {"scopes": [], "nextCursor": None}
    assert ok(api.get("/scopes", params={"parentId": scope(api)})) == {"scopes": [], "nextCursor": None}


def test_roots_are_listed_newest_first_as_their_views(api):
    made = [ok(api.post("/scopes", json={"name": f"n{i}"}), 201) for i in range(3)]
    made.append(ok(api.put("/runs/default", json={})))
    scope(api, parentId=made[0]["id"])
    assert ok(api.get("/scopes"))["scopes"] == made[::-1]


def test_children_are_listed_by_their_parent_alone(api):
    root = scope(api)
    children = [scope(api, parentId=root) for _ in range(3)]
    scope(api, parentId=children[0])
    assert listed(api, parentId=root) == children[::-1]
    assert len(listed(api, parentId=children[0])) == 1


def test_a_name_filters_byte_for_byte(api):
    wanted = [scope(api, name="nightly") for _ in range(2)]
    for name in ("Nightly", "nightly ", "night", "nightlý"):
        scope(api, name=name)
    scope(api)
    assert listed(api, name="nightly") == wanted[::-1]
    assert listed(api, name="nothing") == []


def test_a_state_filters_by_what_is_true_now(api, clock):
    active, cancelled, completed = scope(api), scope(api), scope(api)
    expired = scope(api, deadline=in_seconds(api, 60))
    ok(end(cancelled).send(api))
    ok(end(completed, "complete").send(api))
    clock.shift(61)
    assert active in listed(api, state="ACTIVE")
    assert expired not in listed(api, state="ACTIVE")
    assert listed(api, state="EXPIRED") == [expired]
    assert listed(api, state="CANCELLED") == [cancelled]
    assert listed(api, state="COMPLETED") == [completed]


def test_children_of_an_ended_parent_are_found_by_their_effective_state(api):
    root = scope(api)
    child = scope(api, parentId=root)
    ok(end(root).send(api))
    assert listed(api, parentId=root, state="CANCELLED") == [child]
    assert listed(api, parentId=root, state="ACTIVE") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_follow_each_other_without_gap_or_repeat(api, limit):
    made = [scope(api, name="page") for _ in range(7)]
    found, cursor = [], None
    while True:
        query = {"limit": limit, "name": "page"} | ({"cursor": cursor} if cursor else {})
        page = ok(api.get("/scopes", params=query))
        assert len(page["scopes"]) <= limit
        found += [seen["id"] for seen in page["scopes"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
        assert len(page["scopes"]) == limit
        scope(api, name="page")  # newer than the cursor: never seen by this reader
    assert found == made[::-1]


def test_a_page_is_at_most_500_and_100_unless_said(api):
    for _ in range(101):
        scope(api)
    assert len(listed(api)) == 100
    assert len(listed(api, limit=500)) == 101
    for limit in ("0", "501", "-1", "1.0", "x", "", "1e2", "１"):
        assert "'limit'" in refused(api.get("/scopes", params={"limit": limit}), "VALIDATION_FAILED")


def encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "%00",
        "a" * 600,
        encoded({}),
        encoded([]),
        encoded([1, 2]),
        encoded(["2026-01-01T00:00:00+00:00", 5]),
        encoded(["2026-01-01T00:00:00", "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"]),
        encoded(["0001-01-01T00:00:00+23:59", "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"]),
        encoded(["9999-12-31T23:59:59-23:59", "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"]),
        base64.urlsafe_b64encode(b"[" * 380).decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
    ids=lambda cursor: cursor[:12],
)
def test_a_cursor_that_this_server_did_not_make_is_refused(api, cursor):
    assert "cursor" in refused(api.get("/scopes", params={"cursor": cursor}), "VALIDATION_FAILED")


def test_an_unknown_state_or_parameter_is_refused_by_name(api):
    assert "'state'" in refused(api.get("/scopes", params={"state": "DONE"}), "VALIDATION_FAILED")
    assert "'order'" in refused(api.get("/scopes", params={"order": "name"}), "VALIDATION_FAILED")
