"""Who stands in the lines of pools and allowances is told with its true holders, in the report on the space,
on its run, and in the counts; and so are grants, and tasks that need something."""

import re

import pytest

from tests.support import allowances, permits
from tests.support.allowances import allowance
from tests.support.builders import end, ok, scope
from tests.support.needs import needs, site
from tests.support.permits import Pool, look, pool, release
from tests.support.queues import Claim, delivery, submitted
from tests.support.reports import WAIT_MS, asleep, blockers, in_run, lent, told, until_told


def waits(api, call):
    return ok(call.send(api))["waiterId"]


# Lines of pools


def test_one_who_waits_for_units_is_told_with_those_who_hold_them(api):
    browsers = pool(api, scope(api), 3)
    first = lent(api, browsers, 2, holder="ann", holderSession="7", lease_s=60)
    second = lent(api, browsers, 1, holder="cid", lease_s=90)
    waits(api, browsers.wait(2, holder="bob"))
    (wait,) = told(api)
    assert wait.pop("since") > "2026"
    until, later = first["leaseExpiresAt"], second["leaseExpiresAt"]
    assert wait == {
        "kind": "permit",
        "resource": "browsers",
        "units": 2,
        "holder": "bob",
        "scopeId": browsers.scope,
        "blockedBy": [
            {"holder": "ann", "session": "7", "leaseExpiresAt": until},
            {"holder": "cid", "session": "1", "leaseExpiresAt": later},
        ],
        "cycle": None,
        "why": '2 of the 3 units of permit pool "browsers" are wanted; '
        f'held by "ann" until {until} and "cid" until {later}; position 1 in its line',
    }


def test_places_in_line_are_those_that_the_waiters_are_told_themselves(api, clock):
    here, run = scope(api), scope(api)
    browsers = pool(api, here, 1)
    lent(api, browsers, lease_s=3600)
    waits(api, browsers.wait(holder="missed", ttlSeconds=1))
    names = ["bob", "cid", "dan", "eve"]
    ids = {
        name: waits(api, Pool(browsers.id, run if i % 2 else here).wait(holder=name, ttlSeconds=600))
        for i, name in enumerate(names)
    }
    clock.shift(2)
    ok(permits.leave(ids.pop("cid")).send(api))
    places = {name: ok(look(waiter).send(api))["position"] for name, waiter in ids.items()}
    assert places == {"bob": 1, "dan": 2, "eve": 3}
    assert {w["holder"]: int(w["why"].split()[-4]) for w in told(api)} == places
    assert [(w["permit"], w["holder"], w["position"]) for w in in_run(api, here)["waiting"]] == [
        ("browsers", "bob", 1),
        ("browsers", "dan", 2),
    ]
    (own,) = in_run(api, run)["waiting"]
    assert own | {"since": None} == {
        "kind": "permit",
        "permit": "browsers",
        "units": 1,
        "holder": "eve",
        "since": None,
        "position": 3,
    }


def test_whose_turn_it_is_is_blocked_by_nobody(api):
    browsers = pool(api, scope(api), 2)
    grant = lent(api, browsers, 2)
    waits(api, browsers.wait(1, holder="bob"))
    ok(release(grant).send(api))
    (wait,) = told(api)
    assert wait["blockedBy"] == []
    said = r'1 of the 2 units of permit pool "browsers" is kept for the one who waits, until \S+Z'
    assert re.fullmatch(said, wait["why"])


def test_holders_are_those_of_this_instant(api, clock):
    browsers = pool(api, scope(api), 2)
    lent(api, browsers, holder="ann", lease_s=5)
    grant = lent(api, browsers, holder="cid", lease_s=600)
    waits(api, browsers.wait(2, ttlSeconds=600))
    ok(permits.renew(grant, 900).send(api))
    (wait,) = told(api)
    assert blockers(wait) == [("ann", "1"), ("cid", "1")]
    clock.shift(5)
    (wait,) = told(api)
    assert blockers(wait) == [("cid", "1")]


