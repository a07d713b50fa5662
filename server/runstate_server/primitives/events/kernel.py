"""Readers of the journal: a cursor is a place, and moves on with every look."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from runstate_server.foundation import bounds
from runstate_server.kernel.call import Kernel, Reply
from runstate_server.web import paging


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


def stamped(facts: dict[str, Any]) -> tuple[list[dict[str, Any]], Cursor]:
    """The events of the kernel's facts, each with a cursor of its own, and the cursor to go on from."""
    epoch = facts["epoch"]
    events = [
        {**_shown(event), "cursor": Cursor(epoch, event["num"], date.fromisoformat(event["day"])).text()}
        for event in facts["events"]
    ]
    return events, Cursor(epoch, facts["num"], date.fromisoformat(facts["day"]))


def _shown(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ("num", "day")}


@dataclass(frozen=True, slots=True)
class Filter:
    """What a reader asks for; None: everything."""

    types: Sequence[str] | None = None
    aggregate: tuple[str, str] | None = None
    scope_id: uuid.UUID | None = None


class Reader:
    """Reads on from its place. `events` are those of the last look; the place moves past what the filter
    hides."""

    def __init__(
        self, kernel: Kernel, space_id: str, chosen: Filter, *, after: Cursor | None, limit: int
    ) -> None:
        self._kernel = kernel
        self._space_id = space_id
        self._chosen = chosen
        self._limit = limit
        self._first = True
        self.place = after
        self.events: list[dict[str, Any]] = []

    async def look(self) -> Reply:
        """One look. The first one numbers what the space has committed, so that a reader finds what he wrote.
        Refuses (in the reply): NOT_FOUND (scope), CURSOR_EXPIRED."""
        after, chosen = self.place, self._chosen
        kind, name = chosen.aggregate or (None, None)
        reply = await self._kernel.call(
            "events_first" if self._first else "events_read",
            self._space_id,
            after and after.epoch,
            after and after.num,
            after and after.day,
            chosen.types,
            kind,
            name,
            chosen.scope_id,
            self._limit,
            bounds.events_scan_max,
            repeatable=True,
        )
        self._first = False
        if reply.code is None:
            self.events, self.place = stamped(reply.facts)
        return reply

    @property
    def next_cursor(self) -> str:
        """Where to go on; never empty once it has looked."""
        return self.place.text() if self.place is not None else ""


def decided(reply: Reply) -> bool:
    """Whether a look ends a watch: it was refused, brought events, or there is more to be read."""
    return reply.code is not None or bool(reply.facts["events"]) or not reply.facts["done"]
