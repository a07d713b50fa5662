"""One run, or what is below one scope of it: who holds what, who waits, queues, tasks."""

import uuid
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from runstate_server.foundation import bounds, db
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.primitives.ops.reads import ALIVE, capacity
from runstate_server.primitives.ops.reads.finished import finished
from runstate_server.primitives.ops.reads.groups import GROUPS, group
from runstate_server.primitives.ops.reads.timers import TIMERS, timer
from runstate_server.primitives.tasks.schemas import State as TaskState

_SCOPE = """
SELECT s.root_id, s.path, {build}.scope_facts(:space, s.id, :now) FROM runstate.scopes s
 WHERE s.space_id = :space AND s.id = :scope
"""

# The mailboxes that the run has ever used, while it lives. Primary key of queue_lanes.
_BOXES = """
boxes AS MATERIALIZED (
  SELECT DISTINCT d.mailbox_id AS id FROM runstate.queue_lanes d
   WHERE d.space_id = :space AND d.a0 = :root ORDER BY d.mailbox_id LIMIT :listed
), leased AS MATERIALIZED (
  SELECT b.id AS mailbox_id, l.scope_id, l.lane, l.holder, l.session, l.message_id, l.expires_at, l.deadline
    FROM boxes b CROSS JOIN LATERAL (
      SELECT q.scope_id, q.lane, q.holder, q.session, q.message_id, q.expires_at, q.deadline
        FROM runstate.queue_leased q
       WHERE q.space_id = :space AND q.mailbox_id = b.id AND q.a0 = :root AND q.{level} = :ancestor
       LIMIT :counted) l
)"""

# Whether a scope is below the one that is asked about, and how it is. Primary key of scopes.
_WITHIN = """
CROSS JOIN LATERAL (
  SELECT {build}.effective_at(s.effective, s.effective_deadline, :now) AS effective FROM runstate.scopes s
   WHERE s.space_id = :space AND s.id = {of}.scope_id AND s.path[:depth] = :scope OFFSET 0) s"""

# Indexes: leased_of_run, ready_run or ready_a1 or ready_a2, ready_behind (in an INBOX, behind the heads),
# messages_dead. A lapsed lease is ready again, what has passed its deadline is neither.
_COUNTS = """count(*) FILTER (WHERE q.live AND q.leased) AS leased,
             count(*) FILTER (WHERE q.live AND NOT q.leased AND q.at <= :now) AS ready,
             count(*) FILTER (WHERE q.live AND NOT q.leased AND q.at > :now) AS delayed,
             count(*) FILTER (WHERE NOT q.live) AS expired,
             min(q.at) FILTER (WHERE q.live AND NOT q.leased AND q.at <= :now) AS oldest_at"""
