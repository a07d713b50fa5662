import asyncio
import time

import pytest

from runstate import NotFoundError, UnavailableError, WaitTimeoutError
from runstate._waits import POLL_MS, until_answered, within


async def test_it_asks_until_there_is_an_answer_and_no_longer_than_it_was_told():
    asked = []

    async def ask(wait_ms):
        asked.append(wait_ms)
        return None if len(asked) < 3 else "found"

    assert await until_answered(ask, timeout_s=None, what="it", poll_s=0.01) == "found"
    assert asked == [POLL_MS] * 3
    asked.clear()
    assert await until_answered(ask, timeout_s=5, what="it", poll_s=0.01) == "found"
    assert all(0 < wait_ms <= 5_000 for wait_ms in asked)


async def test_what_is_not_held_is_asked_slowly():
    asked = []

    async def ask(wait_ms):
        asked.append(time.monotonic())

    with pytest.raises(WaitTimeoutError, match=r"it did not come within 0\.35 s"):
        await until_answered(ask, timeout_s=0.35, what="it", poll_s=0.1)
    assert 3 <= len(asked) <= 5


async def test_not_even_a_wait_of_nothing_goes_unasked():
    async def ask(wait_ms):
        assert wait_ms == 0
        return 5

    assert await until_answered(ask, timeout_s=0, what="it") == 5


async def test_an_outage_is_not_yet_and_a_refusal_is_an_answer():
    told = []

    async def ask(wait_ms):
        if len(told) < 2:
            raise UnavailableError("away")
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError):
        await until_answered(ask, timeout_s=None, what="it", on_outage=told.append)
    assert [str(error) for error in told] == ["away", "away"]


async def test_a_question_that_hangs_is_given_up_in_time():
    cancelled = []

    async def ask(wait_ms):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(wait_ms)
            raise

    started = time.monotonic()
    with pytest.raises(WaitTimeoutError):
        await until_answered(ask, timeout_s=0.1, what="it")
    assert time.monotonic() - started < 5
    assert len(cancelled) == 1
    assert await within(asyncio.sleep(0, "done"), 5) == "done"


async def test_a_wait_that_is_cancelled_takes_its_question_along():
    cancelled = asyncio.Event()

    async def ask(wait_ms):
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    waiting = asyncio.ensure_future(until_answered(ask, timeout_s=30, what="it"))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(cancelled.wait(), 5)
