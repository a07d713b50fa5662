"""Who waits for what in a space, who holds it, and who waits for each other in a circle."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.foundation import bounds, db
from runstate_server.primitives.ops.reads import ALIVE

# Primary key of waits by its space, then the keys of what is waited for. A task's holder is that of its
# delivery; available_at: from when on it can be taken.
_WAITS = """
SELECT w.replica, w.id, w.kind, w.resource, w.units, w.holder, w.session, w.scope_id::text,
       {build}.wire_time(w.since), b.holder, b.session, {build}.wire_time(b.expires_at), t.task_key,
       t.mailbox, CASE WHEN t.available_at > :now THEN {build}.wire_time(t.available_at) END
  FROM (SELECT x.replica, x.id, x.kind, x.resource, x.units, x.holder, x.session, x.scope_id, x.since
          FROM runstate.waits x WHERE x.space_id = :space AND x.replica = {alive}
         ORDER BY x.since LIMIT :looked_at) w
  CROSS JOIN LATERAL (
    SELECT {build}.effective_at(s.effective, s.effective_deadline, :now) AS effective FROM runstate.scopes s
     WHERE s.space_id = :space AND s.id = w.scope_id OFFSET 0) s
  LEFT JOIN LATERAL (
    SELECT m.seq, m.task_key, c.name AS mailbox, r.available_at
      FROM runstate.messages m
      CROSS JOIN LATERAL (SELECT n.name FROM runstate.mailboxes n
                           WHERE n.space_id = :space AND n.id = m.mailbox_id OFFSET 0) c
      LEFT JOIN LATERAL (SELECT q.available_at FROM runstate.queue_ready q
                          WHERE q.space_id = :space AND q.seq = m.seq OFFSET 0) r ON true
     WHERE m.space_id = :space AND m.id = CASE WHEN w.kind = 'task' THEN w.resource::uuid END
    OFFSET 0) t ON true
  LEFT JOIN LATERAL (
    SELECT c.holder, c.session, c.expires_at FROM runstate.claims c
     WHERE w.kind = 'claim' AND c.space_id = :space AND c.scope_id = w.scope_id AND c.key = w.resource
       AND c.held AND c.expires_at > :now
    UNION ALL
    SELECT o.holder, o.session, o.expires_at FROM runstate.once o
     WHERE w.kind = 'once' AND o.space_id = :space AND o.scope_id = w.scope_id AND o.key = w.resource
       AND o.state = 'HELD' AND o.expires_at > :now
    UNION ALL
    SELECT l.holder, l.session, l.expires_at FROM runstate.queue_leased l
     WHERE l.space_id = :space AND l.seq = t.seq AND l.expires_at > :now) b ON s.effective = 'ACTIVE'
 ORDER BY w.since, w.replica, w.id
"""

Who = tuple[str, str | None]  # holder and session: one process, as far as is known here


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds what is waited for, and until when."""

    holder: str
    session: str
    lease_expires_at: str

    @property
    def who(self) -> Who:
        """As a waiter is known, too."""
        return self.holder, self.session


@dataclass(slots=True)
class Wait:
    """One wait with what blocks it."""

    kind: str
    resource: str
    units: int | None
    who: Who | None
    scope_id: str
    since: str
    task_key: str | None
    mailbox: str | None
    available_at: str | None
    blocked_by: list[Holder] = field(default_factory=list)
    cycle: list[str] | None = None

    @property
    def why(self) -> str:
        """One sentence for people."""
        named = {"claim": f'claim "{self.resource}"', "once": f'once key "{self.resource}"'}.get(
            self.kind, f'task "{self.task_key}" of mailbox "{self.mailbox}"'
        )
        if not self.blocked_by:
            return named + self._when_free()
        verb = "is being worked on by" if self.kind == "task" else "is held by"
        held = [f'"{h.holder}" until {h.lease_expires_at}' for h in self.blocked_by]
        said = f"{named} {verb} {' and '.join(held)}"
        if self.who in [h.who for h in self.blocked_by]:
            said += ", which is the one who waits"
        if self.cycle is not None:
            circle = ", who waits for ".join(f'"{name}"' for name in [*self.cycle, self.cycle[0]])
            said += "; a circle: " + circle.replace(", who waits", " waits", 1)
        return said

    def _when_free(self) -> str:
        if self.kind != "task":
            return " is free by now"
        if self.available_at is not None:
            return f" is delayed until {self.available_at}"
        return " waits for a worker to take it"


