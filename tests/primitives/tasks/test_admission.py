"""Many who want the same things: nothing over-admitted, nobody asleep beside what he could have, no deadlock,
nobody passed over for ever."""

import asyncio
import random

import pytest

from tests.support import races
from tests.support.budgets import Budget, define
from tests.support.builders import ok, refused, scope
from tests.support.events import read
from tests.support.needs import RENDER, needs, site
from tests.support.permits import look, pool, release
from tests.support.queues import Mailbox, batch, cancel, delivery, mailbox, nothing, submitted

BIG_WAIT_MS = 25_000


async def asleep(client, call):
    """A call that waits, once it has gone to sleep."""
    waiting = asyncio.create_task(call.send(client))
    await asyncio.sleep(0.4)
    assert not waiting.done()
    return waiting


async def admitted(waiting):
    return ok(await asyncio.wait_for(waiting, 12))


@pytest.mark.parametrize("what", ["a pool", "a quota", "a cooldown", "a budget", "a submit"])
async def test_an_admit_that_waits_wakes_when_what_it_lacks_comes_free(api, both_apis, clock, what):
    here = site(api, scope(api), browsers=1, searches=1)
    waker, sleeper = both_apis
    free = {
        "a pool": (here.browsers.acquire(1), release),
        "a quota": (here.searches.consume(1), lambda _: here.searches.resize(unitsLimit=5)),
        "a cooldown": (here.searches.cool(2), None),
        "a budget": (here.money.reserve(1000), lambda told: here.money.void(told["reservationId"])),
    }
    told = None
    if what in free:
        told = ok(free[what][0].send(api))
        submitted(api, here.box, requirements=RENDER)
    waiting = await asleep(sleeper, here.box.admit(waitMs=BIG_WAIT_MS))
    if what == "a submit":
        ok(await here.box.submit(requirements=RENDER).send(waker), 201)
    elif free[what][1] is not None:
        ok(await free[what][1](told).send(waker))
    assert len((await admitted(waiting))["grants"]) == 1


async def test_an_admit_wakes_when_the_holder_of_what_it_lacks_lapses(api, both_apis, clock):
    here = site(api, scope(api), browsers=1)
    submitted(api, here.box, "first", requirements=RENDER)
    ok(here.box.admit(lease_s=60).send(api))
    submitted(api, here.box, "second", requirements=RENDER)
    waiting = await asleep(both_apis[1], here.box.admit(waitMs=BIG_WAIT_MS))
    clock.shift(61)
    assert (await admitted(waiting))["taskKey"] in {"first", "second"}


