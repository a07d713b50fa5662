"""/ops: what goes on in a run, who waits for whom, the space in numbers."""

from typing import Any

from starlette.responses import Response

from runstate_server.foundation.errors import Code
from runstate_server.primitives.ops import schemas
from runstate_server.primitives.ops.reads import runs, summary, waits
from runstate_server.web import exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange

router = exchange.room("/ops", "ops")
_observe = exchange.needs(Permission.OBSERVE)


@router.get(
    "/runs/{scope_id}",
    response_model=schemas.RunReport,
    openapi_extra=_observe,
    responses=replies.documented(Code.NOT_FOUND),
)
async def run(scope_id: str, x: Exchange = Current) -> Response:
    """A scope and all below it: who holds what, who waits, queues, tasks by state."""
    scope = exchange.known_id(scope_id, "scope")

    async def read() -> dict[str, Any]:
        return await runs.run(x.floor.engine, x.kernel.schema, x.caller.space_id, scope)

    return replies.plain(await x.kernel.patiently(read))


@router.get("/waits", response_model=schemas.Waits, openapi_extra=_observe, responses=replies.documented())
async def waiting(x: Exchange = Current) -> Response:
    """Who waits for what, who holds it and until when; circles are named."""

    async def read() -> dict[str, Any]:
        return await waits.waits(x.floor.engine, x.kernel.schema, x.caller.space_id)

    return replies.plain(await x.kernel.patiently(read))


@router.get(
    "/summary", response_model=schemas.Summary, openapi_extra=_observe, responses=replies.documented()
)
async def numbers(x: Exchange = Current) -> Response:
    """The space in counts and rates, for dashboards."""

    async def read() -> dict[str, Any]:
        return await summary.summary(x.floor.engine, x.kernel.schema, x.caller.space_id)

    return replies.plain(await x.kernel.patiently(read))
