"""The life of a claim: FREE → HELD → FREE; who owns the key, under which number."""

import pytest

from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.queues import Claim


@pytest.fixture
def claim(api):
    return Claim(scope(api))


def owned(api, claim, **how):
    return ok(claim.acquire(**how).send(api), 201)


def test_a_key_that_nobody_holds_is_taken_and_everyone_else_told_by_whom_and_until_when(api, claim):
    mine = owned(api, claim, holder="ann")
    assert mine == {
        "key": claim.key,
        "scopeId": claim.scope,
        "generation": "1",
        "token": mine["token"],
        "leaseExpiresAt": mine["leaseExpiresAt"],
    }
    response = claim.acquire(holder="bob").send(api)
    message = refused(response, "CLAIM_HELD", 409)
    assert claim.key in message
    assert '"ann"' in message
    assert mine["leaseExpiresAt"] in message
    assert 25 < float(response.headers["Retry-After"]) <= 30


def test_the_same_holder_and_session_do_not_get_the_key_twice(api, claim):
    owned(api, claim, holder="ann", session="1")
    refused(claim.acquire(holder="ann", session="1").send(api), "CLAIM_HELD")


def test_the_view_shows_the_holder_and_never_the_token(api, claim):
    free = {"key": claim.key, "scopeId": claim.scope, "state": "FREE", "holder": None}
    free |= {"generation": None, "leaseExpiresAt": None, "observation": None}
    assert ok(claim.view().send(api)) == free
    mine = owned(api, claim, holder="ann")
    held = {"state": "HELD", "holder": "ann", "generation": "1", "leaseExpiresAt": mine["leaseExpiresAt"]}
    assert ok(claim.view().send(api)) == free | held
    ok(claim.release(mine["token"]).send(api))
    assert ok(claim.view().send(api)) == free | {"generation": "1"}


def test_every_new_owner_has_the_next_generation_however_the_last_one_ended(api, claim, clock):
    generations = []
    for ending in ("release", "lapse", "release", "lapse unnoticed"):
        mine = owned(api, claim, lease_s=60)
        generations.append(mine["generation"])
        if ending == "release":
            assert ok(claim.release(mine["token"]).send(api)) == {"released": True}
        else:
            clock.shift(61)
    generations.append(owned(api, claim)["generation"])
    assert generations == ["1", "2", "3", "4", "5"]


def test_a_raised_epoch_raises_the_next_generation_and_never_lowers_one(api, space, template):
    """On a database of its own: the epoch is everybody's."""
    from tests.support import database, spaces
    from tests.support.processes import Replica

    with template.clone() as url, Replica(url) as replica:
        here = spaces.create(url)
        with here.client(replica.url) as client:
            claim = Claim(scope(client))
            first = owned(client, claim)
            ok(claim.release(first["token"]).send(client))
            database.execute(url, "UPDATE runstate.epoch SET epoch = 3")
            second = owned(client, claim)
            assert int(second["generation"]) == (3 << 31) + 1
            ok(claim.release(second["token"]).send(client))
            database.execute(url, "UPDATE runstate.epoch SET epoch = 2")
            assert int(owned(client, claim)["generation"]) == (3 << 31) + 2


def test_a_lapsed_lease_is_free_at_once_and_taken_without_a_sweep(api, claim, clock):
    owned(api, claim, holder="ann", lease_s=60)
    clock.shift(61)
    seen = ok(claim.view().send(api))
    assert (seen["state"], seen["holder"], seen["generation"]) == ("FREE", None, "1")
    assert owned(api, claim, holder="bob")["generation"] == "2"


def test_a_lapsed_lease_is_never_revived_not_even_if_nobody_took_it(api, claim, clock):
    token = owned(api, claim, lease_s=60)["token"]
    clock.shift(61)
    for call in (claim.renew(token), claim.renew(token, 3600), claim.release(token)):
        assert "lapsed" in refused(call.send(api), "STALE_CLAIM")
    assert ok(claim.view().send(api))["state"] == "FREE"


def test_an_owner_that_was_taken_over_changes_nothing(api, claim, clock):
    old = owned(api, claim, holder="slow", lease_s=60)
    clock.shift(61)
    new = owned(api, claim, holder="heir")
    for call in (claim.renew(old["token"]), claim.release(old["token"], observation="late")):
        refused(call.send(api), "STALE_CLAIM")
    seen = ok(claim.view().send(api))
    assert (seen["state"], seen["holder"], seen["observation"]) == ("HELD", "heir", None)
    assert ok(claim.renew(new["token"]).send(api))["generation"] == "2"


def test_a_token_is_spent_by_its_release(api, claim):
    token = owned(api, claim)["token"]
    ok(claim.release(token).send(api))
    for call in (claim.renew(token), claim.release(token)):
        assert "released" in refused(call.send(api), "STALE_CLAIM")


def test_a_wrong_token_is_stale_whatever_the_state_of_the_key(api, claim):
    for call in (claim.renew("wrong"), claim.release("wrong")):
        refused(call.send(api), "STALE_CLAIM")
    owned(api, claim)
    for call in (claim.renew("wrong"), claim.release("wrong")):
        refused(call.send(api), "STALE_CLAIM")
    assert ok(claim.view().send(api))["state"] == "HELD"


def test_the_token_of_one_key_opens_no_other(api, claim):
    token = owned(api, claim)["token"]
    other = Claim(claim.scope, "other")
    owned(api, other)
    for call in (other.renew(token), other.release(token)):
        refused(call.send(api), "STALE_CLAIM")


