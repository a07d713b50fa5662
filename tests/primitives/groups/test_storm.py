"""Groups that end each other's work, over two replicas: no call is refused but for its state, no two wait for
each other in a circle, and when all is quiet nothing is held."""

import asyncio
import random

from tests.support import database, races
from tests.support.builders import end, ok, scope
from tests.support.groups import group, member
from tests.support.journal import events
from tests.support.needs import RENDER, site
from tests.support.queues import cancel, delivery

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
GROUPS, MEMBERS = 6, 8


class Crowd:
    """Workers, judges and those who change their minds, until every group has its outcome."""

    def __init__(self, box, tasks):
        self.box = box
        self.tasks = tasks
        self.over = asyncio.Event()
        self._chance = random.Random(11)

    async def send(self, client, call):
        response = await client.request(call.method, call.path, json=call.body)
        assert response.is_success or response.status_code == 409, response.text
        return response.json() if response.content else {}

    async def work(self, client, holder):
        while not self.over.is_set():
            few = {"max": self._chance.randint(2, 3)}
            got = await self.send(client, self.box.admit_below(holder, 1.0, **few))
            for one in got.get("admitted", []):
                await self._settle(client, delivery(one), self._chance.random())

    async def _settle(self, client, held, how):
        if how < 0.6:
            await self.send(client, held.complete(1))
        elif how < 0.8:
            await self.send(client, held.nack(retry=how < 0.7, delaySeconds=0))
        # the others lapse

    async def judge(self, client):
        while not self.over.is_set():
            of = self._chance.choice(list(self.tasks))
            for one in self._chance.sample(self.tasks[of], 3):
                verdict = self._chance.choice(["accept", "accept", "reject"])
                await self.send(client, of.judge(one, verdict))
            if self._chance.random() < 0.1:
                await self.send(client, cancel(self._chance.choice(self.tasks[of])))

    async def watch(self, client):
        async def finalized():
            seen = [(await self.send(client, of.view()))["state"] for of in self.tasks]
            return seen.count("FINALIZED") == len(self.tasks)

        await races.until(finalized, patience_s=120, what="all outcomes")
        self.over.set()


async def test_accepts_completions_cancels_and_lapses_in_any_order_meet_no_deadlock(
    both_apis, api, database_url, space
):
    root = scope(api)
    place = site(api, root, browsers=6, searches=100_000, minor=10**6)
    before = database.fetchval(database_url, DEADLOCKS)
    made = [group(api, place.box, "N_ACCEPTED", threshold=3, expectedMembers=MEMBERS) for _ in range(GROUPS)]
    crowd = Crowd(
        place.box,
        {g: [member(api, g, f"k{n}", requirements=RENDER) for n in range(MEMBERS)] for g in made},
    )
    first, second = both_apis
    workers = [crowd.work(client, name) for client, name in ((first, "ann"), (second, "bob"), (first, "cid"))]
    await asyncio.gather(*workers, crowd.judge(first), crowd.judge(second), crowd.watch(second))
    told = [e.aggregate for e in events(database_url, space.id, "group.finalized")]
    assert sorted(told) == sorted(g.id for g in made)

    def used():
        return ok(place.browsers.view().send(api))["unitsUsed"]

    races.until_blocking(lambda: used() == 0, what="the end of the last lease")
    ok(end(root).send(api))
    assert database.fetchval(database_url, DEADLOCKS) == before