async def waits(engine: AsyncEngine, build: str, space_id: str) -> dict[str, Any]:
    """Who waits, those in a circle first, then the longest; 500 at most, of the 5,000 that have waited
    longest. Returns: {waits: [...]} as section 11 of the API has it, with {cycle, why} besides."""
    async with db.report(engine, pinned=True) as connection:
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        rows = (
            await connection.execute(
                text(_WAITS.replace("{build}", build).replace("{alive}", ALIVE)),
                {"space": space_id, "now": now, "looked_at": bounds.waits_looked_at_max},
            )
        ).all()
    found = _waits(rows)
    await asyncio.to_thread(find_cycles, found)  # thousands who wait take a while
    found.sort(key=lambda wait: wait.cycle is None)  # stable: the longest first among equals
    return {"waits": [_facts(wait) for wait in found[: bounds.listed_max]]}


def _waits(rows: Iterable[Any]) -> list[Wait]:
    found: dict[tuple[uuid.UUID, int], Wait] = {}
    for replica, number, *told in rows:
        kind, resource, units, holder, session, scope_id, since, held_by, its_session, until, *task = told
        who = None if holder is None else (holder, session)
        wait = found.setdefault((replica, number), Wait(kind, resource, units, who, scope_id, since, *task))
        if held_by is not None:
            wait.blocked_by.append(Holder(held_by, its_session, until))
    return list(found.values())


def find_cycles(found: list[Wait]) -> None:
    """Name in each wait the shortest circle of holders that it closes, beginning with its own, of 50 at most.
    One that waits for itself is no circle: holder and session are a process, which may do several
    things at a time."""
    ways: dict[Who, set[Who]] = defaultdict(set)
    for wait in found:
        if wait.who is not None:
            ways[wait.who] |= {h.who for h in wait.blocked_by} - {wait.who}
    _take_away_what_leads_nowhere(ways)
    for wait in found:
        if wait.who in ways:
            circles = [_way(ways, h.who, wait.who) for h in wait.blocked_by if h.who != wait.who]
            known = [circle for circle in circles if circle is not None]
            if known:
                shortest = min(known, key=len)
                wait.cycle = [wait.who[0], *(holder for holder, _ in shortest[:-1])]


def _take_away_what_leads_nowhere(ways: dict[Who, set[Who]]) -> None:
    """Those who wait for somebody who waits for nobody, and so on: as a rule nothing is left."""
    waiting: dict[Who, set[Who]] = defaultdict(set)
    for who, targets in ways.items():
        for target in targets:
            waiting[target].add(who)
    ends = [who for who in {*ways, *waiting} if not ways.get(who)]
    while ends:
        end = ends.pop()
        ways.pop(end, None)
        for who in waiting[end]:
            ways[who].discard(end)
            if not ways[who]:
                ends.append(who)


def _way(ways: dict[Who, set[Who]], start: Who, end: Who) -> list[Who] | None:
    """The shortest way from one to the other, both included; None when there is none, or none so short."""
    came_from: dict[Who, Who | None] = {start: None}
    edge = [start] if start in ways else []
    for _ in range(bounds.circle_holders_max):
        if end in came_from:
            way = [end]
            while (before := came_from[way[-1]]) is not None:
                way.append(before)
            return way[::-1]
        steps = [(there, here) for here in edge for there in sorted(ways[here], key=str)]
        edge = []
        for there, here in steps:
            if there not in came_from:
                came_from[there] = here
                edge.append(there)
    return None


def _facts(wait: Wait) -> dict[str, Any]:
    return {
        "kind": wait.kind,
        "resource": wait.resource,
        "units": wait.units,
        "holder": wait.who[0] if wait.who is not None else None,
        "scopeId": wait.scope_id,
        "since": wait.since,
        "blockedBy": [
            {"holder": h.holder, "session": h.session, "leaseExpiresAt": h.lease_expires_at}
            for h in wait.blocked_by
        ],
        "cycle": wait.cycle,
        "why": wait.why,
    }
