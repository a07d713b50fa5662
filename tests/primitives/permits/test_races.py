"""Many at one pool: never more lent than there is, first come first served, nobody asleep beside a free
unit."""

import asyncio
import random

import pytest

from tests.support import database, races
from tests.support.builders import end, ok, refused, scope
from tests.support.permits import Pool, leave, look, pool, release, renew

POOL = """
SELECT b.units_total, b.units_used, b.units_signaled,
    (SELECT COALESCE(sum(g.units), 0) FROM runstate.grants g
      WHERE g.pool_id = b.id AND g.ended IS NULL) AS lent,
    (SELECT COALESCE(sum(w.units), 0) FROM runstate.line_waiters w
      WHERE w.resource_id = b.id AND w.state = 'SIGNALED') AS held
  FROM runstate.pools b WHERE b.id = $1::text::uuid
"""
ROW = "SELECT 1 FROM runstate.pools WHERE id = $1::text::uuid FOR NO KEY UPDATE"


def balanced(url, browsers):
    """The books of a pool agree with its grants and its line."""
    (row,) = database.fetch(url, POOL, browsers.id)
    assert row["units_used"] == row["lent"]
    assert row["units_signaled"] == row["held"]
    assert row["units_used"] + row["units_signaled"] <= row["units_total"]
    return row


async def test_of_fifty_callers_over_two_replicas_as_many_get_a_unit_as_there_are(api, storm, database_url):
    browsers = pool(api, scope(api), 7)
    answers = await storm([browsers.acquire(holder=f"worker-{i}") for i in range(50)])
    assert sum(a.status_code == 200 for a in answers) == 7
    for answer in answers:
        if answer.status_code != 200:
            refused(answer, "CAPACITY_UNAVAILABLE")
    assert balanced(database_url, browsers)["units_used"] == 7


async def test_first_come_first_served_over_two_replicas(api, both_apis):
    """Thirty come one after the other, at either replica, and are served in that order."""
    browsers = pool(api, scope(api), 1)
    first = ok(browsers.acquire(lease_s=3600).send(api))
    waiters = [ok(browsers.wait(holder=f"worker-{i}").send(api))["waiterId"] for i in range(30)]
    served: list[int] = []

    async def stand(i, client):
        while ok(await look(waiters[i], 30_000).send(client))["state"] != "SIGNALED":
            pass
        grant = ok(await browsers.acquire(waiterId=waiters[i], lease_s=3600).send(client))
        served.append(i)
        ok(await release(grant).send(client))

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for i in range(30):
            tasks.create_task(stand(i, both_apis[i % 2]))
        ok(await release(first).send(both_apis[0]))
    assert served == list(range(30))


class Crowd:
    """Those who use one pool, each in its own way; `most` is what they ever held at once."""

    def __init__(self, browsers):
        self.browsers = browsers
        self.lent = 0
        self.most = 0

    async def use(self, client, chance, units, **how):
        """Take units, renew a few times, give them back."""
        answer = await self.browsers.acquire(units, lease_s=3600, **how).send(client)
        if answer.status_code != 200:
            return
        self.lent += units
        self.most = max(self.most, self.lent)
        for _ in range(chance.randrange(3)):
            ok(await renew(answer.json()).send(client))
        self.lent -= units
        ok(await release(answer.json()).send(client))

    async def stand(self, client, chance, units):
        """Stand in the line, and come when called; or leave, or never be seen again."""
        waiter = ok(await self.browsers.wait(units, ttlSeconds=1).send(client))["waiterId"]
        if chance.random() < 0.3:
            return
        while (seen := ok(await look(waiter, 300).send(client)))["state"] == "WAITING":
            if chance.random() < 0.2:
                ok(await leave(waiter).send(client))
                return
        if seen["state"] == "SIGNALED" and chance.random() < 0.8:
            await self.use(client, chance, units, waiterId=waiter)


