"""Races at the kernel: nobody sleeps beside a unit that he could have. SCALE=10 makes ten thousand."""

import asyncio
import os
import random

import pytest

from tests.support import raw, spaces
from tests.support.clock import Clock

ROUNDS = 250 * int(os.environ.get("SCALE", "1"))


@pytest.fixture
async def three(fresh_database, kernel_schema):
    space = spaces.create(fresh_database)
    async with raw.connections(fresh_database, kernel_schema, space.id, 3) as opened:
        yield opened


async def test_of_five_hundred_waiters_half_die_and_the_others_are_served_in_order(
    three, fresh_database, kernel_schema
):
    """Those who are not looked after any more hold nobody up, one by one or all at once."""
    first, second, _ = three
    run = await first.scope()
    pool = await first.pool(1)
    grant = (await first.acquire(pool, run)).facts["grantId"]
    line = [await second.wait(pool, run, 60.0 if n % 2 else 3600.0) for n in range(500)]
    assert (await first("pool_view", pool)).facts["waiting"] == 500
    Clock(fresh_database).shift(61)
    assert (await first("pool_view", pool)).facts["waiting"] == 250
    for waiter in line[::2]:
        await first.release(grant)
        assert await state(second, waiter) == "SIGNALED"
        grant = (await second.acquire(pool, run, waiter)).facts["grantId"]
    assert {await state(second, w) for w in line[1::2]} == {"EXPIRED"}
    await first.release(grant)
    assert (await first("pool_view", pool)).facts["unitsUsed"] == 0


async def state(one, waiter):
    return (await one("waiter_look", waiter)).facts["state"]


@pytest.mark.parametrize(
    "ahead", ["nobody", "one who leaves", "one who is called and takes it", "one who is missed"]
)
async def test_a_waiter_who_comes_as_a_unit_comes_free_is_called(three, ahead):
    """The release of the only unit, and at the same moment somebody joins the line, or leaves it."""
    first, second, third = three
    run, chance = await first.scope(), random.Random(ahead)
    pool = await first.pool(1)
    for _ in range(ROUNDS):
        grant = (await first.acquire(pool, run)).facts["grantId"]
        before = (
            [] if ahead == "nobody" else [await third.wait(pool, run, 0.0 if "missed" in ahead else 60.0)]
        )
        calls = [first.release(grant), second.wait(pool, run)]
        if ahead == "one who leaves":
            calls.append(third("waiter_cancel", before[0], None, None))
        chance.shuffle(calls)
        told = await asyncio.gather(*calls)
        (waiter,) = [t for t in told if not isinstance(t, raw.Told)]
        if ahead == "one who is called and takes it":
            assert await state(third, before[0]) == "SIGNALED"
            taken = await third.acquire(pool, run, before[0])
            await third.release(taken.facts["grantId"])
        assert await state(second, waiter) == "SIGNALED", "asleep beside a free unit"
        taken = await second.acquire(pool, run, waiter)
        assert (await second.release(taken.facts["grantId"])).code is None
    assert (await first("pool_view", pool)).facts["unitsUsed"] == 0
