"""Spaces and keys as the operator makes, changes and ends them over HTTP."""

import hashlib
import secrets

import pytest

from tests.support import database, races
from tests.support.builders import ok, refused
from tests.support.journal import events
from tests.support.spaces import Space

TRUST_S = 5.0  # within which a replica hears of a change: what the API promises
KEY_FIELDS = {"id", "label", "permissions", "spaces", "createdAt", "expiresAt", "lastUsedAt", "revokedAt"}
UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"


@pytest.fixture
def key(operator, fresh):
    """A key of the fresh space: what its making answered."""
    return ok(operator.create_key(fresh, "runtime", "observe"), 201)


def until(client, code):
    """Wait, as long as is promised, until the client's calls are refused so, or answered (None)."""

    def now():
        response = client.get("/scopes")
        return (response.json().get("error") or {}).get("code") == code

    races.until_blocking(now, patience_s=TRUST_S, what=f"{code} on every replica")


def test_a_space_is_made_and_shown(operator):
    space_id = f"Acme_{secrets.token_hex(4)}.eu-1"
    made = ok(operator.create(id=space_id, name="Acme, Europe", limits={"resources": 3}), 201)
    created_at = made.pop("createdAt")
    assert made == {"id": space_id, "name": "Acme, Europe", "suspended": False, "limits": {"resources": 3}}
    [shown] = [s for s in every(operator.spaces, "spaces") if s["id"] == space_id]
    assert shown == made | {"createdAt": created_at}


def every(listing, name, *place):
    """All rows of a paged listing, two at a time."""
    cursor, rows = {}, []
    while True:
        page = ok(listing(*place, limit=2, **cursor))
        rows += page[name]
        if page["nextCursor"] is None:
            return rows
        cursor = {"cursor": page["nextCursor"]}


def test_an_id_is_made_up_for_a_space_that_is_given_none(operator):
    made = [ok(operator.create(), 201) for _ in range(2)]
    assert made[0]["id"] != made[1]["id"]
    assert made[0]["limits"] == {}
    key = ok(operator.create_key(made[0]["id"]), 201)
    assert key["spaces"] == [made[0]["id"]]


def test_an_id_that_exists_is_a_conflict_and_nothing_changes(operator, fresh):
    before = [s for s in every(operator.spaces, "spaces") if s["id"] == fresh]
    assert fresh in refused(operator.create(id=fresh, name="Other", limits={"resources": 1}), "CONFLICT")
    assert [s for s in every(operator.spaces, "spaces") if s["id"] == fresh] == before


