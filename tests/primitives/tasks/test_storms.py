"""Admissions at the kernel (ten thousand with SCALE=13): none is asleep beside what it could have, two that
need the same things in opposite order end in no deadlock, and nothing is over-admitted."""

import asyncio
import os
import random
import uuid

import pytest

from tests.support import raw, spaces
from tests.support.backlog import Backlog
from tests.support.needs import needs

SCALE = int(os.environ.get("SCALE", "1"))
WAKES = 300 * SCALE
PAIRS = 400 * SCALE


@pytest.fixture
async def three(fresh_database, kernel_schema):
    space = spaces.create(fresh_database)
    async with raw.connections(fresh_database, kernel_schema, space.id, 3) as opened:
        yield opened


async def box(one, run, count, requirements, name="m"):
    mailbox = await one.made("mailbox_create", uuid.uuid4(), name, None, None, None, None)
    backlog = Backlog(one.connection, one.schema, one.space_id, str(mailbox))
    await backlog.fill(str(run), count, needs=requirements)
    return mailbox


async def test_an_admit_that_waits_as_a_unit_comes_free_takes_it_or_is_woken(three):
    """As a long poll does: look, go to sleep on what the look says, look again; the unit comes free at any
    moment between."""
    first, second, _ = three
    run, chance = await first.scope(), random.Random(5)
    pool = await first.pool(1)
    mailbox = await box(first, run, WAKES, needs({"browsers": 1}))

    async def poll():
        told, taken = await second.admit(mailbox, run, wait_s=20.0)
        asleep.set()
        if not taken:
            told, taken = await second.admit(mailbox, run, wait_s=20.0)
        looked.set()
        return told, taken

    async def release(grant, after):
        if after is not None:
            await after.wait()
        return await first.release(grant)

    woken = 0
    for _ in range(WAKES):
        grant = (await first.acquire(pool, run)).facts["grantId"]
        asleep, looked = asyncio.Event(), asyncio.Event()
        freed_after = chance.choice([None, asleep, looked])
        (told, taken), freed = await asyncio.gather(poll(), release(grant, freed_after))
        if not taken:
            topic = told.sleep[0].removeprefix("+")
            assert any(topic in wake for wake in freed.wake), "asleep beside a free unit, and nobody wakes it"
            woken += 1
            _, taken = await second.admit(mailbox, run)
        ((message, token),) = taken
        assert (await second.complete(message, token)).code is None
    assert woken > WAKES // 10, "too few came after the last look"


async def test_opposite_needs_many_times_without_a_deadlock(three):
    """Two mailboxes whose tasks name the same pools in opposite order, and a stranger who takes them one by
    one: the database is never asked to break a circle, and the sums hold throughout."""
    first, second, third = three
    run = await first.scope()
    pools = [await first.pool(2, name) for name in ("browsers", "gpus")]
    asks = ({"browsers": 1, "gpus": 1}, {"gpus": 1, "browsers": 1})
    boxes = [await box(first, run, PAIRS, needs(ask), name) for ask, name in zip(asks, "ab", strict=True)]
    done = [0, 0]

    async def work(one, n):
        while done[n] < PAIRS:
            _, taken = await one.admit(boxes[n], run, count=2)
            for message, token in taken:
                assert (await one.complete(message, token)).code is None
            done[n] += len(taken)

    async def cross():
        chance = random.Random(9)
        while sum(done) < 2 * PAIRS:
            held = [await third.acquire(pool, run) for pool in chance.sample(pools, 2)]
            for told in held:
                if told.code is None:
                    await third.release(told.facts["grantId"])
            for pool in pools:
                seen = (await third("pool_view", pool)).facts
                assert 0 <= seen["unitsUsed"] <= 2

    async with asyncio.timeout(240):
        await asyncio.gather(work(first, 0), work(second, 1), cross())
    assert done == [PAIRS, PAIRS]
    for pool in pools:
        assert (await first("pool_view", pool)).facts["unitsUsed"] == 0
