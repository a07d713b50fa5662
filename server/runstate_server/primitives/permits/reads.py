"""The listing of permit pools."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.web import listings


async def page(
    engine: AsyncEngine, build: str, space_id: str, *, cursor: str | None, limit: int | None
) -> dict[str, Any]:
    """Oldest first. Returns: {permits: [view], nextCursor}."""
    return await listings.defined(
        engine,
        build,
        space_id,
        name="pools",
        view=lambda f, id_: f.pool_facts(space_id, id_),
        key="permits",
        cursor=cursor,
        limit=limit,
    )
