"""The listing of work limits."""

from typing import Any

from sqlalchemy import String, column, func, select, table, tuple_
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import DateTime

from runstate_server.foundation import db
from runstate_server.web import paging

_limits = table(
    "work_limits",
    column("space_id", String),
    column("id", UUID),
    column("created_at", DateTime(timezone=True)),
    schema="runstate",
)


async def page(
    engine: AsyncEngine, build: str, space_id: str, *, cursor: str | None, limit: int | None
) -> dict[str, Any]:
    """Oldest first; without a limit all of them, since clients look names up here.
    Returns: {workLimits: [view], nextCursor}."""
    w = _limits.c
    functions = getattr(func, build)
    facts = functions.work_limit_facts(space_id, w.id, functions.kernel_now())
    query = select(facts, w.created_at, w.id).where(w.space_id == space_id).order_by(w.created_at, w.id)
    if cursor is not None:
        query = query.where(tuple_(w.created_at, w.id) > tuple_(*paging.decode(cursor)))
    if limit is not None:
        query = query.limit(limit + 1)
    async with db.report(engine) as connection:
        rows = (await connection.execute(query)).all()
    more = limit is not None and len(rows) > limit
    rows = rows[:limit]
    return {
        "workLimits": [row[0] for row in rows],
        "nextCursor": paging.encode(rows[-1][1], rows[-1][2]) if more else None,
    }