_QUEUES = """
WITH {boxes}, waiting AS MATERIALIZED (
  SELECT b.id AS mailbox_id, g.scope_id, g.lane, g.leased, g.ready, g.delayed, g.expired, g.oldest_at
    FROM boxes b CROSS JOIN LATERAL (
      SELECT q.scope_id, q.lane, {counts}
        FROM (SELECT r.scope_id, r.lane, r.available_at AS at, false AS leased,
                     r.deadline IS NULL OR r.deadline > :now AS live
                FROM runstate.queue_ready r
               WHERE r.space_id = :space AND r.mailbox_id = b.id AND r.{level} = :ancestor AND r.deliverable
               LIMIT :counted) q
       GROUP BY q.scope_id, q.lane) g
), delivered AS MATERIALIZED (
  SELECT q.mailbox_id, q.scope_id, q.lane, {counts}
    FROM (SELECT l.mailbox_id, l.scope_id, l.lane, l.expires_at AS at, l.expires_at > :now AS leased,
                 l.deadline IS NULL OR l.deadline > :now AS live FROM leased l) q
   GROUP BY q.mailbox_id, q.scope_id, q.lane
), behind AS (
  SELECT h.mailbox_id, g.scope_id, g.lane, g.leased, g.ready, g.delayed, g.expired, g.oldest_at
    FROM (SELECT w.mailbox_id, w.scope_id FROM waiting w
          UNION SELECT d.mailbox_id, d.scope_id FROM delivered d) h
    CROSS JOIN LATERAL (SELECT b.mode FROM runstate.mailboxes b
                         WHERE b.space_id = :space AND b.id = h.mailbox_id OFFSET 0) b
    CROSS JOIN LATERAL (
      SELECT q.scope_id, q.lane, {counts}
        FROM (SELECT r.scope_id, r.lane, r.available_at AS at, false AS leased,
                     r.deadline IS NULL OR r.deadline > :now AS live
                FROM runstate.queue_ready r
               WHERE r.space_id = :space AND r.mailbox_id = h.mailbox_id AND r.scope_id = h.scope_id
                 AND NOT r.deliverable LIMIT :counted) q
       GROUP BY q.scope_id, q.lane) g
   WHERE b.mode = 'INBOX'
), counted AS (
  SELECT w.mailbox_id, w.scope_id, w.lane, w.leased, w.ready, w.delayed, w.expired, w.oldest_at FROM waiting w
  UNION ALL
  SELECT d.mailbox_id, d.scope_id, d.lane, d.leased, d.ready, d.delayed, d.expired, d.oldest_at
    FROM delivered d
  UNION ALL
  SELECT b.mailbox_id, b.scope_id, b.lane, b.leased, b.ready, b.delayed, b.expired, b.oldest_at FROM behind b
), dead AS (
  SELECT d.mailbox_id, sum(d.dead) AS dead FROM (
    SELECT b.id AS mailbox_id, m.scope_id, m.dead FROM boxes b CROSS JOIN LATERAL (
      SELECT x.scope_id, count(*) AS dead FROM (
        SELECT m.scope_id FROM runstate.messages m
         WHERE m.space_id = :space AND m.mailbox_id = b.id AND m.root_id = :root AND m.ended = 'DEAD'
         LIMIT :counted) x
       GROUP BY x.scope_id) m) d {dead_within}
   GROUP BY d.mailbox_id
), summed AS (
  SELECT c.mailbox_id,
         sum(c.ready) FILTER (WHERE s.effective = 'ACTIVE') AS ready,
         sum(c.delayed) FILTER (WHERE s.effective = 'ACTIVE') AS delayed,
         sum(c.leased) FILTER (WHERE s.effective = 'ACTIVE') AS leased,
         min(c.oldest_at) FILTER (WHERE s.effective = 'ACTIVE') AS oldest_at,
         sum(c.ready + c.delayed) FILTER (WHERE c.lane >= 1 AND s.effective = 'ACTIVE') AS queued,
         sum(c.leased) FILTER (WHERE c.lane >= 1 AND s.effective = 'ACTIVE') AS running,
         sum(c.expired + CASE WHEN s.effective = 'EXPIRED' THEN c.ready + c.delayed + c.leased ELSE 0 END)
           FILTER (WHERE c.lane >= 1) AS expired,
         sum(c.ready + c.delayed + c.leased)
           FILTER (WHERE c.lane >= 1 AND s.effective IN ('CANCELLED', 'COMPLETED')) AS cancelled
    FROM counted c {counted_within}
   GROUP BY c.mailbox_id
)
SELECT b.id::text, m.name, m.mode, COALESCE(u.ready, 0)::int, COALESCE(u.delayed, 0)::int,
       COALESCE(u.leased, 0)::int, COALESCE(d.dead, 0)::int, {build}.wire_time(u.oldest_at),
       COALESCE(u.queued, 0)::int, COALESCE(u.running, 0)::int, COALESCE(u.expired, 0)::int,
       COALESCE(u.cancelled, 0)::int
  FROM boxes b
  CROSS JOIN LATERAL (SELECT x.name, x.mode FROM runstate.mailboxes x
                       WHERE x.space_id = :space AND x.id = b.id OFFSET 0) m
  LEFT JOIN summed u ON u.mailbox_id = b.id LEFT JOIN dead d ON d.mailbox_id = b.id
 ORDER BY m.name
"""

# Indexes: claims_held, once_held, grants_in_space, leased_of_run. Grants outlive their scope.
_WORKERS = """
WITH {boxes}, held AS (
  SELECT c.holder, c.session, c.key, NULL AS lent, NULL AS message, c.expires_at, c.scope_id
    FROM runstate.claims c WHERE c.space_id = :space AND c.root_id = :root AND c.held
  UNION ALL
  SELECT o.holder, o.session, o.key, NULL, NULL, o.expires_at, o.scope_id FROM runstate.once o
   WHERE o.space_id = :space AND o.root_id = :root AND o.state = 'HELD'
  UNION ALL
  SELECT g.holder, g.session, NULL, g.id::text, NULL, g.expires_at, g.scope_id FROM runstate.grants g
   WHERE CASE WHEN g.ended IS NULL THEN g.space_id END = :space AND g.root_id = :root
  UNION ALL
  SELECT l.holder, l.session, NULL, NULL, l.message_id::text, l.expires_at, l.scope_id FROM leased l
   WHERE l.deadline IS NULL OR l.deadline > :now
), live AS (
  SELECT h.holder, h.session, h.key, h.lent, h.message, h.expires_at FROM held h {held_within}
   WHERE h.expires_at > :now AND (s.effective = 'ACTIVE' OR h.lent IS NOT NULL) LIMIT :counted
)
SELECT v.holder, v.session, (array_agg(v.key ORDER BY v.key) FILTER (WHERE v.key IS NOT NULL))[1:{listed}],
       (array_agg(v.lent ORDER BY v.lent) FILTER (WHERE v.lent IS NOT NULL))[1:{listed}],
       (array_agg(v.message ORDER BY v.message) FILTER (WHERE v.message IS NOT NULL))[1:{listed}],
       {build}.wire_time(min(v.expires_at))
  FROM live v GROUP BY v.holder, v.session ORDER BY v.holder COLLATE "C", v.session COLLATE "C" LIMIT :listed
"""

