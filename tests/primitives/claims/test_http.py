"""The wire of claims: keys in paths, bounds, observations as they came."""

import re

import pytest

from tests.support.builders import Call, ok, refused, scope
from tests.support.queues import Claim

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ODD = ["a/b?c=d&e#f", "a/renew", "release", "%2F%", "+", "  ", "\n\t\x7f", "😀" * 512, "a//b", "/", "é"]


@pytest.mark.parametrize("key", ODD, ids=lambda key: ascii(key)[:20])
def test_a_key_in_the_path_may_hold_any_character(api, key):
    claim = Claim(scope(api), key)
    mine = ok(claim.acquire().send(api), 201)
    assert mine["key"] == key
    assert ok(claim.view().send(api))["state"] == "HELD"
    assert ok(claim.renew(mine["token"], 60).send(api))["generation"] == "1"
    assert ok(claim.release(mine["token"]).send(api)) == {"released": True}
    assert ok(claim.view().send(api))["key"] == key


def test_a_key_in_the_path_is_bounded_and_utf_8(api):
    root = scope(api)
    for path, says in (("x" * 513, "512"), ("%00", "NUL"), ("%FF", "UTF-8"), ("%C3", "UTF-8")):
        message = refused(api.get(f"/claims/{path}?scopeId={root}"), "VALIDATION_FAILED")
        assert says in message
        for verb in ("renew", "release"):
            refused(api.post(f"/claims/{path}/{verb}", json={"token": "t"}), "VALIDATION_FAILED")


def test_the_answers_have_exactly_their_members(api):
    claim = Claim(scope(api))
    mine = ok(claim.acquire().send(api), 201)
    assert mine.keys() == {"key", "scopeId", "generation", "token", "leaseExpiresAt"}
    assert re.fullmatch(r"[0-9a-f]{32}", mine["token"])
    assert isinstance(mine["generation"], str)
    assert INSTANT.fullmatch(mine["leaseExpiresAt"])
    members = {"key", "scopeId", "state", "holder", "generation", "leaseExpiresAt", "observation"}
    assert ok(claim.view().send(api)).keys() == members


def test_a_lease_is_30_seconds_unless_said_otherwise(api, clock):
    claim = Claim(scope(api))
    body = claim.acquire().body
    del body["leaseSeconds"]
    ok(Call("POST", "/claims", body).send(api), 201)
    clock.shift(25)
    refused(claim.acquire().send(api), "CLAIM_HELD")
    clock.shift(6)
    ok(claim.acquire().send(api), 201)


@pytest.mark.parametrize(
    "observation", ["-0.0", "1e400", '"\\u0000"', '{"b":1,"a":2}', '{"$payload":0}', "[]", "false"]
)
def test_an_observation_comes_out_as_it_was_written(api, observation):
    claim = Claim(scope(api), "k")
    token = ok(claim.acquire().send(api), 201)["token"]
    body = f'{{"token":"{token}","observation": {observation} }}'
    ok(api.post("/claims/k/release", content=body.encode()))
    assert claim.view().send(api).text.endswith(f'"observation":{observation}}}')


def test_an_observation_over_65536_bytes_is_refused_and_the_claim_is_kept(api):
    claim = Claim(scope(api))
    token = ok(claim.acquire().send(api), 201)["token"]
    message = refused(claim.release(token, observation="a" * 65_535).send(api), "VALIDATION_FAILED")
    assert "observation exceeds 65536 bytes" in message
    assert ok(claim.view().send(api))["state"] == "HELD"
    ok(claim.release(token, observation="a" * 65_534).send(api))


def test_a_claim_s_token_is_never_shown_to_others(api):
    claim = Claim(scope(api))
    token = ok(claim.acquire().send(api), 201)["token"]
    for call in (claim.view(), claim.acquire("b"), claim.renew("wrong"), claim.release("wrong")):
        assert token not in call.send(api).text
