"""/work-limits: at most N unfinished tasks."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.primitives.work_limits import kernel, reads, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import PageLimit

router = exchange.room("/work-limits", "work limits")


@router.post(
    "",
    status_code=201,
    response_model=schemas.WorkLimitView,
    openapi_extra=exchange.needs(Permission.RESOURCE_CONFIG),
    responses=replies.documented(
        Code.NOT_FOUND,
        Code.SCOPE_CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.CONFLICT,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def create(body: schemas.WorkLimitIn, x: Exchange = Current) -> Response:
    """A new limit of a scope and what is below it; a name that exists there is CONFLICT."""
    reply = await kernel.create(
        x.kernel,
        x.caller,
        limit_id=ids.new_id(),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        name=body.name,
        max_outstanding=body.max_outstanding,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "",
    response_model=schemas.WorkLimitList,
    openapi_extra=exchange.needs(Permission.RUNTIME),
    responses=replies.documented(),
)
async def page(
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit | None, Query()] = None,
    x: Exchange = Current,
) -> Response:
    """All work limits, oldest first; in pages when a limit is given."""

    async def read() -> dict[str, Any]:
        return await reads.page(
            x.floor.engine, x.kernel.schema, x.caller.space_id, cursor=cursor, limit=limit
        )

    return replies.plain(await x.kernel.patiently(read))