async def test_a_storm_never_lends_more_than_there_is_and_ends_with_all_units_back(
    api, both_apis, database_url
):
    """Acquire, wait, leave, renew, release and plain disappearance, all at once on one pool."""
    browsers = pool(api, scope(api), 5)
    crowd = Crowd(browsers)

    async def go(i):
        chance = random.Random(i)
        for _ in range(12):
            way = crowd.use if chance.random() < 0.5 else crowd.stand
            await way(both_apis[i % 2], chance, chance.randrange(1, 4))
            if chance.random() < 0.1:
                balanced(database_url, browsers)

    async with asyncio.timeout(180):
        await asyncio.gather(*[go(i) for i in range(16)])
    assert 0 < crowd.most <= 5
    await races.until(lambda: _empty(both_apis[0], browsers), what="the line to empty")
    assert balanced(database_url, browsers)["units_used"] == 0


async def _empty(client, browsers):
    """Whether a whole pool can be had again: it can when nobody is left whom anybody would have to miss."""
    answer = await browsers.acquire(5).send(client)
    if answer.status_code == 200:
        ok(await release(answer.json()).send(client))
    return answer.status_code == 200


@pytest.mark.parametrize("by", ["release", "lapse", "resize", "the head leaves", "the head's scope ends"])
async def test_whoever_waits_is_called_as_soon_as_there_is_a_unit(api, both_apis, clock, by):
    """By whatever a unit comes free, the one at the head wakes; in no case by being asked again."""
    browsers = pool(api, scope(api), 2)
    grant = ok(browsers.acquire(1, lease_s=60).send(api))
    other = scope(api)
    ahead = None
    if by.startswith("the head"):
        ahead = ok(Pool(browsers.id, other).wait(2, ttlSeconds=3600).send(api))["waiterId"]
    else:
        ok(browsers.acquire(1, lease_s=3600).send(api))
    waiter = ok(browsers.wait(1, ttlSeconds=3600).send(api))["waiterId"]

    asleep = asyncio.create_task(look(waiter, 30_000).send(both_apis[1]))
    await asyncio.sleep(0.3)
    assert not asleep.done()
    calls = {
        "release": lambda: release(grant),
        "resize": lambda: browsers.resize(3),
        "the head leaves": lambda: leave(ahead),
        "the head's scope ends": lambda: end(other),
    }
    if by == "lapse":
        clock.shift(61)
    else:
        ok(await calls[by]().send(both_apis[0]))
    assert ok(await asyncio.wait_for(asleep, 10))["state"] == "SIGNALED"


async def test_a_lease_that_ends_while_its_renewal_waits_is_not_revived(api, database_url, clock):
    browsers = pool(api, scope(api), 1)
    grant = ok(browsers.acquire(lease_s=60).send(api))
    row = "SELECT 1 FROM runstate.grants WHERE id = $1::text::uuid FOR NO KEY UPDATE"
    async with races.holding(database_url, row, grant["grantId"]) as holder:
        late = asyncio.create_task(asyncio.to_thread(renew(grant, 600).send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        clock.shift(61)
    refused(await late, "STALE_CLAIM")
    assert ok(browsers.acquire().send(api))["units"] == 1


async def test_an_acquire_that_waits_for_the_pool_while_its_scope_ends_takes_nothing(patient):
    async with patient.client() as (_, client):
        root = ok(await client.post("/scopes", json={}), 201)["id"]
        made = ok(await client.post("/permits", json={"name": "browsers", "units": 1}), 201)
        browsers = Pool(made["id"], root)
        async with races.holding(patient.database_url, ROW, browsers.id) as holder:
            acquire = asyncio.create_task(browsers.acquire().send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            cancel = asyncio.create_task(end(root).send(client))
            await races.until_waiting(patient.database_url, count=2)
        ok(await acquire)  # it was first at the gate
        ok(await cancel)
        refused(await browsers.acquire().send(client), "SCOPE_CANCELLED")
