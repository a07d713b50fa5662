"""The life of pools, grants and waiters: who gets units, in which order, and when they come back."""

import pytest

from tests.support.builders import Call, end, ok, refused, scope
from tests.support.events import end_of, read
from tests.support.permits import leave, look, pool, release, renew


@pytest.fixture
def browsers(api):
    return pool(api, scope(api), 3)


def lent(api, browsers, units=1, **how):
    return ok(browsers.acquire(units, **how).send(api))


def waits(api, browsers, units=1, **how):
    return ok(browsers.wait(units, **how).send(api))["waiterId"]


def state(api, waiter):
    return ok(look(waiter).send(api))["state"]


def used(api, browsers):
    seen = ok(browsers.view().send(api))
    return seen["unitsUsed"], seen["waiting"]


def test_units_are_lent_until_there_are_none_and_come_back_by_release(api, browsers):
    one, two = lent(api, browsers, 1), lent(api, browsers, 2)
    assert set(one) == {"grantId", "token", "units", "leaseExpiresAt"}
    assert used(api, browsers) == (3, 0)
    message = refused(browsers.acquire().send(api), "CAPACITY_UNAVAILABLE", 409)
    assert '"browsers"' in message
    assert ok(release(two, observation={"tab": 1}).send(api)) == {"released": True}
    assert lent(api, browsers, 2)["units"] == 2
    assert ok(browsers.view().send(api)) == {
        "id": browsers.id,
        "name": "browsers",
        "unitsTotal": 3,
        "unitsUsed": 3,
        "waiting": 0,
        "observation": {"tab": 1},
    }


def test_a_token_that_does_not_hold_its_grant_is_stale_and_changes_nothing(api, browsers, clock):
    grant = lent(api, browsers, 1, lease_s=60)
    for wrong in (grant | {"token": "other"}, grant | {"grantId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"}):
        refused(renew(wrong).send(api), "STALE_CLAIM", 409)
        refused(release(wrong).send(api), "STALE_CLAIM", 409)
    assert used(api, browsers) == (1, 0)
    ok(renew(grant, 600).send(api))
    clock.shift(300)
    before = ok(renew(grant, 1).send(api))
    assert ok(renew(grant, 1).send(api)) == before, "no renewal shortens a lease"
    clock.shift(301)
    assert "lapsed" in refused(renew(grant).send(api), "STALE_CLAIM")
    assert "lapsed" in refused(release(grant).send(api), "STALE_CLAIM")
    assert lent(api, browsers, 3)["units"] == 3
    other = pool(api, browsers.scope, 1, "others")
    grant = lent(api, other)
    ok(release(grant).send(api))
    assert "released" in refused(release(grant).send(api), "STALE_CLAIM")


