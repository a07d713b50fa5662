"""The listing of allowances."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.web import listings


async def page(
    engine: AsyncEngine, build: str, space_id: str, *, cursor: str | None, limit: int | None
) -> dict[str, Any]:
    """Oldest first. Returns: {allowances: [view], nextCursor}."""
    return await listings.defined(
        engine,
        build,
        space_id,
        name="allowances",
        view=lambda f, id_: f.allowance_facts(space_id, id_, f.kernel_now()),
        key="allowances",
        cursor=cursor,
        limit=limit,
    )