def test_the_token_alone_picks_the_claim_among_the_scopes_that_hold_the_key(api, claim):
    other = Claim(scope(api, parentId=claim.scope), claim.key)
    mine, theirs = owned(api, claim, holder="ann"), owned(api, other, holder="bob")
    ok(claim.release(theirs["token"]).send(api))
    assert ok(claim.view().send(api))["state"] == "HELD"
    assert ok(other.view().send(api))["state"] == "FREE"
    ok(claim.renew(mine["token"], 600).send(api))


def test_a_renewal_extends_the_lease_and_none_shortens_it(api, claim, clock):
    mine = owned(api, claim, lease_s=60)
    longer = ok(claim.renew(mine["token"], 600).send(api))
    assert longer.keys() == {"leaseExpiresAt", "generation"}
    assert longer["leaseExpiresAt"] > mine["leaseExpiresAt"]
    assert ok(claim.renew(mine["token"], 1).send(api)) == longer
    assert ok(claim.view().send(api))["leaseExpiresAt"] == longer["leaseExpiresAt"]
    clock.shift(300)
    refused(claim.acquire().send(api), "CLAIM_HELD")
    clock.shift(301)
    owned(api, claim)


def test_a_renewal_without_a_length_uses_the_lease_s_own(api, claim, clock):
    token = owned(api, claim, lease_s=100)["token"]
    for _ in range(3):
        clock.shift(80)
        ok(claim.renew(token).send(api))
    clock.shift(99)
    refused(claim.acquire().send(api), "CLAIM_HELD")
    clock.shift(2)
    owned(api, claim)


def test_an_observation_is_kept_for_the_next_owner_until_another_replaces_it(api, claim):
    ok(claim.release(owned(api, claim)["token"], observation={"rows": [1, 2]}).send(api))
    assert ok(claim.view().send(api))["observation"] == {"rows": [1, 2]}
    token = owned(api, claim)["token"]
    assert ok(claim.view().send(api))["observation"] == {"rows": [1, 2]}
    ok(claim.release(token).send(api))
    assert ok(claim.view().send(api))["observation"] == {"rows": [1, 2]}
    ok(claim.release(owned(api, claim)["token"], observation=0).send(api))
    assert ok(claim.view().send(api))["observation"] == 0


def test_an_observation_that_is_null_is_one_that_was_left_out(api, claim):
    ok(claim.release(owned(api, claim)["token"], observation="kept").send(api))
    ok(claim.release(owned(api, claim)["token"], observation=None).send(api))
    assert ok(claim.view().send(api))["observation"] == "kept"


def test_equal_keys_in_two_scopes_are_two_claims(api, claim):
    owned(api, claim)
    assert owned(api, Claim(scope(api, parentId=claim.scope), claim.key))["generation"] == "1"


@pytest.mark.parametrize(
    ("key", "other"), [("a", "A"), ("é", "e\u0301"), ("ß", "ss"), ("a", "a "), ("a/b", "a%2Fb")]
)
def test_keys_are_compared_byte_for_byte(api, claim, key, other):
    owned(api, Claim(claim.scope, key))
    owned(api, Claim(claim.scope, other))
    refused(Claim(claim.scope, key).acquire().send(api), "CLAIM_HELD")


@pytest.mark.parametrize(
    ("how", "code"),
    [("cancel", "SCOPE_CANCELLED"), ("complete", "SCOPE_CANCELLED"), (None, "DEADLINE_EXCEEDED")],
)
def test_nothing_is_granted_or_renewed_in_a_scope_that_has_ended(api, clock, how, code):
    claim = Claim(scope(api, deadline="2999-01-01T00:00:00Z" if how else in_seconds(api, 60)))
    token = owned(api, claim, lease_s=3600)["token"]
    if how:
        ok(end(claim.scope, how).send(api))
    else:
        clock.shift(120)
    for call in (claim.acquire(waitMs=30_000), Claim(claim.scope, "new").acquire(), claim.renew(token)):
        assert claim.scope in refused(call.send(api), code)
    assert ok(claim.view().send(api))["state"] == "FREE"


@pytest.mark.parametrize("how", ["cancel", "complete", None])
def test_a_release_in_a_scope_that_has_ended_is_stale(api, clock, how):
    claim = Claim(scope(api, deadline="2999-01-01T00:00:00Z" if how else in_seconds(api, 60)))
    token = owned(api, claim, lease_s=3600)["token"]
    if how:
        ok(end(claim.scope, how).send(api))
    else:
        clock.shift(120)
    refused(claim.release(token, observation="late").send(api), "STALE_CLAIM")
    assert ok(claim.view().send(api))["observation"] is None


def test_the_end_of_a_scope_ends_the_claims_below_it_and_no_others(api, claim):
    below = Claim(scope(api, parentId=scope(api, parentId=claim.scope)), "below")
    beside = Claim(scope(api), "beside")
    owned(api, below)
    token = owned(api, beside)["token"]
    ok(end(claim.scope).send(api))
    refused(below.acquire().send(api), "SCOPE_CANCELLED")
    assert ok(below.view().send(api))["state"] == "FREE"
    ok(beside.renew(token).send(api))


def test_the_end_of_a_child_leaves_the_parent_s_claims_alone(api, claim):
    child = scope(api, parentId=claim.scope)
    token = owned(api, claim)["token"]
    ok(end(child).send(api))
    assert ok(claim.release(token).send(api)) == {"released": True}
