"""The listings of spaces and of a space's keys."""

from typing import Any

from sqlalchemy import String, column, func, select, table, tuple_
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import DateTime

from runstate_server.foundation import db
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.web import paging

_spaces = table("spaces", column("id", String), schema="runstate")
_keys = table(
    "api_keys",
    column("space_id", String),
    column("id", UUID),
    column("created_at", DateTime(timezone=True)),
    schema="runstate",
)


async def spaces(engine: AsyncEngine, build: str, *, cursor: str | None, limit: int) -> dict[str, Any]:
    """Spaces by id. Returns: {spaces: [view], nextCursor}."""
    s = _spaces.c
    query = select(getattr(func, build).space_facts(s.id), s.id).order_by(s.id).limit(limit + 1)
    if cursor is not None:
        query = query.where(s.id > paging.decode_text(cursor))
    async with db.report(engine) as connection:
        rows = (await connection.execute(query)).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "spaces": [row[0] for row in rows],
        "nextCursor": paging.encode_text(rows[-1][1]) if more else None,
    }


async def keys(
    engine: AsyncEngine, build: str, space_id: str, *, cursor: str | None, limit: int
) -> dict[str, Any]:
    """The keys of a space, oldest first. Refuses: NOT_FOUND (space). Returns: {keys: [view], nextCursor}."""
    k = _keys.c
    query = (
        select(getattr(func, build).key_facts(space_id, k.id), k.created_at, k.id)
        .where(k.space_id == space_id)
        .order_by(k.created_at, k.id)
        .limit(limit + 1)
    )
    if cursor is not None:
        query = query.where(tuple_(k.created_at, k.id) > tuple_(*paging.decode(cursor)))
    async with db.report(engine) as connection:
        known = await connection.execute(select(_spaces.c.id).where(_spaces.c.id == space_id))
        if known.scalar() is None:
            raise Refusal(Code.NOT_FOUND, f"space {space_id} does not exist")
        rows = (await connection.execute(query)).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "keys": [row[0] for row in rows],
        "nextCursor": paging.encode(rows[-1][1], rows[-1][2]) if more else None,
    }
