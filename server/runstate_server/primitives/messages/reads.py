"""The listing of messages, and the depth of a mailbox: counted over the indexes, not kept."""

import uuid
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from runstate_server.foundation import db
from runstate_server.foundation.errors import Code, Refusal

# A message's state: its end, else what its scope and deadline say, else which narrow table holds it.
_PAGE = """
SELECT m.seq, json_build_object('id', m.id, 'scopeId', m.scope_id, 'state', st.state,
    'attempt', COALESCE(l.attempt, r.attempt, m.attempt), 'priority', m.priority, 'workKey', m.work_key,
    'taskId', CASE WHEN m.task_key IS NOT NULL THEN m.id END, 'deadline', {build}.wire_time(m.deadline),
    'holder', CASE WHEN st.state = 'LEASED' THEN l.holder END,
    'leaseExpiresAt', CASE WHEN st.state = 'LEASED' THEN {build}.wire_time(l.expires_at) END,
    'lastError', m.last_error, 'createdAt', {build}.wire_time(m.created_at))
  FROM runstate.messages m
  LEFT JOIN runstate.queue_leased l ON l.space_id = m.space_id AND l.seq = m.seq
  LEFT JOIN runstate.queue_ready r ON r.space_id = m.space_id AND r.seq = m.seq
  CROSS JOIN LATERAL (SELECT CASE
      WHEN m.ended IS NOT NULL THEN m.ended
      WHEN e.reason = 'deadline' OR m.deadline <= :now THEN 'EXPIRED'
      WHEN e.reason IS NOT NULL THEN 'CANCELLED'
      WHEN l.expires_at > :now THEN 'LEASED' ELSE 'READY' END AS state
    FROM {build}.message_scope_end(m.space_id, m.scope_id, :now) e (reason)) st
 WHERE m.space_id = :space AND m.mailbox_id = :mailbox
   AND (CAST(:scope AS uuid) IS NULL OR m.scope_id = :scope)
   AND {may_be}
   AND (CAST(:before AS bigint) IS NULL OR m.seq < :before)
 ORDER BY {order} DESC LIMIT :limit
"""

# What a message has ended as is looked at before it is asked what it is at this instant; the few that are
# held are found where they are.
_MAY_BE = {
    "READY": "m.ended IS NULL",
    "LEASED": """m.ended IS NULL AND m.seq = ANY (ARRAY(
      SELECT q.seq FROM runstate.queue_leased q WHERE q.space_id = :space AND q.mailbox_id = :mailbox))""",
    "ACKED": "m.ended = 'ACKED'",
    "DEAD": "m.ended = 'DEAD'",
    "EXPIRED": "COALESCE(m.ended, 'EXPIRED') = 'EXPIRED'",
    "CANCELLED": "COALESCE(m.ended, 'CANCELLED') = 'CANCELLED'",
}

_KNOWN = {
    "mailbox": "SELECT 1 FROM runstate.mailboxes b WHERE b.space_id = :space AND b.id = :id",
    "scope": "SELECT 1 FROM runstate.scopes s WHERE s.space_id = :space AND s.id = :id",
}

# A lease that has lapsed is ready again, whether or not anybody has noticed.
_DEPTH = """
SELECT {build}.mailbox_facts(:space, b.id), w.ready + l.lapsed, w.delayed, l.leased,
    (SELECT count(*) FROM runstate.messages m
      WHERE m.space_id = :space AND m.mailbox_id = b.id AND m.ended = 'DEAD'),
    {build}.wire_time(LEAST(w.oldest_at, l.oldest_at))
  FROM runstate.mailboxes b
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.available_at <= :now) AS ready,
           count(*) FILTER (WHERE r.available_at > :now) AS delayed,
           min(r.available_at) FILTER (WHERE r.available_at <= :now) AS oldest_at
      FROM runstate.queue_ready r WHERE r.space_id = :space AND r.mailbox_id = b.id) w
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE q.expires_at <= :now) AS lapsed,
           count(*) FILTER (WHERE q.expires_at > :now) AS leased,
           min(q.expires_at) FILTER (WHERE q.expires_at <= :now) AS oldest_at
      FROM runstate.queue_leased q WHERE q.space_id = :space AND q.mailbox_id = b.id) l
 WHERE b.space_id = :space AND b.id = :mailbox
"""


async def page(
    engine: AsyncEngine,
    build: str,
    space_id: str,
    mailbox_id: uuid.UUID,
    *,
    state: str | None,
    scope_id: uuid.UUID | None,
    before: int | None,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Messages of every state, newest first. Returns: the page, and the number to go on before, None at the
    end.
    Refuses: NOT_FOUND (mailbox, scope)."""
    may_be = "true" if state is None else f"{_MAY_BE[state]} AND st.state = :state"
    # The few that are held are sorted: before PostgreSQL 17 the planner would rather go through all by their
    # number than look up a few and sort them.
    order = "m.seq + 0" if state == "LEASED" else "m.seq"
    query = _PAGE.replace("{may_be}", may_be).replace("{order}", order).replace("{build}", build)
    async with db.report(engine, pinned=True) as connection:
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        await check_known(connection, space_id, mailbox_id=mailbox_id, scope_id=scope_id)
        rows = (
            await connection.execute(
                text(query),
                {
                    "space": space_id,
                    "mailbox": mailbox_id,
                    "scope": scope_id,
                    "state": state,
                    "before": before,
                    "now": now,
                    "limit": limit + 1,
                },
            )
        ).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return [row[1] for row in rows], rows[-1][0] if more else None


async def depth(engine: AsyncEngine, build: str, space_id: str, mailbox_id: uuid.UUID) -> dict[str, Any]:
    """The view of a mailbox with {depth, oldestReadyAt}. Refuses: NOT_FOUND."""
    async with db.report(engine) as connection:
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        row = (
            await connection.execute(
                text(_DEPTH.replace("{build}", build)),
                {"space": space_id, "mailbox": mailbox_id, "now": now},
            )
        ).one_or_none()
    if row is None:
        raise _no_mailbox(mailbox_id)
    facts, ready, delayed, leased, dead, oldest = row
    counts = {"ready": ready, "delayed": delayed, "leased": leased, "dead": dead}
    return {**facts, "depth": counts, "oldestReadyAt": oldest}


async def check_known(
    connection: AsyncConnection,
    space_id: str,
    *,
    mailbox_id: uuid.UUID | None,
    scope_id: uuid.UUID | None,
) -> None:
    """A filter by what is not in this space is no empty page. Refuses: NOT_FOUND (mailbox, scope)."""
    for what, wanted in (("mailbox", mailbox_id), ("scope", scope_id)):
        if (
            wanted is not None
            and (
                await connection.execute(text(_KNOWN[what]), {"space": space_id, "id": wanted})
            ).one_or_none()
            is None
        ):
            raise Refusal(Code.NOT_FOUND, f"{what} {wanted} does not exist in this space")


def _no_mailbox(mailbox_id: uuid.UUID) -> Refusal:
    return Refusal(Code.NOT_FOUND, f"mailbox {mailbox_id} does not exist in this space")