def test_first_come_first_served_and_a_large_one_at_the_head_is_not_overtaken(api, browsers):
    held = lent(api, browsers, 2)
    large, small = waits(api, browsers, 3), waits(api, browsers, 1)
    assert ok(look(large).send(api)) == {"waiterId": large, "state": "WAITING", "units": 3, "position": 1}
    assert ok(look(small).send(api))["position"] == 2
    refused(browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")  # one is free, and two wait
    refused(browsers.acquire(1, waiterId=small).send(api), "CAPACITY_UNAVAILABLE")
    ok(release(held).send(api))
    assert (state(api, large), state(api, small)) == ("SIGNALED", "WAITING")
    grant = lent(api, browsers, 3, waiterId=large)
    assert (state(api, large), state(api, small)) == ("GRANTED", "WAITING")
    assert ok(look(large).send(api))["position"] is None
    ok(release(grant).send(api))
    assert state(api, small) == "SIGNALED"
    refused(browsers.acquire(2, waiterId=small).send(api), "CONFLICT")
    lent(api, browsers, 1, waiterId=small)
    refused(browsers.acquire(1, waiterId=small).send(api), "CONFLICT")


def test_a_waiter_that_joins_beside_free_units_is_signalled_at_once(api, browsers):
    told = ok(browsers.wait(2).send(api))
    assert told == {"waiterId": told["waiterId"], "state": "SIGNALED", "position": 1}
    assert used(api, browsers) == (0, 1)
    refused(browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")  # even one: others wait ahead
    lent(api, browsers, 2, waiterId=told["waiterId"])
    lent(api, browsers, 1)


def test_who_is_signalled_and_does_not_come_goes_to_the_end(api, browsers, clock):
    held = lent(api, browsers, 3, lease_s=3600)
    first, second = waits(api, browsers, 2), waits(api, browsers, 2)
    ok(release(held).send(api))
    assert (state(api, first), state(api, second)) == ("SIGNALED", "WAITING")
    clock.shift(11)
    assert (state(api, second), state(api, first)) == ("SIGNALED", "WAITING")
    assert ok(look(first).send(api))["position"] == 2


def test_a_waiter_that_is_not_looked_after_expires_and_holds_nothing(api, browsers, clock):
    lent(api, browsers, 3, lease_s=3600)
    gone, alive = waits(api, browsers, 1, ttlSeconds=20), waits(api, browsers, 1, ttlSeconds=20)
    for _ in range(4):
        clock.shift(8)
        assert state(api, alive) == "WAITING"
    assert (state(api, gone), state(api, alive)) == ("EXPIRED", "WAITING")
    assert ok(look(alive).send(api))["position"] == 1
    assert ok(leave(gone).send(api)) == {"state": "EXPIRED"}


def test_leaving_the_line_lets_the_next_one_come(api, browsers):
    held = lent(api, browsers, 3)
    large, small = waits(api, browsers, 3), waits(api, browsers, 1)
    ok(release(held).send(api))
    assert (state(api, large), state(api, small)) == ("SIGNALED", "WAITING")
    assert ok(leave(large).send(api)) == {"state": "CANCELLED"}
    assert ok(leave(large).send(api)) == {"state": "CANCELLED"}
    assert state(api, small) == "SIGNALED"
    refused(browsers.acquire(3, waiterId=large).send(api), "CONFLICT")


def test_a_lapsed_lease_gives_its_units_to_the_head_of_the_line(api, browsers, clock):
    lent(api, browsers, 3, lease_s=20)
    waiter = waits(api, browsers, 2, ttlSeconds=600)
    clock.shift(21)
    assert state(api, waiter) == "SIGNALED"
    assert used(api, browsers) == (0, 1)


def test_resizing_lets_in_who_fits_now_and_drains_below_what_is_in_use(api, browsers):
    held = lent(api, browsers, 2)
    waiter = waits(api, browsers, 3)
    assert ok(browsers.resize(5).send(api))["unitsTotal"] == 5
    assert state(api, waiter) == "SIGNALED"
    ok(leave(waiter).send(api))
    assert ok(browsers.resize(1).send(api)) | {"waiting": 0} == {
        "id": browsers.id,
        "name": "browsers",
        "unitsTotal": 1,
        "unitsUsed": 2,
        "waiting": 0,
    }
    refused(browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")
    ok(release(held).send(api))
    lent(api, browsers, 1)


def test_more_than_there_are_is_refused_wherever_it_is_asked_for(api, browsers):
    for call in (browsers.acquire(4), browsers.wait(4)):
        message = refused(call.send(api), "VALIDATION_FAILED", 400)
        assert "4" in message
        assert "3" in message


def test_the_end_of_a_scope_ends_its_waiters_and_leaves_its_grants_their_units(api, browsers):
    other = pool(api, scope(api), 1, "others")
    mine, behind = scope(api), scope(api)
    here = type(other)(other.id, mine, other.name)
    grant = lent(api, here)
    waiter = waits(api, here)
    later = waits(api, type(other)(other.id, behind, other.name))
    ok(end(mine).send(api))
    assert state(api, waiter) == "CANCELLED"
    assert used(api, other) == (1, 1)
    refused(renew(grant).send(api), "SCOPE_CANCELLED")
    refused(here.acquire().send(api), "SCOPE_CANCELLED")
    refused(here.wait().send(api), "SCOPE_CANCELLED")
    ok(release(grant).send(api))
    assert state(api, later) == "SIGNALED"


def test_pools_are_created_found_and_checked_by_name(api):
    body = {"units": 2}
    made = ok(Call("PUT", "/permits/by-name/a%2Fb", body).send(api))
    assert made == {
        "id": made["id"],
        "name": "a/b",
        "unitsTotal": 2,
        "unitsUsed": 0,
        "waiting": 0,
        "units": 2,
    }
    assert ok(Call("PUT", "/permits/by-name/a%2Fb", body).send(api)) == made
    assert ok(Call("PUT", "/permits/by-name/a%2Fb", {}).send(api)) == made
    message = refused(Call("PUT", "/permits/by-name/a%2Fb", {"units": 3}).send(api), "CONFLICT")
    assert "2" in message
    assert "3" in message
    refused(Call("PUT", "/permits/by-name/none", {}).send(api), "NOT_FOUND", 404)
    refused(Call("POST", "/permits", {"name": "a/b", "units": 2}).send(api), "CONFLICT")
    told = ok(Call("GET", "/permits").send(api))
    assert [each["name"] for each in told["permits"]] == ["a/b"]
    assert told["nextCursor"] is None


def test_each_change_is_one_event_of_the_pool_without_a_token(api, browsers, clock):
    after = end_of(api)
    grant = lent(api, browsers, 2, lease_s=60)
    ok(release(grant).send(api))
    lent(api, browsers, 1, lease_s=10)
    clock.shift(11)
    ok(browsers.resize(4).send(api))
    events = read(api, cursor=after, aggregate=f"permit:{browsers.id}")
    assert [e["type"] for e in events] == [
        "permit.granted",
        "permit.released",
        "permit.granted",
        "permit.lapsed",
        "permit.resized",
    ]
    assert events[0]["payload"]["units"] == 2
    assert events[0]["scopeId"] == browsers.scope
    assert grant["token"] not in str(events)
