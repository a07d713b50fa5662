"""Who may administer: the operator everything; a key with space_admin the keys of its own space."""

import secrets

import pytest

from tests.support import spaces
from tests.support.builders import ok, refused
from tests.support.processes import Replica
from tests.support.spaces import ADMIN_TOKEN, Space

UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"


@pytest.fixture
def space_admin(operator, administration, server, fresh):
    """An administrator of the fresh space, by its key."""
    made = ok(operator.create_key(fresh, "space_admin"), 201)
    one = administration(server, made["key"])
    one.key = made
    return one


@pytest.mark.parametrize(
    "token", ["wrong-token-0123456789", ADMIN_TOKEN + "x", ADMIN_TOKEN[:-1], "é" * 20, None]
)
def test_a_wrong_token_or_none_is_unauthenticated(administration, server, fresh, token):
    stranger = administration(server, token)
    alone, about_keys = stranger.everything(fresh, UNKNOWN)
    for call in alone + about_keys:
        message = refused(call(), "UNAUTHENTICATED")
        assert ADMIN_TOKEN not in message
    refused(stranger.client.post("/spaces", content=b"nonsense"), "UNAUTHENTICATED")


def test_without_a_configured_token_administration_is_forbidden(administration, second_server, fresh):
    for token in (ADMIN_TOKEN, "anything-0123456789"):
        alone, about_keys = administration(second_server, token).everything(fresh, UNKNOWN)
        for call in alone + about_keys:
            assert "RUNSTATE_ADMIN_TOKEN" in refused(call(), "FORBIDDEN")


def test_without_a_configured_token_a_space_s_own_administrator_still_keeps_its_keys(
    administration, second_server, fresh, space_admin
):
    there = administration(second_server, space_admin.key["key"])
    alone, _ = there.everything(fresh, UNKNOWN)
    made = ok(there.create_key(fresh), 201)
    assert made["id"] in [k["id"] for k in ok(there.keys(fresh))["keys"]]
    ok(there.revoke(fresh, made["id"]))
    for call in alone:
        refused(call(), "FORBIDDEN")


def test_the_admin_token_opens_no_space(server, fresh):
    with Space(fresh, ADMIN_TOKEN).client(server.url) as client:
        refused(client.get("/scopes"), "UNAUTHENTICATED")


def test_a_space_admin_keeps_the_keys_of_its_space(space_admin, server, fresh):
    made = ok(space_admin.create_key(fresh, "runtime", label="worker"), 201)
    with Space(fresh, made["key"]).client(server.url) as client:
        ok(client.post("/scopes"), 201)
    assert {k["id"] for k in ok(space_admin.keys(fresh))["keys"]} == {made["id"], space_admin.key["id"]}
    assert ok(space_admin.revoke(fresh, made["id"]))["revokedAt"] is not None


def test_a_space_admin_gives_no_key_further_spaces_not_even_its_own(space_admin, operator, fresh):
    other = ok(operator.create(), 201)["id"]
    for also in ([other], [fresh], []):
        assert "alsoSpaces" in refused(space_admin.create_key(fresh, alsoSpaces=also), "FORBIDDEN")
    ok(space_admin.create_key(fresh, alsoSpaces=None), 201)
    assert ok(operator.keys(other))["keys"] == []


def test_a_space_admin_has_no_say_in_another_space_and_cannot_tell_whether_it_exists(space_admin, operator):
    other = ok(operator.create(), 201)["id"]
    key = ok(operator.create_key(other), 201)
    _, there = space_admin.everything(other, key["id"])
    _, nowhere = space_admin.everything("nowhere", key["id"])
    for one, two in zip(there, nowhere, strict=True):
        assert refused(one(), "FORBIDDEN") == refused(two(), "FORBIDDEN")
    assert ok(operator.keys(other))["keys"][0]["revokedAt"] is None


def test_spaces_are_the_operator_s_alone(space_admin, operator, fresh):
    alone, _ = space_admin.everything(fresh, UNKNOWN)
    for call in alone:
        assert "admin token" in refused(call(), "FORBIDDEN")
    refused(space_admin.client.post("/spaces", content=b"nonsense"), "FORBIDDEN")
    refused(space_admin.change(fresh, suspended=True), "FORBIDDEN")
    [shown] = [s for s in ok(operator.spaces(limit=500))["spaces"] if s["id"] == fresh]
    assert shown["suspended"] is False


def test_a_key_without_space_admin_keeps_no_keys(administration, operator, server, fresh):
    made = ok(operator.create_key(fresh, "runtime", "observe", "resource_config"), 201)
    alone, about_keys = administration(server, made["key"]).everything(fresh, made["id"])
    for call in about_keys:
        assert "'space_admin'" in refused(call(), "FORBIDDEN")
    for call in alone:
        refused(call(), "FORBIDDEN")
    assert [k["revokedAt"] for k in ok(operator.keys(fresh))["keys"]] == [None]


def test_a_space_admin_of_two_spaces_keeps_the_keys_of_each(administration, operator, server, fresh):
    other = ok(operator.create(), 201)["id"]
    made = ok(operator.create_key(fresh, "space_admin", alsoSpaces=[other]), 201)
    admin = administration(server, made["key"])
    key = ok(admin.create_key(other), 201)
    assert key["spaces"] == [other]
    assert [k["id"] for k in ok(admin.keys(other))["keys"]] == [key["id"]]
    refused(admin.revoke(fresh, key["id"]), "NOT_FOUND")  # each space's keys under its own path
    ok(admin.revoke(other, key["id"]))


def test_the_keys_of_a_suspended_space_are_the_operator_s_alone(operator, administration, server, fresh):
    made = ok(operator.create_key(fresh, "space_admin"), 201)
    ok(operator.change(fresh, suspended=True))
    admin = administration(server, made["key"])
    _, about_keys = admin.everything(fresh, made["id"])
    for call in about_keys:
        refused(call(), "SPACE_SUSPENDED")
    ok(operator.create_key(fresh), 201)


def test_a_revoked_space_admin_is_none(operator, administration, server, fresh):
    made = ok(operator.create_key(fresh, "space_admin"), 201)
    ok(operator.revoke(fresh, made["id"]))
    refused(administration(server, made["key"]).keys(fresh), "UNAUTHENTICATED")


@pytest.mark.processes
def test_each_replica_has_the_token_it_was_started_with(administration, database_url, fresh):
    token = secrets.token_hex(16)
    with Replica(database_url, ADMIN_TOKEN=token) as replica:
        ok(administration(replica, token).keys(fresh))
        refused(administration(replica, ADMIN_TOKEN).keys(fresh), "UNAUTHENTICATED")
        assert token not in replica.log()
        with spaces.create(database_url).client(replica.url) as client:
            ok(client.get("/scopes"))
