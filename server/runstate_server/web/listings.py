"""Listings of what is defined by name: mailboxes, pools, allowances, work limits, budgets."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, String, column, func, select, table, tuple_
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import DateTime

from runstate_server.foundation import db
from runstate_server.web import paging


async def defined(
    engine: AsyncEngine,
    build: str,
    space_id: str,
    *,
    name: str,
    view: Callable[[Any, ColumnElement[Any]], ColumnElement[Any]],
    key: str,
    cursor: str | None,
    limit: int | None,
) -> dict[str, Any]:
    """Those of a space in the table `name`, oldest first; without a limit all of them, since clients look
    names up here. `view`: the call of the kernel's function that shows one, from the functions of the build
    and its id. Returns: {key: [view], nextCursor}."""
    t = table(
        name,
        column("space_id", String),
        column("id", UUID),
        column("created_at", DateTime(timezone=True)),
        schema="runstate",
    ).c
    query = select(view(getattr(func, build), t.id), t.created_at, t.id)
    query = query.where(t.space_id == space_id).order_by(t.created_at, t.id)
    if cursor is not None:
        query = query.where(tuple_(t.created_at, t.id) > tuple_(*paging.decode(cursor)))
    if limit is not None:
        query = query.limit(limit + 1)
    async with db.report(engine) as connection:
        rows = (await connection.execute(query)).all()
    more = limit is not None and len(rows) > limit
    rows = rows[:limit]
    return {
        key: [row[0] for row in rows],
        "nextCursor": paging.encode(rows[-1][1], rows[-1][2]) if more else None,
    }