# Primary key of waits, by its space.
_WAITING = """
SELECT w.kind, w.resource, w.units, w.holder, {build}.wire_time(w.since), NULL::bigint
  FROM runstate.waits w {waits_within}
 WHERE w.space_id = :space AND w.root_id = :root AND w.replica = {alive}
 ORDER BY w.since LIMIT :listed
"""
# Indexes: waiters_of_run, waiters_line, which give these orders without a sort. Each line is read once, to
# find the places of this run's in it. The space is that of the waiter's scope.
_IN_LINES = """
WITH mine AS MATERIALIZED (
  SELECT w.id, w.kind, w.resource_id, w.units, w.holder, w.since
    FROM (SELECT x.id, x.kind, x.resource_id, x.units, x.holder, x.since, x.ticket, x.scope_id
            FROM runstate.line_waiters x WHERE x.root_id = :root AND {line_of_x}
           ORDER BY x.scope_id LIMIT :counted) w {waits_within}
   WHERE s.effective = 'ACTIVE' ORDER BY w.since, w.ticket LIMIT :listed
), lines AS MATERIALIZED (
  SELECT d.resource_id, ARRAY(
      SELECT y.id FROM runstate.line_waiters y
       WHERE y.resource_id = d.resource_id AND {line_of_y}
       ORDER BY y.ticket LIMIT :counted) AS ids
    FROM (SELECT DISTINCT m.resource_id FROM mine m) d
)
SELECT m.kind, n.name, m.units, m.holder, {build}.wire_time(m.since), array_position(l.ids, m.id)
  FROM mine m JOIN lines l ON l.resource_id = m.resource_id
  CROSS JOIN LATERAL (
    SELECT p.name FROM runstate.pools p
     WHERE m.kind = 'permit' AND p.space_id = :space AND p.id = m.resource_id
    UNION ALL
    SELECT a.name FROM runstate.allowances a
     WHERE m.kind = 'allowance' AND a.space_id = :space AND a.id = m.resource_id) n
 ORDER BY m.since
"""
# Index: lane_waits_lane.
_HEADS = """
WITH {boxes}
SELECT w.kind, n.name, w.units, w.holder, {build}.wire_time(w.blocked_at), NULL::bigint
  FROM boxes b
  CROSS JOIN LATERAL (
    SELECT x.kind, x.resource_id, x.units, x.holder, x.scope_id, x.blocked_at, x.seq, x.since
      FROM runstate.lane_waits x
     WHERE x.space_id = :space AND x.mailbox_id = b.id AND x.root_id = :root AND {seen_lately}
     LIMIT :heads OFFSET 0) w {waits_within} {still_lacks}
  CROSS JOIN LATERAL (
    SELECT p.name FROM runstate.pools p WHERE w.kind = 1 AND p.space_id = :space AND p.id = w.resource_id
    UNION ALL
    SELECT a.name FROM runstate.allowances a WHERE w.kind = 2 AND a.space_id = :space AND a.id = w.resource_id
    UNION ALL
    SELECT u.name FROM runstate.budgets u WHERE w.kind = 3 AND u.space_id = :space AND u.id = w.resource_id) n
 WHERE s.effective = 'ACTIVE' ORDER BY w.blocked_at, w.seq, w.kind, w.resource_id LIMIT :listed
"""

# Index: barriers_waiting, in its order.
_BARRIERS = """
SELECT b.id::text, b.name, b.scope_id::text, b.state, b.epoch, b.arrivals, b.target
  FROM (SELECT x.id, x.name, x.scope_id, x.state, x.epoch, x.arrivals, x.target FROM runstate.barriers x
         WHERE x.space_id = :space AND x.root_id = :root AND x.state = 'WAITING'
         ORDER BY x.scope_id, x.id LIMIT :counted) b {barriers_within}
 WHERE s.effective = 'ACTIVE' ORDER BY b.scope_id, b.id LIMIT :listed
"""

