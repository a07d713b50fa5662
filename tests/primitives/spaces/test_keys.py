"""Keys: only a hash is stored; a key opens its spaces; a revocation is heard within 5 s.

Permissions: tests/promises/test_permissions.py. How keys are made and revoked: test_admin.py."""

import hashlib
import secrets
import uuid

import pytest

from tests.support import database, races
from tests.support.builders import ok, refused, scope
from tests.support.journal import events
from tests.support.spaces import Space

TRUST_S = 5.0  # what the API promises
ALL = ["runtime", "observe", "resource_config", "space_admin"]


@pytest.fixture
def key_with(space, database_url):
    """Make a key of the space with these permissions; returns a Space whose clients use it."""

    def make(*permissions, **columns):
        key = f"rs_test_{secrets.token_hex(16)}"
        key_id = uuid.uuid4()
        names = ["space_id", "id", "label", "hash", "permissions", "created_at"]
        values = ["$1", "$2", "'limited'", "$3", "$4", "now()"]
        for name, sql in columns.items():
            names.append(name)
            values.append(sql)
        insert = f"INSERT INTO runstate.api_keys ({', '.join(names)}) VALUES ({', '.join(values)})"
        database.execute(database_url, insert, space.id, key_id, digest(key), list(permissions))
        covers = "INSERT INTO runstate.api_key_spaces (space_id, key_id) VALUES ($1, $2)"
        database.execute(database_url, covers, space.id, key_id)
        return Space(space.id, key)

    return make


def digest(key):
    return hashlib.sha256(key.encode()).digest()


def test_only_a_hash_of_a_key_is_stored(space, database_url):
    rows = database.fetch(
        database_url, "SELECT k::text AS row, hash FROM runstate.api_keys k WHERE space_id = $1", space.id
    )
    assert [row["hash"] for row in rows] == [digest(space.key)]
    assert space.key not in rows[0]["row"]


def test_the_making_of_a_key_is_told_without_the_key(api, space, database_url):
    scope(api)
    [told] = events(database_url, space.id, "key.created")
    assert told.payload == {"label": "test"}


def test_a_revoked_key_is_refused_by_every_replica_within_5_s(server, second_server, space, database_url):
    with space.client(server.url) as one, space.client(second_server.url) as two:
        for client in (one, two):
            ok(client.get("/scopes"))
        revoke = "UPDATE runstate.api_keys SET revoked_at = now() WHERE hash = $1"
        database.execute(database_url, revoke, digest(space.key))
        for client in (one, two):
            races.until_blocking(
                lambda c=client: c.get("/scopes").status_code == 401,
                patience_s=TRUST_S,
                what="the end of trust in the key",
            )
            refused(client.get("/scopes"), "UNAUTHENTICATED")


def test_a_key_that_has_expired_is_refused(server, key_with):
    with key_with(*ALL, expires_at="now() - interval '1 s'").client(server.url) as client:
        refused(client.get("/scopes"), "UNAUTHENTICATED")
    with key_with(*ALL, expires_at="now() + interval '1 h'").client(server.url) as client:
        ok(client.get("/scopes"))


def test_a_key_is_trusted_no_longer_than_it_lives(server, key_with):
    with key_with(*ALL, expires_at="clock_timestamp() + interval '1 s'").client(server.url) as client:
        ok(client.get("/scopes"))
        races.until_blocking(
            lambda: client.get("/scopes").status_code == 401, patience_s=2.5, what="the key's expiry"
        )


def test_a_suspended_space_is_told_apart_from_a_foreign_one(server, space, database_url):
    database.execute(database_url, "UPDATE runstate.spaces SET suspended = true WHERE id = $1", space.id)
    with space.client(server.url) as client:
        assert space.id in refused(client.get("/scopes"), "SPACE_SUSPENDED")
        refused(client.post("/scopes", json={}), "SPACE_SUSPENDED")


def test_a_known_key_is_not_looked_up_at_every_request(api, database_url):
    """One look-up is trusted for some seconds: a row that has gone is not missed at once."""
    ok(api.get("/scopes"))
    used = "SELECT last_used_at FROM runstate.api_keys WHERE hash = $1"
    key = api.headers["authorization"].removeprefix("Bearer ")
    first = database.fetchval(database_url, used, digest(key))
    database.execute(
        database_url, "UPDATE runstate.api_keys SET last_used_at = NULL WHERE hash = $1", digest(key)
    )
    for _ in range(5):
        ok(api.get("/scopes"))
    assert first is not None
    assert database.fetchval(database_url, used, digest(key)) is None


def test_the_use_of_a_key_is_noted_at_most_once_a_minute(database_url, space, kernel_schema):
    def look():
        find = f"SELECT code FROM {kernel_schema}.key_find($1)"
        assert database.fetchval(database_url, find, digest(space.key)) is None
        noted = "SELECT last_used_at FROM runstate.api_keys WHERE hash = $1"
        return database.fetchval(database_url, noted, digest(space.key))

    first = look()
    assert look() == first
    age = "UPDATE runstate.api_keys SET last_used_at = last_used_at - interval '61 s' WHERE hash = $1"
    database.execute(database_url, age, digest(space.key))
    assert look() >= first
