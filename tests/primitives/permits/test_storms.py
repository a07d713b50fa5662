"""Races at the kernel: nobody sleeps beside a unit that he could have. SCALE=10 makes ten thousand."""

import asyncio
import os
import random

import pytest

from tests.support import raw, spaces

ROUNDS = 250 * int(os.environ.get("SCALE", "1"))


@pytest.fixture
async def three(fresh_database, kernel_schema):
    space = spaces.create(fresh_database)
    async with raw.connections(fresh_database, kernel_schema, space.id, 3) as opened:
        yield opened


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