def test_limits_are_replaced_as_a_whole_and_an_empty_object_lifts_them(operator, fresh):
    limits = {
        "requestsPerMinute": 600,
        "activeLeases": 0,
        "resources": 10,
        "operationsPerMonth": 1_000_000_000_000,
    }
    assert ok(operator.change(fresh, limits=limits))["limits"] == limits
    assert ok(operator.change(fresh, suspended=False))["limits"] == limits
    assert ok(operator.change(fresh))["limits"] == limits
    assert ok(operator.change(fresh, limits=None))["limits"] == limits
    assert ok(operator.change(fresh, limits={"resources": 5}))["limits"] == {"resources": 5}
    assert ok(operator.change(fresh, limits={}))["limits"] == {}


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("", {}, "'name' is required"),
        ("", {"name": ""}, "name"),
        ("", {"name": "x" * 257}, "name"),
        ("", {"name": "n", "id": ""}, "id"),
        ("", {"name": "n", "id": "a b"}, "id"),
        ("", {"name": "n", "id": "x" * 65}, "id"),
        ("", {"name": "n", "id": "ä"}, "id"),
        ("", {"name": "n", "surprise": 1}, "unknown field 'surprise'"),
        ("", {"name": "n", "limits": {"surprise": 1}}, "surprise"),
        ("", {"name": "n", "limits": {"resources": -1}}, "resources"),
        ("", {"name": "n", "limits": {"resources": 1.0}}, "resources"),
        ("", {"name": "n", "limits": {"resources": True}}, "resources"),
        ("", {"name": "n", "limits": []}, "limits"),
        ("/{}", {"suspended": 1}, "suspended"),
        ("/{}", {"suspended": "true"}, "suspended"),
        ("/{}", {"name": "other"}, "unknown field 'name'"),
        ("/{}/keys", {"permissions": ["runtime"]}, "'label' is required"),
        ("/{}/keys", {"label": "l"}, "'permissions' is required"),
        ("/{}/keys", {"label": "l", "permissions": []}, "permissions"),
        ("/{}/keys", {"label": "l", "permissions": ["root"]}, "permissions"),
        ("/{}/keys", {"label": "l", "permissions": "runtime"}, "permissions"),
        ("/{}/keys", {"label": "l", "permissions": ["runtime"], "expiresAt": "2999-01-01"}, "expiresAt"),
        ("/{}/keys", {"label": "l", "permissions": ["runtime"], "alsoSpaces": ["a b"]}, "alsoSpaces"),
        ("/{}/keys", {"label": "l", "permissions": ["runtime"], "key": "mine"}, "unknown field 'key'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(operator, fresh, path, body, says):
    method = "PATCH" if path == "/{}" else "POST"
    response = operator.client.request(method, f"/spaces{path.format(fresh)}", json=body)
    assert says in refused(response, "VALIDATION_FAILED")


@pytest.mark.parametrize("space_id", ["nowhere", "a%20b", "%00", "x" * 65, "%2E%2E"])
def test_a_space_that_does_not_exist_is_not_found(operator, space_id):
    refused(operator.change(space_id, suspended=True), "NOT_FOUND")
    refused(operator.create_key(space_id), "NOT_FOUND")
    refused(operator.keys(space_id), "NOT_FOUND")
    refused(operator.revoke(space_id, UNKNOWN), "NOT_FOUND")


def test_a_suspended_space_refuses_every_call_of_its_keys_everywhere_and_is_served_again(
    operator, server, second_server, fresh, key
):
    space = Space(fresh, key["key"])
    with space.client(server.url) as one, space.client(second_server.url) as two:
        for client in (one, two):
            ok(client.get("/scopes"))
        assert ok(operator.change(fresh, suspended=True))["suspended"] is True
        for client in (one, two):
            until(client, "SPACE_SUSPENDED")
            refused(client.post("/scopes"), "SPACE_SUSPENDED")
        ok(operator.keys(fresh))  # the operator is no key of it
        assert ok(operator.change(fresh, suspended=False))["suspended"] is False
        for client in (one, two):
            until(client, None)


def test_a_key_is_shown_once_and_only_its_hash_is_stored(operator, server, fresh, database_url):
    made = ok(operator.create_key(fresh, "runtime", "observe", label="nightly"), 201)
    key = made.pop("key")
    assert made.keys() == KEY_FIELDS
    assert (made["label"], made["permissions"], made["spaces"]) == (
        "nightly",
        ["observe", "runtime"],
        [fresh],
    )
    assert made["expiresAt"] is made["lastUsedAt"] is made["revokedAt"] is None
    shown = operator.keys(fresh)
    assert ok(shown) == {"keys": [made], "nextCursor": None}
    stored = "SELECT hash, k::text AS row FROM runstate.api_keys k WHERE space_id = $1"
    [row] = database.fetch(database_url, stored, fresh)
    assert row["hash"] == hashlib.sha256(key.encode()).digest()
    told = events(database_url, fresh)
    assert [(e.type, e.payload["label"]) for e in told] == [("key.created", "nightly")]
    kept = "SELECT count(*) FROM runstate.idempotency i WHERE i::text LIKE '%' || $1 || '%'"
    assert database.fetchval(database_url, kept, key) == 0
    for text in (shown.text, row["row"], server.log(), *(e.text for e in told)):
        assert key not in text


def test_two_keys_are_never_alike(operator, fresh):
    made = [ok(operator.create_key(fresh), 201) for _ in range(10)]
    assert len({m["key"] for m in made}) == len({m["id"] for m in made}) == 10
    assert min(len(m["key"]) for m in made) >= 32
    assert [k["id"] for k in every(operator.keys, "keys", fresh)] == [m["id"] for m in made]


def test_a_key_does_what_its_permissions_say_and_no_more(operator, server, fresh):
    made = ok(operator.create_key(fresh, "observe", "observe"), 201)
    assert made["permissions"] == ["observe"]
    with Space(fresh, made["key"]).client(server.url) as client:
        ok(client.get("/scopes"))
        assert "'runtime'" in refused(client.post("/scopes"), "FORBIDDEN")


def test_the_use_of_a_key_is_shown(operator, server, fresh, key):
    with Space(fresh, key["key"]).client(server.url) as client:
        ok(client.get("/scopes"))
    [shown] = ok(operator.keys(fresh))["keys"]
    assert shown["lastUsedAt"] >= shown["createdAt"]


def test_a_key_expires_when_it_was_said_to(operator, server, fresh):
    past, future = (
        ok(operator.create_key(fresh, "observe", expiresAt=at), 201)
        for at in ("2026-01-01T00:00:00+02:00", "2999-01-01T00:00:00.123456Z")
    )
    assert past["expiresAt"] == "2025-12-31T22:00:00.000Z"
    assert future["expiresAt"] == "2999-01-01T00:00:00.123Z"
    with Space(fresh, past["key"]).client(server.url) as client:
        refused(client.get("/scopes"), "UNAUTHENTICATED")
    with Space(fresh, future["key"]).client(server.url) as client:
        ok(client.get("/scopes"))


def test_a_key_covers_the_further_spaces_that_it_was_given_and_no_others(operator, server, fresh):
    second, third = (ok(operator.create(), 201)["id"] for _ in range(2))
    made = ok(operator.create_key(fresh, "observe", alsoSpaces=[second, second, fresh]), 201)
    assert made["spaces"] == sorted({fresh, second})
    for space_id in (fresh, second):
        with Space(space_id, made["key"]).client(server.url) as client:
            ok(client.get("/scopes"))
    with Space(third, made["key"]).client(server.url) as client:
        refused(client.get("/scopes"), "FORBIDDEN")
    assert "nowhere" in refused(operator.create_key(fresh, alsoSpaces=[second, "nowhere"]), "NOT_FOUND")
    assert len(ok(operator.keys(fresh))["keys"]) == 1


def test_a_revoked_key_is_refused_by_every_replica_within_5_s(
    operator, server, second_server, fresh, key, database_url
):
    space = Space(fresh, key["key"])
    with space.client(server.url) as one, space.client(second_server.url) as two:
        for client in (one, two):
            ok(client.get("/scopes"))
        revoked = ok(operator.revoke(fresh, key["id"]))
        assert revoked["revokedAt"] is not None
        for client in (one, two):
            until(client, "UNAUTHENTICATED")
    assert ok(operator.revoke(fresh, key["id"]))["revokedAt"] == revoked["revokedAt"]
    assert [k["revokedAt"] for k in ok(operator.keys(fresh))["keys"]] == [revoked["revokedAt"]]
    assert [e.type for e in events(database_url, fresh)] == ["key.created", "key.revoked"]


def test_a_key_of_another_space_or_of_none_is_not_found(operator, fresh, key):
    other = ok(operator.create(), 201)["id"]
    for space_id, key_id in ((other, key["id"]), (fresh, UNKNOWN), (fresh, "nonsense"), (fresh, "%00")):
        refused(operator.revoke(space_id, key_id), "NOT_FOUND")
    assert ok(operator.keys(fresh))["keys"][0]["revokedAt"] is None


def test_administration_takes_no_idempotency_key(operator):
    headers = {"Idempotency-Key": "k"}
    made = [operator.client.post("/spaces", json={"name": "n"}, headers=headers) for _ in range(2)]
    assert len({ok(response, 201)["id"] for response in made}) == 2
    assert not [response for response in made if "idempotent-replayed" in response.headers]


def test_unknown_paths_and_wrong_methods_of_administration_have_the_envelope(operator, fresh):
    refused(operator.client.get("/nowhere"), "NOT_FOUND")
    refused(operator.client.get("/spaces/"), "NOT_FOUND")
    refused(operator.client.get(f"/spaces/{fresh}"), "VALIDATION_FAILED", status=405)
    refused(operator.client.delete(f"/spaces/{fresh}"), "VALIDATION_FAILED", status=405)
    assert "'surprise'" in refused(operator.spaces(surprise=1), "VALIDATION_FAILED")
    refused(operator.spaces(cursor="x"), "VALIDATION_FAILED")
    refused(operator.spaces(limit=501), "VALIDATION_FAILED")
