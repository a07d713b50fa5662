"""What the kernel does with the money of deliveries, and whom it wakes: what no route calls alone."""

import json
import uuid
from datetime import timedelta

import pytest

from tests.support import database, spaces
from tests.support.budgets import budget, reserved
from tests.support.builders import ok, scope


class Floor:
    """The functions of budgets, called as other rooms call them: inside a transaction of theirs."""

    def __init__(self, connection, schema, space_id):
        self._sql, self._schema, self._space = connection, schema, space_id

    async def call(self, function, *args, columns="*"):
        places = ", ".join(f"${n}" for n in range(1, len(args) + 2))
        sql = f"SELECT {columns} FROM {self._schema}.{function}({places})"
        return await self._sql.fetchrow(sql, self._space, *args)

    async def make(self, minor=1000):
        self.scope, self.budget = uuid.uuid4(), uuid.uuid4()
        await self.call("scope_create", self.scope, None, None, None, 10, 32, None, None)
        await self.call("budget_create", self.budget, str(self.budget), "USD", 2, minor, False, None, None)
        return self.budget

    async def now(self):
        return await self._sql.fetchval(f"SELECT {self._schema}.kernel_now()")

    async def reserve_for(self, message, minor, budget=None):
        """As an admission does, behind the budget's lock."""
        reservation = uuid.uuid4()
        async with self._sql.transaction():
            where = budget or self.budget
            lock = "SELECT 1 FROM runstate.budgets WHERE id = $1 FOR NO KEY UPDATE"
            await self._sql.execute(lock, where)
            args = (where, reservation, self.scope, "worker", minor, None, message, await self.now())
            await self.call("budget_reserve_locked", *args)
        return reservation

    async def view(self, budget=None):
        seen = json.loads((await self.call("budget_view", budget or self.budget))["facts"])
        states = {r["id"]: (r["state"], r["reservedMinor"]) for r in seen["reservations"]}
        return int(seen["reservedMinor"]), int(seen["settledMinor"]), states

    def topic(self, budget=None):
        return self._sql.fetchval(
            f"SELECT {self._schema}.budget_topic($1, $2)", self._space, budget or self.budget
        )


@pytest.fixture
async def floor(database_url, kernel_schema):
    space = spaces.create(database_url)
    async with database.connected(database_url) as connection:
        made = Floor(connection, kernel_schema, space.id)
        await made.make()
        yield made


async def test_what_a_delivery_holds_is_voided_with_it_in_every_budget_and_once(floor):
    first = floor.budget
    second = await floor.make()
    message, other = uuid.uuid4(), uuid.uuid4()
    one, two = await floor.reserve_for(message, 100, first), await floor.reserve_for(message, 200, second)
    kept = await floor.reserve_for(other, 300, first)
    await floor.call("budget_settle", second, two, 50, "part", False, None, None)
    woken = (await floor.call("budget_void_of", message, columns="budget_void_of"))[0]
    assert set(woken) == {await floor.topic(first), await floor.topic(second)}
    assert await floor.view(first) == (300, 0, {str(one): ("VOIDED", "0"), str(kept): ("ACTIVE", "300")})
    assert await floor.view(second) == (0, 50, {str(two): ("VOIDED", "0")})
    assert (await floor.call("budget_void_of", message, columns="budget_void_of"))[0] == []


async def test_a_delivery_that_is_complete_leaves_its_worker_time_to_settle(floor, clock):
    message = uuid.uuid4()
    it = await floor.reserve_for(message, 100)
    until = await floor.now() + timedelta(hours=1)
    await floor.call("budget_settle_by", message, until)
    clock.shift(3_599)
    assert await floor.view() == (100, 0, {str(it): ("ACTIVE", "100")})
    clock.shift(2)
    assert await floor.view() == (0, 0, {str(it): ("STALE", "0")})


async def test_whoever_frees_money_wakes_those_who_wait_for_it(floor, clock):
    topic = await floor.topic()

    async def wake(function, *args):
        return (await floor.call(function, floor.budget, *args, None, None))["wake"]

    async def reserved(minor, settle_by=None):
        it = uuid.uuid4()
        await floor.call("budget_reserve", floor.budget, it, floor.scope, "a", minor, settle_by, None, None)
        return it

    assert topic in await wake("budget_void", await reserved(100), "v")
    assert topic in await wake("budget_limit", 2000)
    assert topic not in (await wake("budget_limit", 1900) or [])
    it = await reserved(100)
    assert topic not in (await wake("budget_settle", it, 40, "s", False) or [])
    await reserved(500, await floor.now() + timedelta(seconds=60))
    clock.shift(61)
    assert topic in await wake("budget_settle", it, 10, "t", False)  # it has written the other one off
    await reserved(500, await floor.now() + timedelta(seconds=60))
    clock.shift(61)
    swept = await floor._sql.fetchrow(f"SELECT count, wake FROM {floor._schema}.budget_sweep(10)")
    assert topic in swept["wake"]


CROWD = """
INSERT INTO runstate.budget_reservations (space_id, id, budget_id, scope_id, holder, reserved_minor, held,
  state, settle_by, created_at)
SELECT $1, gen_random_uuid(), $2::text::uuid, $3::text::uuid, 'crowd', 1, true, 'ACTIVE', $4, $4
  FROM generate_series(1, 999)
"""
HELD = "UPDATE runstate.budgets SET reserved_minor = 999 WHERE space_id = $1 AND id = $2::text::uuid"


async def test_a_crowd_of_stale_reservations_stands_in_nobody_s_way(floor, api, clock, space, database_url):
    """One call may not write off all: the view is right at once, and a reserve gets all that is due."""
    money = budget(api, scope(api), 1000)
    at = await floor.now() + timedelta(seconds=60)
    database.execute(database_url, CROWD, space.id, money.id, money.scope, at)
    database.execute(database_url, HELD, space.id, money.id)
    late = ok(money.view().send(api))["reservations"][500]["id"]
    clock.shift(61)
    assert ok(money.view().send(api))["availableMinor"] == "1000"
    assert ok(money.settle(late, 1).send(api))["state"] == "SETTLED"
    reserved(api, money, 999)
    assert ok(money.view().send(api))["reservedMinor"] == "999"
    assert ok(money.entries(limit=500).send(api))["nextCursor"]


async def test_a_delivery_gets_all_that_is_due_of_a_crowd_in_one_transaction(floor, clock, database_url):
    at = await floor.now() + timedelta(seconds=60)
    database.execute(database_url, CROWD, floor._space, str(floor.budget), str(floor.scope), at)
    database.execute(database_url, HELD, floor._space, str(floor.budget))
    clock.shift(61)
    await floor.reserve_for(uuid.uuid4(), 1000)
    reserved_now, settled, _ = await floor.view()
    assert (reserved_now, settled) == (1000, 0)


async def test_a_clock_that_steps_back_brings_nothing_back_to_life(floor, api, clock):
    money = budget(api, scope(api), 1000)
    it = reserved(api, money, 900, settleBy=(await floor.now() + timedelta(seconds=60)).isoformat())
    clock.shift(61)
    other = reserved(api, money, 1000)
    clock.shift(-7200)
    seen = ok(money.view().send(api))
    assert (seen["reservedMinor"], seen["availableMinor"]) == ("1000", "0")
    assert {r["id"]: r["state"] for r in seen["reservations"]} == {it: "STALE", other: "ACTIVE"}
