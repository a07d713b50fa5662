"""Who waits for what in a space, who holds it, and who waits for each other in a circle."""

import asyncio
from collections.abc import Iterable
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.foundation import bounds, db
from runstate_server.primitives.ops.reads import ALIVE, capacity
from runstate_server.primitives.ops.reads.circles import Holder, Wait, find_cycles, know_sessions

# Primary key of waits by its space, then the keys of what is waited for. A task's holder is that of its
# delivery; available_at: from when on it can be taken.
_WAITS = """
SELECT w.kind, w.resource, w.units, w.holder, w.session, w.scope_id::text,
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


async def waits(engine: AsyncEngine, build: str, space_id: str) -> dict[str, Any]:
    """Who waits, those in a circle first, then the longest; 500 at most, of the 5,000 polls and the 5,000 in
    lines that have waited longest. Returns: {waits: [...]} as section 11 of the API has it, with {cycle, why}
    besides."""
    async with db.report(engine, pinned=True) as connection:
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        asked = {"space": space_id, "now": now, "looked_at": bounds.waits_looked_at_max}

        async def look(statement: str, **more: Any) -> list[Any]:
            sql = statement.replace("{build}", build).replace("{alive}", ALIVE)
            return list((await connection.execute(text(sql), asked | more)).all())

        found = _waits(await look(_WAITS)) + await capacity.waits(look)
    await asyncio.to_thread(_find_cycles, found)  # thousands who wait take a while
    found.sort(key=lambda wait: (wait.cycle is None, wait.since))  # stable
    return {"waits": [_facts(wait) for wait in found[: bounds.listed_max]]}


def _find_cycles(found: list[Wait]) -> None:
    know_sessions(found)
    find_cycles(found)


def _waits(rows: Iterable[Any]) -> list[Wait]:
    """One row each: a claim, a once key and a task have one holder at most."""
    found = []
    for kind, resource, units, holder, session, scope_id, since, held_by, its_session, until, *task in rows:
        held = [] if held_by is None else [Holder(held_by, its_session, until)]
        who = None if holder is None else (holder, session)
        said = _said(kind, resource, held, task)
        found.append(Wait(kind, resource, units, who, scope_id, since, said, held))
    return found


# What waits for several, or for its time, and is held by nobody.
_OF_ALL = {
    "barrier": 'barrier "{}" waits for more to arrive',
    "timer": 'timer "{}" waits for its time',
    "group": "task group {} waits for its members, or for verdicts on them",
}


def _said(kind: str, resource: str, held: list[Holder], task: list[str | None]) -> str:
    """task: its key, its mailbox, and until when it is delayed."""
    task_key, mailbox, available_at = task
    if kind in _OF_ALL:
        return _OF_ALL[kind].format(resource)
    named = {"claim": f'claim "{resource}"', "once": f'once key "{resource}"'}.get(
        kind, f'task "{task_key}" of mailbox "{mailbox}"'
    )
    if held:
        verb = "is being worked on by" if kind == "task" else "is held by"
        return f'{named} {verb} "{held[0].holder}" until {held[0].lease_expires_at}'
    if kind != "task":
        return named + " is free by now"
    if available_at is not None:
        return f"{named} is delayed until {available_at}"
    return named + " waits for a worker to take it"


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