def test_one_who_holds_many_grants_is_told_once_and_five_by_name(api):
    browsers = pool(api, scope(api), 9)
    for holder in ("ann", "ann", "ann", *"bcdefg"):
        lent(api, browsers, holder=holder)
    waits(api, browsers.wait(9))
    (wait,) = told(api)
    assert sorted(blockers(wait)) == [(holder, "1") for holder in ("ann", *"bcdefg")]
    assert wait["why"].count('" until ') == 5
    assert "and 2 more; position 1" in wait["why"]


@pytest.mark.parametrize("how", ["cancelled", "missed", "granted", "its scope has ended"])
def test_a_waiter_that_is_over_is_not_told_of(api, clock, how):
    browsers = pool(api, scope(api), 1)
    grant = lent(api, browsers, lease_s=600)
    waiter = waits(api, browsers.wait(holder="bob", ttlSeconds=30))
    assert len(told(api)) == 1
    if how == "cancelled":
        ok(permits.leave(waiter).send(api))
    elif how == "missed":
        clock.shift(31)
    elif how == "granted":
        ok(release(grant).send(api))
        lent(api, browsers, holder="bob", waiterId=waiter)
    else:
        ok(end(browsers.scope).send(api))
    assert told(api) == []
    assert in_run(api, browsers.scope)["waiting"] == []
    assert ok(api.get("/ops/summary"))["waits"] == 0


def test_what_a_scope_leaves_behind_is_held_until_its_lease_ends(api, clock):
    left, here = scope(api), scope(api)
    browsers = pool(api, here, 1)
    grant = lent(api, Pool(browsers.id, left), holder="ann", lease_s=60)
    waits(api, browsers.wait(ttlSeconds=600))
    ok(end(left).send(api))
    (wait,) = told(api)
    assert blockers(wait) == [("ann", "1")]
    (worker,) = in_run(api, left)["workers"]
    assert worker["grants"] == [grant["grantId"]]
    clock.shift(60)
    assert in_run(api, left)["workers"] == []


# Circles


async def test_a_circle_goes_through_grants_too(api, both_apis):
    """Ann has the browser and wants the account; bob has the account and stands in line for the browser."""
    browsers = pool(api, scope(api), 1)
    account = Claim(browsers.scope, "account")
    lent(api, browsers, holder="ann", lease_s=600)
    ok(account.acquire("bob", lease_s=600).send(api), 201)
    waits(api, browsers.wait(holder="bob", ttlSeconds=600))
    assert [wait["cycle"] for wait in told(api)] == [None]
    async with asleep(both_apis[0], account.acquire("ann", waitMs=WAIT_MS)):
        found = await until_told(api, 2)
        assert {w["kind"]: w["cycle"] for w in found} == {"claim": ["ann", "bob"], "permit": ["bob", "ann"]}
        why = next(wait["why"] for wait in found if wait["kind"] == "permit")
        assert why.endswith('; a circle: "bob" waits for "ann", who waits for "bob"')


async def test_a_name_that_several_processes_have_is_in_no_circle(api, both_apis):
    browsers = pool(api, scope(api), 2)
    account = Claim(browsers.scope, "account")
    lent(api, browsers, holder="ann", lease_s=600)
    lent(api, browsers, holder="bob", lease_s=600, holderSession="another")
    ok(account.acquire("bob", lease_s=600).send(api), 201)
    waits(api, browsers.wait(holder="bob", ttlSeconds=600))
    async with asleep(both_apis[0], account.acquire("ann", waitMs=WAIT_MS)):
        assert [wait["cycle"] for wait in await until_told(api, 2)] == [None, None]


def test_one_who_waits_for_more_of_what_it_has_is_named_and_in_no_circle(api):
    browsers = pool(api, scope(api), 1)
    lent(api, browsers, holder="ann")
    waits(api, browsers.wait(holder="ann"))
    (wait,) = told(api)
    assert wait["cycle"] is None
    assert wait["why"].endswith(", which is the one who waits")


