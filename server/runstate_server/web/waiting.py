"""What the long polls of this process are asleep for, told to the other replicas about once a second.

A report for people: nothing decides by it. Only what has been asleep for a while is told, in one statement
that says what has come and what has gone, and in none when nothing has. Workers that wait for work are
blocked by nobody, and are not told of.
"""

import asyncio
import contextlib
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runstate_server.foundation import bounds, db
from runstate_server.kernel.call import Reply

log = logging.getLogger("runstate.waiting")

_EVERY_S: Final = 1.0
_TOLD_AFTER_S: Final = 0.5
# Clients wait by one poll after the other: one that comes so soon after another of its kind goes on with it.
_RETURNS_WITHIN_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Waiting:
    """What somebody waits for. `resource`: a key, a name or an id; holder and session where the call says who
    waits."""

    kind: str
    resource: str
    scope_id: uuid.UUID
    holder: str | None = None
    session: str | None = None
    units: int | None = None


Describe = Callable[[Reply], Waiting]


@dataclass(slots=True, eq=False)
class Stay:
    """One wait, of one poll or of several in a row; instants are the loop's."""

    id: int
    space_id: str
    waiting: Waiting
    since: float
    written: bool = False  # perhaps
    told: bool = False  # for certain
    returns_by: float | None = None  # set between two polls

    def may_return(self, now: float) -> None:
        """Its poll ended without an answer: another may go on with the wait."""
        self.returns_by = now + _RETURNS_WITHIN_S


# (space ids, ids) of what has gone, and the rows that have come
Publish = Callable[[Sequence[Stay], Sequence[Stay], float], Awaitable[Any]]


class Waiters:
    """The waits of one process."""

    def __init__(self) -> None:
        self._stays: dict[int, Stay] = {}
        self._gone: dict[int, Stay] = {}
        self._ids = itertools.count(1)
        self._between: dict[tuple[str, Waiting], list[Stay]] = {}
        self._failing = False

    @contextlib.contextmanager
    def asleep(self, space_id: str, waiting: Waiting) -> Iterator[Stay]:
        """While the block is in a poll that waits for this. It is over with the block, unless it
        `may_return`."""
        stay = self._resumed(space_id, waiting)
        try:
            yield stay
        finally:
            if stay.returns_by is None:
                self._over(stay)
            else:
                self._between.setdefault((space_id, waiting), []).append(stay)

    @property
    def count(self) -> int:
        """How many wait here."""
        return len(self._stays)

    async def run(self, publish: Publish) -> None:
        """Tell, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.tell(publish)

    async def tell(self, publish: Publish) -> None:
        """Tell what has changed since it was last told; what cannot be told now is told the next time."""
        now = asyncio.get_running_loop().time()
        self._forget_those_who_stayed_away(now)
        fresh = (s for s in self._stays.values() if not s.told and now - s.since >= _TOLD_AFTER_S)
        come = list(itertools.islice(fresh, bounds.waits_told_max))
        gone = list(itertools.islice(self._gone.values(), bounds.waits_told_max))
        if not come and not gone:
            return
        for stay in come:
            stay.written = True  # whatever comes of it: it has to be taken back once the wait is over
        try:
            await publish(gone, come, now)
        except Exception as error:
            if not self._failing and db.trouble(error) is not None:
                log.warning("who waits here could not be told (%s)", type(error).__name__)
            elif not self._failing:
                log.exception("who waits here could not be told")
            self._failing = True  # said once for a row of failures
            return
        self._failing = False
        for stay in come:
            stay.told = True
        for stay in gone:
            self._gone.pop(stay.id, None)

    async def leave(self, publish: Publish) -> None:
        """The process ends: nobody waits here any more. Best effort, once."""
        self._gone |= {stay.id: stay for stay in self._stays.values() if stay.written}
        self._stays.clear()
        self._between.clear()
        await self.tell(publish)

    def _resumed(self, space_id: str, waiting: Waiting) -> Stay:
        """The wait that such a poll goes on with, or a new one."""
        left = self._between.get((space_id, waiting))
        if left:
            stay = left.pop()
            if not left:
                del self._between[space_id, waiting]
            stay.returns_by = None
            return stay
        stay = Stay(next(self._ids), space_id, waiting, asyncio.get_running_loop().time())
        self._stays[stay.id] = stay
        return stay

    def _over(self, stay: Stay) -> None:
        self._stays.pop(stay.id, None)
        if stay.written:
            self._gone[stay.id] = stay

    def _forget_those_who_stayed_away(self, now: float) -> None:
        for place, left in list(self._between.items()):
            late = [s for s in left if s.returns_by is None or s.returns_by <= now]
            for stay in late:
                self._over(stay)
                left.remove(stay)
            if not left:
                del self._between[place]
