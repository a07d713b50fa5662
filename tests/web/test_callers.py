"""Who calls, while the database is away."""

import asyncio

import pytest

from runstate_server.foundation.errors import Code, Refusal
from runstate_server.web.caller import KeyRing, KnownKey
from tests.support import races

KNOWN = KnownKey("id", "label", frozenset(), {"s": False}, None)


class Looks:
    """Looks for keys that end when a test says so."""

    def __init__(self):
        self.begun = []

    async def find(self, _digest):
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    async def until(self, count):
        async def begun():
            return len(self.begun) == count

        await races.until(begun, what=f"{count} looks")


async def test_a_request_that_joins_a_look_about_to_give_up_still_waits_its_own_time():
    looks = Looks()
    ring = KeyRing(looks.find, patience_s=30)
    first, second = (asyncio.create_task(ring.caller("Bearer k", "s")) for _ in range(2))
    await looks.until(1)
    looks.begun[0].set_exception(Refusal(Code.UNAVAILABLE, "away"))
    with pytest.raises(Refusal, match="away"):
        await first
    await looks.until(2)
    looks.begun[1].set_result(KNOWN)
    assert (await second).key_id == "id"


async def test_a_request_waits_no_longer_than_its_own_time():
    looks = Looks()
    ring = KeyRing(looks.find, patience_s=0)
    requests = [asyncio.create_task(ring.caller("Bearer k", "s")) for _ in range(2)]
    await looks.until(1)
    looks.begun[0].set_exception(Refusal(Code.UNAVAILABLE, "away"))
    for request in requests:
        with pytest.raises(Refusal, match="away"):
            await request
    assert len(looks.begun) == 1