_LEVELS = ("a0", "a1", "a2")  # the columns of the queues that hold a scope's ancestors, by depth


async def run(engine: AsyncEngine, build: str, space_id: str, scope_id: uuid.UUID) -> dict[str, Any]:
    """The report of section 11 of the API on a scope and all that is below it. Refuses: NOT_FOUND (scope)."""
    async with db.report(engine, pinned=True) as connection:
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        asked = {"space": space_id, "scope": scope_id, "now": now}
        found = await connection.execute(text(_SCOPE.replace("{build}", build)), asked)
        row = found.one_or_none()
        if row is None:
            raise Refusal(Code.NOT_FOUND, f"scope {scope_id} does not exist in this space")
        root_id, path, facts = row
        level = min(len(path), len(_LEVELS)) - 1
        asked |= {
            "root": root_id,
            "ancestor": path[level],
            "depth": len(path),
            "listed": bounds.listed_max,
            "counted": bounds.counted_max,
            "heads": bounds.heads_looked_at_max,
        }
        look = _Look(connection, build, _LEVELS[level], asked)
        queues = await look.rows(_QUEUES)
        done = await finished(look.rows, space_id, scope_id, now)
        return {
            "rootScopeId": str(root_id),
            "scope": facts,
            "workers": [_worker(row) for row in await look.rows(_WORKERS)],
            "waiting": await _all_waiting(look),
            "queues": [_queue(row) for row in queues if any(row[3:7])],
            "tasks": _tasks(queues, done),
            "timers": [timer(row) for row in await look.rows(TIMERS)],
            "barriers": [_barrier(row) for row in await look.rows(_BARRIERS)],
            "groups": [group(row) for row in await look.rows(GROUPS)],
        }


class _Look:
    """The statements of one report, in one snapshot."""

    def __init__(self, connection: AsyncConnection, build: str, level: str, asked: dict[str, Any]) -> None:
        self._connection = connection
        self._asked = asked
        self._parts = {"boxes": _BOXES, "counts": _COUNTS, "alive": ALIVE} | capacity.parts("x", "y")
        self._parts |= {
            f"{name}_within": _WITHIN.replace("{of}", of)
            for name, of in zip(
                ("dead", "counted", "held", "waits", "finished", "barriers", "timers", "groups"),
                "dchwgbtj",
                strict=True,
            )
        }
        self._names = {"build": build, "level": level, "listed": str(bounds.listed_max)}

    async def rows(self, statement: str, **more: Any) -> list[Any]:
        """All rows of the statement, its parts filled in."""
        for name, part in (self._parts | self._names).items():
            statement = statement.replace(f"{{{name}}}", part)
        return list((await self._connection.execute(text(statement), self._asked | more)).all())


def _worker(row: Any) -> dict[str, Any]:
    holder, session, keys, grants, messages, earliest = row
    return {
        "holder": holder,
        "session": session,
        "keys": keys or [],
        "grants": grants or [],
        "messages": messages or [],
        "earliestLeaseExpiry": earliest,
    }


async def _all_waiting(look: _Look) -> list[dict[str, Any]]:
    """In polls, in lines, and heads of lanes; the longest first."""
    rows = await look.rows(_WAITING) + await look.rows(_IN_LINES)
    rows += [(capacity.KINDS[kind], *told) for kind, *told in await look.rows(_HEADS)]
    names = ("kind", "permit", "units", "holder", "since", "position")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return sorted(found, key=lambda wait: str(wait["since"]))[: bounds.listed_max]


def _queue(row: Any) -> dict[str, Any]:
    names = ("mailboxId", "name", "mode", "ready", "delayed", "leased", "dead", "oldestReadyAt")
    return dict(zip(names, row[:8], strict=True))


def _barrier(row: Any) -> dict[str, Any]:
    names = ("id", "name", "scopeId", "state", "epoch", "arrivals", "target")
    return dict(zip(names, row, strict=True))


def _tasks(queues: list[Any], done: dict[TaskState, int]) -> dict[str, int]:
    """Every state with its count, 0 where there is none. What scope or deadline has ended is that, noticed
    or not."""
    unsettled = (TaskState.QUEUED, TaskState.RUNNING, TaskState.EXPIRED, TaskState.CANCELLED)
    counts = {state.value: done.get(state, 0) for state in TaskState}
    for row in queues:
        for state, count in zip(unsettled, row[8:], strict=True):
            counts[state] += count
    return counts
