"""The listing of mailboxes."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.web import listings


async def page(
    engine: AsyncEngine, build: str, space_id: str, *, cursor: str | None, limit: int | None
) -> dict[str, Any]:
    """Oldest first. Returns: {mailboxes: [view], nextCursor}."""
    return await listings.defined(
        engine,
        build,
        space_id,
        name="mailboxes",
        view=lambda f, id_: f.mailbox_facts(space_id, id_),
        key="mailboxes",
        cursor=cursor,
        limit=limit,
    )
