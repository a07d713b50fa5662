"""The wire of scopes and runs: statuses, exact members, what goes in and comes out."""

import re

import pytest

from tests.support.builders import contents, end, ok, refused, scope

MEMBERS = {
    "id",
    "name",
    "parentId",
    "rootId",
    "depth",
    "storedState",
    "effective",
    "deadline",
    "childLimit",
    "version",
    "createdAt",
    "endedAt",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_a_root_is_made_of_nothing(api):
    for request in ({"json": {}}, {}, {"content": b" \n"}):
        made = ok(api.post("/scopes", **request), 201)
        assert made.keys() == MEMBERS
        assert made == made | {
            "name": None,
            "parentId": None,
            "rootId": made["id"],
            "depth": 0,
            "storedState": "ACTIVE",
            "effective": "ACTIVE",
            "deadline": None,
            "childLimit": 1000,
            "version": 1,
            "endedAt": None,
        }
        assert INSTANT.fullmatch(made["createdAt"])
        assert ok(api.get(f"/scopes/{made['id']}")) == made


def test_a_child_says_where_it_stands(api):
    root = scope(api)
    child = scope(api, parentId=root)
    asked = {
        "name": "batch 7",
        "parentId": child,
        "deadline": "2999-01-02T03:04:05.6789Z",
        "childLimit": 10_000,
    }
    made = ok(api.post("/scopes", json=asked), 201)
    assert made == made | {
        "name": "batch 7",
        "parentId": child,
        "rootId": root,
        "depth": 2,
        "deadline": "2999-01-02T03:04:05.678Z",
        "childLimit": 10_000,
    }


def test_a_run_s_view_is_a_scope_s_and_its_status_is_200(api):
    run = ok(api.put("/runs/default", json={}), 200)
    assert run.keys() == MEMBERS
    assert run == run | {
        "name": "default",
        "parentId": None,
        "rootId": run["id"],
        "depth": 0,
        "childLimit": 1000,
    }
    assert ok(api.get(f"/scopes/{run['id']}")) == run


def test_an_end_answers_id_state_and_version(api):
    for how, state in (("cancel", "CANCELLED"), ("complete", "COMPLETED")):
        root = scope(api)
        answer = ok(end(root, how).send(api))
        assert answer == {"id": root, "state": state, "version": 2, "ended": contents()}
        ended = ok(api.get(f"/scopes/{root}"))
        assert (ended["storedState"], ended["effective"], ended["version"]) == (state, state, 2)
        assert INSTANT.fullmatch(ended["endedAt"])


def test_an_end_takes_an_empty_body_and_an_empty_object_alike(api):
    for request in ({}, {"json": {}}, {"content": b""}):
        ok(api.post(f"/scopes/{scope(api)}/cancel", **request))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2999-01-01T00:00:00Z", "2999-01-01T00:00:00.000Z"),
        ("2999-01-01t00:00:00z", "2999-01-01T00:00:00.000Z"),
        ("2999-01-01 00:00:00Z", "2999-01-01T00:00:00.000Z"),
        ("2999-01-01T00:00:00+05:30", "2998-12-31T18:30:00.000Z"),
        ("2999-01-01T00:00:00-00:00", "2999-01-01T00:00:00.000Z"),
        ("2999-01-01T00:00:00.1Z", "2999-01-01T00:00:00.100Z"),
        ("2999-01-01T00:00:00.123456789012Z", "2999-01-01T00:00:00.123Z"),
        ("2999-12-31T23:59:60Z", None),  # a leap second is an instant, however it is shown
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.001Z"),  # Go's zero time: long past, and still a time
    ],
)
def test_a_deadline_may_have_any_offset_and_precision(api, given, shown):
    made = ok(api.post("/scopes", json={"deadline": given}), 201)
    assert shown is None or made["deadline"] == shown


@pytest.mark.parametrize(
    "given",
    [
        "2999-01-01T00:00:00",
        "2999-01-01",
        "tomorrow",
        "",
        "2999-02-30T00:00:00Z",
        "2999-01-01T24:00:00Z",
        "2999-01-01T00:00:00+25:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "٢٩٩٩-01-01T00:00:00Z",
        "2999-01-01T00:00:00Z\n",
        32_472_144_000,
        True,
    ],
)
def test_what_is_no_instant_is_refused_by_name(api, given):
    assert "'deadline'" in refused(api.post("/scopes", json={"deadline": given}), "VALIDATION_FAILED")
    assert "'deadline'" in refused(api.put("/runs/r", json={"deadline": given}), "VALIDATION_FAILED")


def test_a_name_may_hold_any_character_but_nul(api):
    for name in ("x" * 256, "\U0001f600" * 256, "a/b", " ", "\n", "%2F", "e\u0301"):
        assert ok(api.post("/scopes", json={"name": name}), 201)["name"] == name


def test_an_unknown_scope_is_not_found_by_every_call(api):
    for scope_id in ("0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47", "nonsense", "%00", "%FF", "..%2F..", "é"):
        for response in (
            api.get(f"/scopes/{scope_id}"),
            end(scope_id).send(api),
            end(scope_id, "complete").send(api),
        ):
            refused(response, "NOT_FOUND")
    refused(api.post("/scopes", json={"parentId": "nonsense"}), "NOT_FOUND")
    refused(api.get("/scopes", params={"parentId": "nonsense"}), "NOT_FOUND")
    refused(api.get("/scopes", params={"parentId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"}), "NOT_FOUND")
