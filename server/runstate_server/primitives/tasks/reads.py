"""The listing of tasks."""

import uuid
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.foundation import db
from runstate_server.primitives.messages.reads import check_known

# Facts number their payloads from :first; the rows bring them along, in order.
_PAGE = """
SELECT m.seq, {build}.task_facts(:space, m.id, :now, 0), m.payload, m.outcome
  FROM runstate.messages m
 WHERE m.space_id = :space AND m.task_key IS NOT NULL
   AND (CAST(:scope AS uuid) IS NULL OR m.scope_id = :scope)
   AND (CAST(:mailbox AS uuid) IS NULL OR m.mailbox_id = :mailbox)
   AND (CAST(:key AS text) IS NULL OR m.task_key = :key)
   AND (CAST(:state AS text) IS NULL OR {build}.task_state(:space, m.id, :now) = :state)
   AND (CAST(:before AS bigint) IS NULL OR m.seq < :before)
 ORDER BY m.seq DESC LIMIT :limit
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
    async with db.report(engine) as connection:
        await check_known(connection, space_id, mailbox_id=mailbox_id, scope_id=scope_id)
        now = (await connection.execute(text(f"SELECT {build}.kernel_now()"))).scalar_one()
        rows = (
            await connection.execute(
                text(_PAGE.replace("{build}", build)),
                {
                    "space": space_id,
                    "scope": scope_id,
                    "mailbox": mailbox_id,
                    "key": task_key,
                    "state": state,
                    "before": before,
                    "now": now,
                    "limit": limit + 1,
                },
            )
        ).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return [(row[1], row[2], row[3]) for row in rows], rows[-1][0] if more else None
