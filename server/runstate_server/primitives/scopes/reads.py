"""The listing of scopes."""

import uuid
from typing import Any

from sqlalchemy import Integer, String, column, func, select, table, tuple_
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import DateTime

from runstate_server.foundation import db
from runstate_server.web import paging

_scopes = table(
    "scopes",
    column("space_id", String),
    column("id", UUID),
    column("name", String),
    column("parent_id", UUID),
    column("root_id", UUID),
    column("depth", Integer),
    column("stored", String),
    column("effective", String),
    column("deadline", DateTime(timezone=True)),
    column("effective_deadline", DateTime(timezone=True)),
    column("created_at", DateTime(timezone=True)),
    schema="runstate",
)


async def page(
    engine: AsyncEngine,
    build: str,
    space_id: str,
    *,
    parent_id: uuid.UUID | None,
    state: str | None,
    name: str | None,
    cursor: str | None,
    limit: int,
) -> dict[str, Any]:
    """Roots, or the children of parent_id, newest first; `state` is the effective one at this instant.
    Returns: {scopes: [view], nextCursor}."""
    s = _scopes.c
    kernel = getattr(func, build)
    query = select(s.id, s.created_at).where(s.space_id == space_id)
    query = query.where(s.parent_id == parent_id) if parent_id else query.where(s.depth == 0)
    if name is not None:
        query = query.where(s.name == name)
    if cursor is not None:
        query = query.where(tuple_(s.created_at, s.id) < tuple_(*paging.decode(cursor)))
    async with db.report(engine) as connection:
        now = (await connection.execute(select(kernel.kernel_now()))).scalar_one()
        if state is not None:
            query = query.where(kernel.effective_at(s.effective, s.effective_deadline, now) == state)
        picked = query.order_by(s.created_at.desc(), s.id.desc()).limit(limit + 1).subquery()
        facts = kernel.scope_facts(space_id, picked.c.id, now)
        rows = (
            await connection.execute(
                select(facts, picked.c.created_at, picked.c.id).order_by(
                    picked.c.created_at.desc(), picked.c.id.desc()
                )
            )
        ).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "scopes": [row[0] for row in rows],
        "nextCursor": paging.encode(rows[-1][1], rows[-1][2]) if more else None,
    }
