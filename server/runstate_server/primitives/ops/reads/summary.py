"""A space in numbers, for dashboards that ask every few seconds."""

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.foundation import bounds, db
from runstate_server.primitives.ops.reads import ALIVE, capacity

# Indexes: scopes_active, claims_in_space, once_in_space, grants_in_space, waiters_in_space, messages_dead,
# the primary keys of the narrow tables, of waits and of lane_waits. Grants outlive their scope. Every count
# stops at :counted.
_SUMMARY = """
WITH active AS MATERIALIZED (
  SELECT s.depth FROM runstate.scopes s
   WHERE CASE WHEN s.effective = 'ACTIVE' THEN s.space_id END = :space
     AND (s.effective_deadline IS NULL OR s.effective_deadline > :now) LIMIT :counted
), held AS MATERIALIZED (
  SELECT h.kind, h.lane, h.holder, h.session FROM (
    (SELECT 'claim' AS kind, 0 AS lane, c.holder, c.session, c.scope_id FROM runstate.claims c
      WHERE CASE WHEN c.held THEN c.space_id END = :space AND c.expires_at > :now LIMIT :counted)
    UNION ALL
    (SELECT 'once', 0, o.holder, o.session, o.scope_id FROM runstate.once o
      WHERE CASE WHEN o.state = 'HELD' THEN o.space_id END = :space AND o.expires_at > :now LIMIT :counted)
    UNION ALL
    (SELECT 'message', l.lane, l.holder, l.session, l.scope_id FROM runstate.queue_leased l
      WHERE l.space_id = :space AND l.expires_at > :now AND (l.deadline IS NULL OR l.deadline > :now)
      LIMIT :counted)) h
  CROSS JOIN LATERAL (
    SELECT 1 FROM runstate.scopes s
     WHERE s.space_id = :space AND s.id = h.scope_id
       AND {build}.effective_at(s.effective, s.effective_deadline, :now) = 'ACTIVE' OFFSET 0) s
  UNION ALL
  SELECT 'grant', 0, g.holder, g.session FROM (
    SELECT y.holder, y.session FROM runstate.grants y
     WHERE CASE WHEN y.ended IS NULL THEN y.space_id END = :space AND y.expires_at > :now
     LIMIT :counted) g
), waiting AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE r.available_at <= :now) AS ready,
         count(*) FILTER (WHERE r.available_at > :now) AS delayed,
         count(*) FILTER (WHERE r.lane >= 1) AS queued,
         min(r.available_at) FILTER (WHERE r.available_at <= :now) AS oldest_at
    FROM (SELECT q.lane, q.available_at FROM runstate.queue_ready q
           WHERE q.space_id = :space AND (q.deadline IS NULL OR q.deadline > :now) LIMIT :counted) r
), lapsed AS MATERIALIZED (
  SELECT count(*) AS ready, count(*) FILTER (WHERE l.lane >= 1) AS queued, min(l.expires_at) AS oldest_at
    FROM (SELECT q.lane, q.expires_at FROM runstate.queue_leased q
           WHERE q.space_id = :space AND q.expires_at <= :now
             AND (q.deadline IS NULL OR q.deadline > :now) LIMIT :counted) l
), dead AS (
  SELECT COALESCE(sum(d.count), 0)::int AS count
    FROM (SELECT b.id FROM runstate.mailboxes b WHERE b.space_id = :space LIMIT :mailboxes) b
    CROSS JOIN LATERAL (
      SELECT count(*) FROM (SELECT 1 FROM runstate.messages m
                             WHERE m.space_id = :space AND m.mailbox_id = b.id AND m.ended = 'DEAD'
                             LIMIT :counted) m) d
), waits AS (
  SELECT count(*) FROM (SELECT 1 FROM runstate.waits w
                         WHERE w.space_id = :space AND w.replica = {alive}
                         LIMIT :counted) w
), in_lines AS (
  SELECT count(*) FROM (
    SELECT 1 FROM runstate.line_waiters w
    {active}
     WHERE {in_space_of_w} AND {line_of_w} AND s.effective = 'ACTIVE' LIMIT :counted) l
), heads AS (
  SELECT count(*) FROM (
    SELECT w.kind, w.resource_id, w.units, w.seq, w.since, w.scope_id FROM (
        SELECT x.kind, x.resource_id, x.units, x.seq, x.since, x.scope_id FROM runstate.lane_waits x
         WHERE x.space_id = :space AND {seen_lately} LIMIT :heads) w
    {active} {still_lacks}
     WHERE s.effective = 'ACTIVE') h
)
SELECT (SELECT count(*) FROM active), (SELECT count(*) FROM active a WHERE a.depth = 0),
       (SELECT count(*) FROM held h WHERE h.kind = 'claim'),
       (SELECT count(*) FROM held h WHERE h.kind = 'once'),
       (SELECT count(*) FROM held h WHERE h.kind = 'grant'),
       w.ready + l.ready, w.delayed, (SELECT count(*) FROM held h WHERE h.kind = 'message'),
       (SELECT d.count FROM dead d), {build}.wire_time(LEAST(w.oldest_at, l.oldest_at)),
       w.queued + l.queued, (SELECT count(*) FROM held h WHERE h.lane >= 1),
       (SELECT count(*) FROM (SELECT DISTINCT h.holder, h.session FROM held h) h),
       (SELECT w.count FROM waits w) + (SELECT i.count FROM in_lines i) + (SELECT h.count FROM heads h),
       {build}.events_since(:space, CAST(:now AS timestamptz) - interval '1 minute'),
       {build}.events_since(:space, CAST(:now AS timestamptz) - interval '1 hour')
  FROM waiting w CROSS JOIN lapsed l
"""

_MAILBOXES_MAX = 10_000
_MINUTE_S = 60


async def summary(engine: AsyncEngine, build: str, space_id: str) -> dict[str, Any]:
    """The counts of this instant, each up to `countedUpTo`, and the rate of the last minute's events."""
    async with db.report(engine, pinned=True) as connection:
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        asked = {
            "space": space_id,
            "now": now,
            "counted": bounds.counted_max,
            "mailboxes": _MAILBOXES_MAX,
            "heads": bounds.heads_looked_at_max,
        }
        row = (await connection.execute(text(_filled(build)), asked)).one()
    (
        (active, runs, claims, once, grants, ready, delayed, leased, dead, oldest),
        (queued, running, workers, waits, last_minute, last_hour),
    ) = row[:10], row[10:]
    return {
        "scopes": {"active": active, "runs": runs},
        "claims": {"held": claims},
        "once": {"held": once},
        "grants": {"held": grants},
        "queues": {
            "ready": ready,
            "delayed": delayed,
            "leased": leased,
            "dead": dead,
            "oldestReadyAt": oldest,
        },
        "tasks": {"QUEUED": queued, "RUNNING": running},
        "workers": workers,
        "waits": waits,
        "events": {
            "lastMinute": last_minute,
            "lastHour": last_hour,
            "perSecond": round(last_minute / _MINUTE_S, 3),
        },
        "countedUpTo": bounds.counted_max,
    }


def _filled(build: str) -> str:
    parts = capacity.parts("w") | {"alive": ALIVE, "build": build}
    statement = _SUMMARY
    for name, part in parts.items():
        statement = statement.replace(f"{{{name}}}", part)
    return statement
