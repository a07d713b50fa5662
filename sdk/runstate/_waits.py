"""Waits with a bound: long polls, one after the other, until there is an answer or the time is over."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from runstate import _retry
from runstate.errors import RunstateError, WaitTimeoutError

T = TypeVar("T")

POLL_MS = 25_000  # the server allows 30 s; load balancers often cut at 30 s
POLL_S_MIN = 0.5  # a poll that comes back sooner without an answer was not held: ask slowly
_POLL_S_FLOOR = 0.01
_LAST_ANSWER_S = 1.0  # how long after its time a poll may still bring what the server has said


async def until_answered(
    ask: Callable[[int], Awaitable[T | None]],
    *,
    timeout_s: float | None,
    what: str,
    poll_s: float = POLL_S_MIN,
    on_outage: Callable[[RunstateError], Any] | None = None,
) -> T:
    """What `ask(wait_ms)` returns once it is not None. Asked again at once when the server has held the poll,
    else `poll_s` after it was asked; a server that is away or asks for patience is "not yet", told to
    `on_outage`. Raises WaitTimeoutError after `timeout_s`, and whatever else `ask` is refused with."""
    started = time.monotonic()
    ends_at = math.inf if timeout_s is None else started + timeout_s
    failures = 0
    while True:
        asked_at = time.monotonic()
        left_s = max(0.0, ends_at - asked_at)
        try:
            answer = await within(ask(int(min(POLL_MS, left_s * 1000))), left_s + _LAST_ANSWER_S)
        except RunstateError as error:
            if not _retry.is_not_yet(error):
                raise
            failures += 1
            pause_s = _retry.wait_pause_s(failures, error.retry_after_ms)
            if on_outage is not None:
                on_outage(error)
        else:
            if answer is not None:
                return answer
            failures = 0
            pause_s = max(0.0, max(poll_s, _POLL_S_FLOOR) - (time.monotonic() - asked_at))
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            raise WaitTimeoutError(f"{what} did not come within {timeout_s:g} s")
        await asyncio.sleep(min(pause_s, left_s))


async def within(asked: Awaitable[T], seconds: float) -> T | None:
    """What `asked` returns, or None when it takes longer; it is cancelled then."""
    if math.isinf(seconds):
        return await asked
    # Not asyncio.wait_for: on 3.10 it can swallow a cancellation that arrives together with the answer.
    task = asyncio.ensure_future(asked)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        await asyncio.wait({task})
    return None if task.cancelled() else task.result()