async def test_a_waiting_admit_holds_its_place_and_one_that_has_left_holds_none(api, both_apis):
    """Capacity that is short of a task's need is kept for it while somebody waits to run it."""
    here = site(api, scope(api), browsers=2)
    held = ok(here.browsers.acquire(1).send(api))
    task = submitted(api, here.box, requirements=needs({"browsers": 2}))
    nothing(api, here.box.admit())
    extra = ok(here.browsers.acquire(1).send(api))  # nobody waits: there is no place to keep
    ok(release(extra).send(api))
    waiting = await asleep(both_apis[1], here.box.admit(waitMs=BIG_WAIT_MS))
    refused(here.browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")
    later = ok(here.browsers.wait(1).send(api))["waiterId"]
    assert ok(look(later).send(api))["state"] == "WAITING", "one who came later does not overtake"
    ok(release(held).send(api))
    told = await admitted(waiting)
    assert told["taskId"] == task
    assert ok(look(later).send(api))["state"] == "WAITING"
    ok(delivery(told).complete().send(api))
    assert ok(look(later).send(api))["state"] == "SIGNALED"


async def test_it_keeps_no_pool_while_a_quota_is_what_it_lacks(api, both_apis):
    here = site(api, scope(api), browsers=1, searches=1)
    ok(here.searches.consume(1).send(api))
    submitted(api, here.box, requirements=RENDER)
    waiting = await asleep(both_apis[1], here.box.admit(waitMs=3_000))
    grant = ok(here.browsers.acquire(1).send(api))
    ok(release(grant).send(api))
    assert (await waiting).status_code == 204
    assert here.left(api) == (0, 1, 0)


async def test_passed_over_for_thirty_seconds_it_comes_first_in_the_pools_it_lacks(api, both_apis, clock):
    """Two pools, of which others always have one: it would never see both free."""
    here = site(api, scope(api), browsers=1)
    gpus = pool(api, here.box.scope, 1, "gpus")
    ours, theirs = (ok(each.acquire(1, lease_s=3600).send(api)) for each in (here.browsers, gpus))
    task = submitted(api, here.box, requirements=needs({"browsers": 1, "gpus": 1}))
    waiting = await asleep(both_apis[1], here.box.admit(waitMs=30_000))
    ok(release(ours).send(api))
    ours = ok(here.browsers.acquire(1, lease_s=3600).send(api))  # it is passed over
    clock.shift(31)
    await asyncio.sleep(4)  # the waiting call looks again every three seconds
    ok(release(ours).send(api))
    refused(here.browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")
    ok(release(theirs).send(api))
    assert (await admitted(waiting))["taskId"] == task


async def test_a_storm_of_workers_over_two_replicas_never_has_more_than_there_is(api, both_apis):
    """60 tasks, 3 browsers, 45 searches, money for 50: the accounts are exact at every instant."""
    here = site(api, scope(api), browsers=3, searches=45, minor=2000)
    ok(batch([here.box.task(str(i), requirements=RENDER) for i in range(60)]).send(api))
    open_now = most = done = 0

    async def work(client, chance):
        nonlocal open_now, most, done
        while True:
            answer = await here.box.admit(waitMs=1_500, lease_s=3600).send(client)
            if answer.status_code == 204:
                return
            told = ok(answer)
            open_now += len(told["grants"])
            most = max(most, open_now)
            await asyncio.sleep(chance.random() / 50)
            if chance.random() < 0.3:
                ok(await delivery(told).renew().send(client))
            open_now -= len(told["grants"])
            if chance.random() < 0.2:
                ok(await delivery(told).nack(delaySeconds=0).send(client))
                continue
            done += 1
            ok(await delivery(told).complete().send(client))
            key = told["taskId"]
            ok(await here.money.settle(told["reservations"][0], 40, key).send(client))

    async with asyncio.timeout(150):
        await asyncio.gather(*[work(both_apis[i % 2], random.Random(i)) for i in range(10)])
    assert 1 <= most <= 3
    used, consumed, reserved = here.left(api)
    assert (used, reserved) == (0, 0)
    assert consumed == 45 == len(read(api, types="allowance.consumed", limit=500))
    assert int(ok(here.money.view().send(api))["settledMinor"]) == 40 * done


async def test_opposite_orders_of_the_same_resources_end_in_no_deadlock(api, both_apis):
    """Names are locked in one order, whatever the order of the request; single calls cross them besides."""
    run = scope(api)
    here = site(api, run, browsers=4)
    gpus = pool(api, run, 4, "gpus")
    other = mailbox(api, run, "other")
    one, two = needs({"browsers": 1, "gpus": 1}), needs({"gpus": 1, "browsers": 1})
    for box, requirements in ((here.box, one), (other, two)):
        ok(batch([box.task(str(i), requirements=requirements) for i in range(40)]).send(api))

    async def work(box, client):
        while (answer := await box.admit(waitMs=1_000).send(client)).status_code != 204:
            ok(await delivery(ok(answer)).complete().send(client))

    async def cross(client, chance):
        for _ in range(40):
            for each in chance.sample([here.browsers, gpus], 2):
                answer = await each.acquire(1).send(client)
                if answer.status_code == 200:
                    ok(await release(answer.json()).send(client))
                else:
                    refused(answer, "CAPACITY_UNAVAILABLE")

    async with asyncio.timeout(150), asyncio.TaskGroup() as tasks:
        for i in range(4):
            tasks.create_task(work(here.box if i % 2 else other, both_apis[i // 2]))
            tasks.create_task(cross(both_apis[i % 2], random.Random(i)))
    counts = ok(api.get(f"/ops/runs/{run}"))["tasks"]
    assert counts["SUCCEEDED"] == 80
    assert here.left(api)[0] == 0


async def test_a_task_in_the_hands_of_another_call_hides_none_behind_other_needs(patient):
    """A call that stands still with the row of a task in its hands, as one of a replica that is stopped."""
    async with patient.client() as (_, client):
        run = ok(await client.post("/scopes", json={}), 201)["id"]
        for name in ("browsers", "gpus"):
            ok(await client.post("/permits", json={"name": name, "units": 2}), 201)
        box = Mailbox(ok(await client.post("/mailboxes", json={"name": "m"}), 201)["id"], run)
        held = ok(await box.submit("held", requirements=needs({"browsers": 1})).send(client), 201)
        free = ok(await box.submit("free", requirements=needs({"gpus": 1})).send(client), 201)
        row = "SELECT 1 FROM runstate.queue_ready WHERE message_id = $1::text::uuid FOR UPDATE"
        async with races.holding(patient.database_url, row, held["taskId"]):
            assert ok(await box.admit().send(client))["taskId"] == free["taskId"]
            assert (await box.admit().send(client)).status_code == 204
            waiting = asyncio.create_task(box.admit(waitMs=BIG_WAIT_MS).send(client))
            await asyncio.sleep(0.3)
        assert ok(await asyncio.wait_for(waiting, 12))["taskId"] == held["taskId"]


async def test_a_lapsed_delivery_whose_money_another_call_has_in_hand_holds_nobody_up(patient):
    """Taking back what has lapsed only tries a budget: others are delivered meanwhile, and it comes later."""
    async with patient.client() as (_, client):
        run = ok(await client.post("/scopes", json={}), 201)["id"]
        money = Budget(ok(await define(1000).send(client), 201)["id"], run)
        box = Mailbox(ok(await client.post("/mailboxes", json={"name": "m"}), 201)["id"], run)
        paid = ok(await box.submit("paid", requirements=needs(budgets={"model-usd": 40})).send(client), 201)
        ok(await box.admit(lease_s=1).send(client))
        free = ok(await box.submit("free").send(client), 201)
        row = "SELECT 1 FROM runstate.budgets WHERE id = $1::text::uuid FOR NO KEY UPDATE"
        async with races.holding(patient.database_url, row, money.id):
            await asyncio.sleep(1.2)
            assert ok(await box.admit().send(client))["taskId"] == free["taskId"]
        again = ok(await box.admit(waitMs=BIG_WAIT_MS).send(client))
        assert (again["taskId"], again["attempt"]) == (paid["taskId"], 2)
        assert ok(await money.view().send(client))["reservedMinor"] == "40"


async def test_a_blocked_task_that_ends_leaves_its_place(api, both_apis):
    here = site(api, scope(api), browsers=1)
    held = ok(here.browsers.acquire(1).send(api))
    task = submitted(api, here.box, requirements=RENDER)
    waiting = await asleep(both_apis[1], here.box.admit(waitMs=BIG_WAIT_MS))
    later = ok(here.browsers.wait(1, ttlSeconds=60).send(api))["waiterId"]
    ok(cancel(task).send(api))
    ok(release(held).send(api))
    assert ok(look(later, 12_000).send(api))["state"] == "SIGNALED"
    waiting.cancel()


def test_a_hundred_blocked_kinds_do_not_hide_the_one_that_can_run(api):
    run = scope(api)
    here = site(api, run, browsers=1)
    ok(here.browsers.acquire(1).send(api))
    for i in range(20):
        pool(api, run, 1, f"pool-{i}")
    ok(
        batch(
            [
                here.box.task(f"{i}-{j}", requirements=needs({"browsers": 1, f"pool-{i}": 1}))
                for i in range(20)
                for j in range(5)
            ]
        ).send(api)
    )
    free = submitted(api, here.box, "free", requirements=needs({"pool-7": 1}))
    assert ok(here.box.admit().send(api))["taskId"] == free