# Lines of allowances


def test_one_who_waits_for_a_window_is_told_when_it_turns(api, clock):
    searches = allowance(api, scope(api), 5, window_s=86_400)
    ok(searches.consume(4).send(api))
    waits(api, searches.wait(3, holder="bob", ttlSeconds=3600))
    (wait,) = told(api)
    assert (wait["kind"], wait["resource"], wait["units"], wait["holder"]) == (
        "allowance",
        "search-api",
        3,
        "bob",
    )
    assert (wait["blockedBy"], wait["cycle"]) == ([], None)
    said = (
        r'3 of the 5 units per window of allowance "search-api" are wanted; '
        r"4 are consumed in the window that ends at (\S+)T00:00:00.000Z; position 1 in its line"
    )
    assert re.fullmatch(said, wait["why"])
    cooled = ok(searches.cool(900).send(api))["cooldownUntil"]
    (wait,) = told(api)
    assert f"; cooldown until {cooled}; position 1" in wait["why"]
    (own,) = in_run(api, searches.scope)["waiting"]
    assert (own["kind"], own["permit"], own["position"]) == ("allowance", "search-api", 1)


def test_who_was_granted_at_the_turn_waits_no_more(api, clock):
    searches = allowance(api, scope(api), 5, window_s=60)
    ok(searches.consume(5).send(api))
    waiter = waits(api, searches.wait(3, ttlSeconds=3600))
    clock.shift(61)
    assert ok(allowances.look(waiter).send(api))["state"] == "GRANTED"
    assert told(api) == []


# Runs and counts


def test_a_worker_has_the_grants_of_its_run_and_the_first_lease_to_end(api):
    run = scope(api)
    child = scope(api, parentId=run)
    browsers = pool(api, run, 9)
    elsewhere = Pool(browsers.id, scope(api))
    first = lent(api, browsers, holder="ann", lease_s=50)
    second = lent(api, Pool(browsers.id, child), holder="ann", lease_s=60)
    lent(api, elsewhere, holder="ann", lease_s=5)
    ok(Claim(run, "k").acquire("ann", lease_s=90).send(api), 201)
    (worker,) = in_run(api, run)["workers"]
    assert worker == {
        "holder": "ann",
        "session": "1",
        "keys": ["k"],
        "grants": sorted([first["grantId"], second["grantId"]]),
        "messages": [],
        "earliestLeaseExpiry": first["leaseExpiresAt"],
    }
    (below,) = in_run(api, child)["workers"]
    assert below["grants"] == [second["grantId"]]
    found = ok(api.get("/ops/summary"))
    assert (found["grants"], found["workers"]) == ({"held": 3}, 1)
    ok(release(first).send(api))
    assert in_run(api, run)["workers"][0]["grants"] == [second["grantId"]]


def test_tasks_that_need_something_are_tasks_everywhere(api, clock):
    here = site(api, scope(api), browsers=1)
    kinds = [needs({"browsers": 1}), needs({"browsers": 1}, {"search-api": 1}), None]
    for i, each in enumerate(kinds):
        submitted(api, here.box, str(i), **({"requirements": each} if each else {}))
    running = delivery(ok(here.box.admit().send(api)))
    counts = {"QUEUED": 2, "RUNNING": 1}
    assert in_run(api, here.box.scope)["tasks"].items() >= counts.items()
    assert ok(api.get("/ops/summary"))["tasks"] == counts
    for state, count in counts.items():
        assert len(ok(api.get(f"/tasks?state={state}"))["tasks"]) == count
    ok(running.complete().send(api))
    ok(end(here.box.scope).send(api))
    assert in_run(api, here.box.scope)["tasks"].items() >= {"CANCELLED": 2, "SUCCEEDED": 1}.items()
