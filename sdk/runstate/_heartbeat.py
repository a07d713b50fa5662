"""Keeps a lease alive from the SDK's own thread, and stops trusting it before the server would.

A lease is trusted until `lease_s` after the request that granted or last renewed it was *sent*: the server
counted from a later moment, so it cannot have given the lease away by then. Losing it is final."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from runstate import _retry
from runstate._background import shared
from runstate._clock import now
from runstate.errors import LeaseLostError, RunstateError

Renew = Callable[[float], Awaitable[Any]]  # asks the server once, answering within the seconds given
OnLost = Callable[[RunstateError], Any]

_INTERVAL_S_MIN = 1.0
_JITTER = 0.1
_MARGIN = 0.02  # of the lease: for clocks that do not run at the same speed
_MARGIN_S_MAX = 0.5
_UNPROVEN = 1 / 3  # of the lease: how old its grant may be without a renewal to prove it
_INSTANT_S = 0.001
_ATTEMPT_S_MIN = 0.2
_ATTEMPT_S_MAX = 10.0


def interval_s(lease_s: float) -> float:
    """Seconds between renewals: a third of the lease, at least 1 s, never more than half of it; ±10 %."""
    interval = max(lease_s / 3, min(_INTERVAL_S_MIN, lease_s / 2))
    return interval * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads renewals out


def trusted_s(lease_s: float) -> float:
    """Seconds after sending the request for which the lease it got is trusted."""
    return lease_s - min(lease_s * _MARGIN, _MARGIN_S_MAX)


async def granted_at(renew: Renew, *, lease_s: float, asked_at: float) -> float:
    """Since when a lease that has just been received may be trusted: since it was
    asked for; or, when the answer took long, in a long poll or because this process stood still, since a
    renewal made now, so that nothing is begun under a lease that has lapsed on its way. Raises what the
    renewal is refused with."""
    if now() - asked_at <= lease_s * _UNPROVEN:
        return asked_at
    ends_at = now() + lease_s
    failures = 0
    while True:
        sent_at = now()
        try:
            await renew(min(_ATTEMPT_S_MAX, lease_s))
        except RunstateError as error:
            if not _retry.is_transient(error) or now() > ends_at:
                raise
            failures += 1
        else:
            return sent_at
        await asyncio.sleep(_retry.attempt_pause_s(failures))


class Heartbeat:
    """The renewals of one lease, from `start` until `stop` or its loss. `on_lost` is called with the reason,
    on whichever thread finds out: what the server refused with, or LeaseLostError when time ran out."""

    def __init__(self, renew: Renew, *, what: str, lease_s: float, sent_at: float, on_lost: OnLost) -> None:
        self._renew = renew
        self._what = what
        self._lease_s = lease_s
        self._trusted_until = sent_at + trusted_s(lease_s)
        self._on_lost = on_lost
        self._due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._resting = False
        self._stopped = False
        self._lost: RunstateError | None = None

    @property
    def lost(self) -> RunstateError | None:
        """Why the lease is no longer ours; None while it is. True to the moment, from any thread."""
        if now() >= self._trusted_until:
            self._lose(self._ran_out())
        return self._lost

    @property
    def beating(self) -> bool:
        """Whether renewals go on."""
        return not self._stopped and self._lost is None

    def start(self, watch: Coroutine[Any, Any, None] | None = None) -> None:
        """Begins to renew; only on the SDK's own loop. `watch` runs beside it, and is ended with it."""
        self._tasks = [shared.spawn(each) for each in (self._beat(), watch) if each is not None]

    def beat_now(self) -> None:
        """Renews at once instead of when it is due: something suggests that the server may refuse. From the
        SDK's own loop only."""
        self._due.set()

    def extended(self, lease_s: float, sent_at: float) -> None:
        """Somebody else has renewed the lease, by a request sent at `sent_at`; from any thread."""
        until = sent_at + trusted_s(lease_s)
        shared.soon(lambda: self._extend(until))

    def rest(self) -> None:
        """Renews no more, from any thread; the lease is lost when its time is over, unless it is stopped."""
        self._resting = True
        shared.soon(self._due.set)

    def stop(self) -> None:
        """Is over, from any thread: renews no more, and is not lost any more."""
        self._stopped = True
        for task in self._tasks:
            shared.soon(task.cancel)

    async def _beat(self) -> None:
        while self.beating:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._due.wait(), interval_s(self._lease_s))
            self._due.clear()
            while self._resting:
                if self.lost is not None:
                    return
                await asyncio.sleep(max(_INSTANT_S, self._trusted_until - now()))
            await self._renew_in_time()

    async def _renew_in_time(self) -> None:
        failures = 0
        while True:
            sent_at = now()
            left_s = self._trusted_until - sent_at
            if left_s <= 0:
                return self._lose(self._ran_out())
            try:
                # Half of what is left, so that an attempt into the void leaves time for another one.
                await self._renew(min(_ATTEMPT_S_MAX, max(_ATTEMPT_S_MIN, left_s / 2)))
            except RunstateError as error:
                if not _retry.is_transient(error):
                    return self._lose(error)
                failures += 1
            except Exception as error:  # noqa: BLE001 - a lease that cannot be renewed is lost, however that came
                return self._lose(LeaseLostError(f"{self._what} cannot be renewed: {error!r}"))
            else:
                self._extend(sent_at + trusted_s(self._lease_s))
                return None
            left_s = self._trusted_until - now()
            await asyncio.sleep(max(0.0, min(_retry.attempt_pause_s(failures), left_s)))

    def _extend(self, until: float) -> None:
        self._trusted_until = max(self._trusted_until, until)

    def _lose(self, reason: RunstateError) -> None:
        if self._lost is None and not self._stopped:
            self._lost = reason
            self._on_lost(reason)

    def _ran_out(self) -> LeaseLostError:
        return LeaseLostError(f"{self._what} could not be renewed before it ran out ({self._lease_s:g} s)")
