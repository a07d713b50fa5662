"""Readers of the journal: a cursor is a place, and moves on with every look."""

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

from runstate_server.foundation import bounds
from runstate_server.kernel.call import Kernel, Reply
from runstate_server.web import paging

_PATH_DEPTHS: Final = 3  # an event carries the ids of so much of its scope's path


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a reader stands: after event `num` of `day`, in an epoch of the database."""

    epoch: int
    num: int
    day: date

    def text(self) -> str:
        """As readers see it: opaque, never empty."""
        return paging.encode_place(self.epoch, self.num, self.day.toordinal())


def parse_cursor(text: str) -> Cursor:
    """The cursor of a text. Refuses: VALIDATION_FAILED for anything this server did not make."""
    epoch, num, day = paging.decode_place(text, 3)
    try:
        return Cursor(epoch, num, date.fromordinal(day))
    except (ValueError, OverflowError):
        raise paging.foreign() from None


@dataclass(frozen=True, slots=True)
class Filter:
    """What a reader asks for; None: everything."""

    types: Sequence[str] | None = None
    aggregate: tuple[str, str] | None = None
    scope_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One event as readers see it, where it stands, and the ids of its scope's path from the root down to
    depth 2."""

    place: Cursor
    path: list[str | None]
    event: dict[str, Any]

    def passes(self, chosen: Filter, depth: int) -> bool:
        """Whether the filter lets it through; `depth` is that of the filter's scope, 2 at most."""
        about = self.event["aggregate"]
        return (
            (chosen.types is None or self.event["type"] in chosen.types)
            and (chosen.aggregate is None or chosen.aggregate == (about["type"], about["id"]))
            and (chosen.scope_id is None or self.path[depth] == str(chosen.scope_id))
        )


def _told(facts: dict[str, Any]) -> list[Told]:
    """The events of the kernel's facts, each with a cursor of its own."""
    found = []
    for each in facts["events"]:
        place = Cursor(facts["epoch"], each.pop("num"), date.fromisoformat(each.pop("day")))
        path = each.pop("path")
        each["cursor"] = place.text()
        found.append(Told(place, path, each))
    return found


def _place(facts: dict[str, Any]) -> Cursor:
    return Cursor(facts["epoch"], facts["num"], date.fromisoformat(facts["day"]))


async def _read(
    kernel: Kernel, space_id: str, after: Cursor | None, chosen: Filter, *, limit: int, first: bool
) -> Reply:
    kind, name = chosen.aggregate or (None, None)
    return await kernel.call(
        "events_first" if first else "events_read",
        space_id,
        after and after.epoch,
        after and after.num,
        after and after.day,
        chosen.types,
        kind,
        name,
        chosen.scope_id,
        limit,
        bounds.events_scan_max,
        repeatable=True,
    )


class Tail:
    """The end of one space's journal in memory, read once for all who watch there: hundreds of watches cost
    the database one look an event, not hundreds."""

    def __init__(self, kernel: Kernel, space_id: str, head: Cursor) -> None:
        self._kernel = kernel
        self._space_id = space_id
        self._kept: deque[Told] = deque()
        self._start = head
        self._now: asyncio.Task[Reply] | None = None
        self._next: asyncio.Task[Reply] | None = None
        self.head = head
        self.used_at = time.monotonic()

    def covers(self, place: Cursor) -> bool:
        """Whether all that stands after this place, up to the head, is in memory."""
        return place.epoch == self.head.epoch and self._start.num <= place.num <= self.head.num

    def after(self, place: Cursor, chosen: Filter, depth: int, limit: int) -> list[Told]:
        """What passes the filter after a place that is covered, at most `limit`."""
        later = itertools.dropwhile(lambda told: told.place.num <= place.num, self._kept)
        return list(itertools.islice((told for told in later if told.passes(chosen, depth)), limit))

    async def refresh(self) -> Reply:
        """Read on, by a look that begins after this call: one that is under way may have begun too early to
        see what its caller was woken for. Callers at the same time share it."""
        self.used_at = time.monotonic()
        if self._next is not None:  # asked for, and it has not begun
            return await asyncio.shield(self._next)
        if self._now is None or self._now.done():
            self._now = asyncio.create_task(self._look())
            return await asyncio.shield(self._now)
        self._next = asyncio.create_task(self._look_after(self._now))
        return await asyncio.shield(self._next)

    async def _look_after(self, before: asyncio.Task[Reply]) -> Reply:
        await asyncio.wait({before})
        self._now, self._next = self._next, None
        return await self._look()

    async def _look(self) -> Reply:
        while True:
            reply = await _read(
                self._kernel, self._space_id, self.head, Filter(), limit=bounds.page_max, first=False
            )
            if reply.code is not None:
                return reply
            self._kept.extend(_told(reply.facts))
            self.head = _place(reply.facts)
            while len(self._kept) > bounds.tail_events_max:
                self._start = self._kept.popleft().place
            if reply.facts["done"]:
                return reply


