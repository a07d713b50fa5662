"""The listing of tasks."""

import uuid
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.foundation import db
from runstate_server.primitives.messages.reads import check_known

# Which tasks: newest first, by the index of the scope, of the mailbox or of the space's tasks. What a task
# has ended as is looked at before it is asked what it is at this instant, which takes a function.
_PICK = """
SELECT {by}.seq, m.id FROM {tasks}
 WHERE {here}
   AND (CAST(:scope AS uuid) IS NULL OR m.scope_id = :scope)
   AND (CAST(:mailbox AS uuid) IS NULL OR m.mailbox_id = :mailbox)
   AND (CAST(:key AS text) IS NULL OR m.task_key = :key)
   AND (CAST(:before AS bigint) IS NULL OR {by}.seq < :before)
   AND {may_be}
 ORDER BY {by}.seq DESC LIMIT :limit
"""
_OF_SPACE = "CASE WHEN m.task_key IS NOT NULL THEN m.space_id END = :space"
_OF_OTHERS = "m.space_id = :space AND m.task_key IS NOT NULL"
_EVERY = "runstate.messages m"
# Few among many that have finished: found where they wait or are held. Each part is in order, so both are
# read as far as the page needs.
_UNSETTLED = """(
    {waiting}(SELECT l.seq, l.message_id FROM runstate.queue_leased l
      WHERE l.space_id = :space AND l.lane >= 1 ORDER BY l.seq DESC)) q
  CROSS JOIN LATERAL (
    SELECT x.id, x.space_id, x.scope_id, x.mailbox_id, x.task_key, x.ended FROM runstate.messages x
     WHERE x.space_id = :space AND x.id = q.message_id OFFSET 0) m"""
_WAITING = """(SELECT r.seq, r.message_id FROM runstate.queue_ready r
      WHERE r.space_id = :space AND r.lane >= 1 ORDER BY r.seq DESC)
    UNION ALL
    """
_MAY_BE = {
    "QUEUED": "m.ended IS NULL",
    "RUNNING": "m.ended IS NULL",
    "SUCCEEDED": "m.ended = 'ACKED'",
    "FAILED": "m.ended = 'DEAD'",
    "CANCELLED": "COALESCE(m.ended, 'CANCELLED') = 'CANCELLED'",
    "EXPIRED": "COALESCE(m.ended, 'EXPIRED') = 'EXPIRED'",
}

# Facts number their payloads from :first; the rows bring them along, in order.
_PAGE = """
SELECT {build}.task_facts(:space, m.id, :now, 0), m.payload, m.outcome FROM runstate.messages m
 WHERE m.space_id = :space AND m.id = ANY (CAST(:ids AS uuid[])) ORDER BY m.seq DESC
"""


async def page(
    engine: AsyncEngine,
    build: str,
    space_id: str,
    *,
    scope_id: uuid.UUID | None,
    mailbox_id: uuid.UUID | None,
    task_key: str | None,
    state: str | None,
    before: int | None,
    limit: int,
) -> tuple[list[tuple[dict[str, Any], str, str | None]], int | None]:
    """Tasks, newest first. Returns: (facts, input, outcome) each, and the number to go on before, None at the
    end. Refuses: NOT_FOUND (mailbox, scope)."""
    pick = _pick(build, state, whole_space=scope_id is None and mailbox_id is None)
    async with db.report(engine, pinned=True) as connection:
        await check_known(connection, space_id, mailbox_id=mailbox_id, scope_id=scope_id)
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        asked = {
            "space": space_id,
            "scope": scope_id,
            "mailbox": mailbox_id,
            "key": task_key,
            "state": state,
            "before": before,
            "now": now,
            "limit": limit + 1,
        }
        picked = (await connection.execute(text(pick), asked)).all()
        more = len(picked) > limit
        picked = picked[:limit]
        await db.pin(connection)
        asked["ids"] = [row[1] for row in picked]
        rows = (await connection.execute(text(_PAGE.replace("{build}", build)), asked)).all()
    return [(row[0], row[1], row[2]) for row in rows], picked[-1][0] if more else None


def _pick(build: str, state: str | None, *, whole_space: bool) -> str:
    tasks, may_be = _EVERY, "true"
    if state is not None:
        may_be = f"{_MAY_BE[state]} AND {build}.task_state(:space, m.id, :now) = :state"
    if state in {"QUEUED", "RUNNING"}:
        tasks = _UNSETTLED.replace("{waiting}", _WAITING if state == "QUEUED" else "")
    here = _OF_SPACE if whole_space and tasks is _EVERY else _OF_OTHERS
    by = "m" if tasks is _EVERY else "q"
    parts = {"tasks": tasks, "here": here, "may_be": may_be, "by": by}
    pick = _PICK
    for name, part in parts.items():
        pick = pick.replace(f"{{{name}}}", part)
    return pick
