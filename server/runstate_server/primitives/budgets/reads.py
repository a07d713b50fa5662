"""The listings of budgets and of a budget's ledger."""

import uuid
from typing import Any

from sqlalchemy import String, column, func, select, table
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import BigInteger, DateTime

from runstate_server.foundation import db
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.web import listings, paging

_budgets = table("budgets", column("space_id", String), column("id", UUID), schema="runstate")
_entries = table(
    "budget_entries",
    column("space_id", String),
    column("budget_id", UUID),
    column("seq", BigInteger),
    column("id", UUID),
    column("kind", String),
    column("amount_minor", BigInteger),
    column("reservation_id", UUID),
    column("scope_id", UUID),
    column("work_key", String),
    column("created_at", DateTime(timezone=True)),
    schema="runstate",
)


async def page(
    engine: AsyncEngine, build: str, space_id: str, *, cursor: str | None, limit: int | None
) -> dict[str, Any]:
    """Oldest first. Returns: {budgets: [view], nextCursor}."""
    return await listings.defined(
        engine,
        build,
        space_id,
        name="budgets",
        view=lambda f, id_: f.budget_facts(space_id, id_, f.kernel_now()),
        key="budgets",
        cursor=cursor,
        limit=limit,
    )


async def ledger(
    engine: AsyncEngine, build: str, space_id: str, budget_id: uuid.UUID, *, cursor: str | None, limit: int
) -> dict[str, Any]:
    """The lines of a budget's ledger, oldest first. Refuses: NOT_FOUND. Returns: {entries, nextCursor}."""
    e = _entries.c
    functions = getattr(func, build)
    query = (
        select(
            e.seq,
            e.id,
            e.kind,
            e.amount_minor,
            e.reservation_id,
            e.scope_id,
            e.work_key,
            functions.wire_time(e.created_at),
        )
        .where(e.space_id == space_id, e.budget_id == budget_id)
        .order_by(e.seq)
        .limit(limit + 1)
    )
    if cursor is not None:
        query = query.where(e.seq > paging.decode_number(cursor))
    # The clock is asked along: a database of another build has no such budget, and no such clock either.
    known = select(_budgets.c.id, functions.kernel_now()).where(
        _budgets.c.space_id == space_id, _budgets.c.id == budget_id
    )
    async with db.report(engine) as connection:
        if (await connection.execute(known)).one_or_none() is None:
            raise Refusal(Code.NOT_FOUND, f"budget {budget_id} does not exist in this space")
        rows = (await connection.execute(query)).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "entries": [_entry(row) for row in rows],
        "nextCursor": paging.encode_number(rows[-1][0]) if more else None,
    }


def _entry(row: Any) -> dict[str, Any]:
    _, entry_id, kind, amount, reservation_id, scope_id, work_key, created_at = row
    return {
        "id": str(entry_id),
        "kind": kind,
        "amountMinor": str(amount),
        "reservationId": str(reservation_id),
        "scopeId": str(scope_id),
        "workKey": work_key,
        "createdAt": created_at,
    }
