"""The wire of once: statuses, exact members, texts."""

import re
from datetime import datetime, timedelta

import pytest

from tests.support import database
from tests.support.builders import Call, Once, held, ok, refused, scope

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def once(api):
    return Once(scope(api))


def test_members_without_a_value_are_absent(api, once):
    assert ok(once.view().send(api)) == {"state": "OPEN", "attempts": 0}
    mine = ok(once.acquire(holder="a").send(api))
    assert mine.keys() == {"state", "attempts", "token", "leaseExpiresAt"}
    assert ok(once.acquire().send(api)).keys() == {"state", "attempts", "leaseExpiresAt"}
    assert ok(once.view().send(api)) == {
        "state": "HELD",
        "attempts": 0,
        "holder": "a",
        "leaseExpiresAt": mine["leaseExpiresAt"],
    }
    assert INSTANT.fullmatch(mine["leaseExpiresAt"])


def test_the_token_is_128_random_bits_and_is_shown_to_the_holder_alone(api, once):
    token = held(api, once)
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    assert held(api, Once(once.scope, "other")) != token
    for call in (once.view(), once.acquire(), once.acquire(holder="b"), once.fail("wrong")):
        assert token not in call.send(api).text


def test_the_last_error_is_shown_while_the_next_attempt_runs(api, once):
    ok(once.fail(held(api, once), "first").send(api))
    held(api, once, holder="b")
    seen = ok(once.view().send(api))
    assert seen.keys() == {"state", "attempts", "holder", "leaseExpiresAt", "lastError"}
    assert (seen["attempts"], seen["lastError"]) == (1, "first")


def test_a_result_that_is_null_or_absent_is_recorded_as_null(api, once):
    ok(once.complete(held(api, once), None).send(api))
    assert ok(once.view().send(api)) == {"state": "DONE", "attempts": 0, "result": None}
    other = Once(once.scope, "absent")
    body = once.complete(held(api, other)).body | {"key": other.key}
    del body["result"]
    ok(Call("POST", "/once/complete", body).send(api))
    assert ok(other.acquire().send(api)) == {"state": "DONE", "attempts": 0, "result": None}


@pytest.mark.parametrize("lease_s", [1, 1.5, 3600, 3600.0, 30.25])
def test_a_lease_is_whole_or_fractional_seconds(api, once, lease_s):
    token = held(api, once, lease_s=lease_s)
    ok(once.renew(token, lease_s).send(api))


def test_a_lease_is_30_seconds_unless_said_otherwise(api, once, clock):
    body = once.acquire().body
    del body["leaseSeconds"]
    assert ok(Call("POST", "/once/acquire", body).send(api))["state"] == "ACQUIRED"
    clock.shift(25)
    assert ok(once.view().send(api))["state"] == "HELD"
    clock.shift(6)
    assert ok(once.view().send(api))["state"] == "OPEN"


def test_an_error_text_is_cut_at_2000_characters_never_refused(api, once):
    ok(once.fail(held(api, once), "é" * 1_999 + "xyz").send(api))
    assert ok(once.view().send(api))["lastError"] == "é" * 1_999 + "x"


def test_nul_in_an_error_text_becomes_the_replacement_character(api, once):
    ok(once.fail(held(api, once), "a\0b", 1).send(api))
    assert ok(once.acquire().send(api))["lastError"] == "a\ufffdb"


def test_an_error_text_may_be_empty(api, once):
    ok(once.fail(held(api, once), "", 1).send(api))
    assert ok(once.view().send(api)) == {"state": "FAILED", "attempts": 1, "lastError": ""}


def test_a_key_may_hold_any_character_but_nul(api, once):
    for key in ("a/b?c=d&e#f", "  ", "\n\t\x01\x7f", "%2F%", "clé \U0001f680", "\U0001f600" * 512, "+"):
        odd = Once(once.scope, key)
        token = held(api, odd)
        assert ok(odd.view().send(api))["state"] == "HELD"
        assert ok(odd.complete(token, key).send(api)) == {"state": "DONE"}
        assert ok(odd.view().send(api))["result"] == key


def test_a_longest_key_of_random_characters_fits_the_index(api, once):
    import random

    picked = random.Random(7)
    key = "".join(chr(picked.randrange(0x10000, 0x10FFFF)) for _ in range(512))
    assert ok(Once(once.scope, key).acquire().send(api))["state"] == "ACQUIRED"


def test_a_scope_that_does_not_exist_is_not_found(api, once):
    unknown = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
    for scope_id in (unknown, "nonsense", "", once.scope.upper(), f"{{{once.scope}}}"):
        lost = Once(scope_id)
        for call in (lost.acquire(), lost.view(), lost.renew("t"), lost.complete("t"), lost.fail("t")):
            refused(call.send(api), "NOT_FOUND")


def test_a_get_without_wait_answers_a_held_key_at_once(api, once):
    held(api, once)
    assert ok(api.get("/once", params={"scopeId": once.scope, "key": once.key}))["state"] == "HELD"


def test_a_get_names_what_it_lacks(api, once):
    assert "'key'" in refused(api.get("/once", params={"scopeId": once.scope}), "VALIDATION_FAILED")
    assert "'scopeId'" in refused(api.get("/once", params={"key": "k"}), "VALIDATION_FAILED")


def test_an_end_of_a_lease_is_cut_to_milliseconds_never_rounded_up(api, once, database_url):
    shown = ok(once.acquire(lease_s=1.0005).send(api))["leaseExpiresAt"]
    sql = "SELECT expires_at FROM runstate.once WHERE scope_id = $1::text::uuid"
    stored = database.fetchval(database_url, sql, once.scope)
    assert timedelta() <= stored - datetime.fromisoformat(shown) < timedelta(milliseconds=1)


def test_a_query_that_is_not_utf_8_is_refused_not_read_as_another_key(api, once):
    held(api, Once(once.scope, "\ufffd"))
    for key in ("%FF", "%ED%A0%80", "%C3"):
        response = api.get(f"/once?scopeId={once.scope}&key={key}")
        assert "UTF-8" in refused(response, "VALIDATION_FAILED")