class Tails:
    """The tails of one process, one for each space that is watched."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tails: dict[str, Tail] = {}

    def of(self, space_id: str, head: Cursor) -> Tail | None:
        """The space's tail, begun at `head` if there is none, or one that nobody has read for so long that it
        would have to catch up with more than it keeps; None when there are too many."""
        tail = self._tails.get(space_id)
        behind = 0 if tail is None else head.num - tail.head.num
        if tail is None or tail.head.epoch != head.epoch or behind > bounds.tail_events_max:
            self._tails.pop(space_id, None)
            unused = time.monotonic() - bounds.tail_unused_s
            self._tails = {name: kept for name, kept in self._tails.items() if kept.used_at > unused}
            if len(self._tails) >= bounds.tails_max:
                return None
            tail = self._tails[space_id] = Tail(self._kernel, space_id, head)
        return tail

    def drop(self, space_id: str, tail: Tail) -> None:
        """Forget a tail that cannot be read on."""
        if self._tails.get(space_id) is tail:
            del self._tails[space_id]


class Reader:
    """Reads on from its place. `events` are those of the last look; the place moves past what the filter
    hides."""

    def __init__(
        self, tails: Tails, kernel: Kernel, space_id: str, chosen: Filter, *, after: Cursor | None, limit: int
    ) -> None:
        self._tails = tails
        self._kernel = kernel
        self._space_id = space_id
        self._chosen = chosen
        self._limit = limit
        self._first = True
        self._at_end = False  # a tail begun further back would read all that lies between
        self._depth = 0
        self.place = after
        self.events: list[dict[str, Any]] = []

    async def look(self) -> Reply:
        """One look. The first one numbers what the space has committed, so that a reader finds what he wrote;
        later ones share the space's tail if they can. Refuses (in the reply): NOT_FOUND (scope),
        CURSOR_EXPIRED."""
        self.events = []  # those of the look before are told, should this one find the database away
        if self._at_end and self.place is not None and self._depth < _PATH_DEPTHS:
            tail = self._tails.of(self._space_id, self.place)
            if tail is not None:
                reply = await tail.refresh()
                if reply.code is not None:
                    self._tails.drop(self._space_id, tail)
                elif tail.covers(self.place):
                    return self._take(tail, self.place, reply)
        reply = await _read(
            self._kernel, self._space_id, self.place, self._chosen, limit=self._limit, first=self._first
        )
        self._first = False
        if reply.code is None:
            self._depth = reply.facts["depth"]
            self._at_end = reply.facts["done"]
            self.events = [told.event for told in _told(reply.facts)]
            self.place = _place(reply.facts)
        return reply

    def _take(self, tail: Tail, place: Cursor, reply: Reply) -> Reply:
        found = tail.after(place, self._chosen, self._depth, self._limit)
        done = len(found) < self._limit
        self.events = [told.event for told in found]
        self.place = tail.head if done else found[-1].place
        self._at_end = done
        return replace(reply, facts={"events": self.events, "done": done}, wake=())

    @property
    def next_cursor(self) -> str:
        """Where to go on; never empty once it has looked."""
        return self.place.text() if self.place is not None else ""


def decided(reply: Reply) -> bool:
    """Whether a look ends a watch: it was refused, brought events, or there is more to be read."""
    return reply.code is not None or bool(reply.facts["events"]) or not reply.facts["done"]
