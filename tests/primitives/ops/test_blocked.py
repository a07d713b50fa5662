"""A task that workers would take but for what it lacks is told, with all that it lacks and who has it."""

import pytest

from tests.support.builders import end, ok, scope
from tests.support.needs import needs, site
from tests.support.permits import release
from tests.support.queues import Claim, cancel, nothing, submitted
from tests.support.reports import WAIT_MS, asleep, blockers, in_run, lent, told, until_told


async def test_a_task_that_cannot_be_had_is_told_with_all_that_it_lacks(api, both_apis):
    """An admit that finds work it cannot afford says why, one wait for each thing."""
    here = site(api, scope(api), browsers=2, searches=2, minor=100)
    grant = lent(api, here.browsers, 2, holder="cid", lease_s=600)
    ok(here.searches.consume(2).send(api))
    ok(here.money.reserve(90).send(api))
    submitted(
        api, here.box, "page/1", requirements=needs({"browsers": 1}, {"search-api": 2}, {"model-usd": 40})
    )
    async with asleep(both_apis[0], here.box.admit("bob", waitMs=WAIT_MS)):
        found = {wait["kind"]: wait for wait in await until_told(api, 3)}
        whys = {kind: wait["why"] for kind, wait in found.items()}
        task = 'task "page/1" of mailbox "render" needs'
        until = grant["leaseExpiresAt"]
        assert (
            whys["permit"]
            == f'{task} 1 of the 2 units of permit pool "browsers"; held by "cid" until {until}'
        )
        assert whys["allowance"].startswith(
            f'{task} 2 of the 2 units per window of allowance "search-api"; '
            "2 are consumed in the window that ends at "
        )
        assert whys["budget"] == f'{task} 0.40 USD of budget "model-usd"; 0.10 USD are left of 1.00 USD'
        assert {kind: (w["resource"], w["units"], w["holder"]) for kind, w in found.items()} == {
            "permit": ("browsers", 1, "bob"),
            "allowance": ("search-api", 2, "bob"),
            "budget": ("model-usd", 40, "bob"),
        }
        assert [blockers(found[kind]) for kind in ("permit", "allowance", "budget")] == [
            [("cid", "1")],
            [],
            [],
        ]
        report = in_run(api, here.box.scope)
        assert sorted((w["kind"], w["permit"], w["position"]) for w in report["waiting"]) == [
            ("allowance", "search-api", None),
            ("budget", "model-usd", None),
            ("permit", "browsers", None),
        ]
        assert ok(api.get("/ops/summary"))["waits"] == 3


def test_an_admit_that_does_not_wait_says_why_for_a_moment_and_holds_no_place(api, clock):
    here = site(api, scope(api), browsers=2)
    grant = lent(api, here.browsers, 1, holder="cid", lease_s=600)
    submitted(api, here.box, "page/1", requirements=needs({"browsers": 2}))
    assert told(api) == []
    nothing(api, here.box.admit("bob"))
    (wait,) = told(api)
    assert (wait["holder"], blockers(wait)) == ("bob", [("cid", "1")])
    extra = lent(api, here.browsers, 1, holder="dan")
    assert len(told(api)) == 1
    clock.shift(6)
    assert told(api) == []
    nothing(api, here.box.admit("bob"))
    (wait,) = told(api)
    assert sorted(blockers(wait)) == [("cid", "1"), ("dan", "1")]
    for each in (grant, extra):
        ok(release(each).send(api))
    assert told(api) == [], "it can be had by now"


@pytest.mark.parametrize("how", ["taken", "cancelled", "its scope has ended"])
def test_a_blocked_task_that_is_over_is_not_told_of(api, how):
    here = site(api, scope(api), browsers=1)
    grant = lent(api, here.browsers)
    task = submitted(api, here.box, requirements=needs({"browsers": 1}))
    nothing(api, here.box.admit())
    assert len(told(api)) == 1
    if how == "taken":
        ok(release(grant).send(api))
        ok(here.box.admit().send(api))
        lent_to_it = in_run(api, here.box.scope)["workers"]
        assert [len(worker["grants"]) for worker in lent_to_it] == [1]
    elif how == "cancelled":
        ok(cancel(task).send(api))
    else:
        ok(end(here.box.scope).send(api))
    assert told(api) == []
    assert in_run(api, here.box.scope)["waiting"] == []


async def test_a_worker_that_asks_for_more_work_is_in_no_circle(api, both_apis):
    """Bob runs a task with the browser and asks for another; cid has the account, and stands in line."""
    here = site(api, scope(api), browsers=1)
    account = Claim(here.box.scope, "account")
    submitted(api, here.box, "first", requirements=needs({"browsers": 1}))
    ok(here.box.admit("bob", lease_s=600).send(api))
    submitted(api, here.box, "second", requirements=needs({"browsers": 1}))
    ok(account.acquire("cid", lease_s=600).send(api), 201)
    ok(here.browsers.wait(holder="cid", ttlSeconds=600).send(api))
    async with asleep(both_apis[0], here.box.admit("bob", waitMs=WAIT_MS)):
        found = await until_told(api, 2)
        assert [(w["holder"], w["cycle"]) for w in found] == [("cid", None), ("bob", None)]
