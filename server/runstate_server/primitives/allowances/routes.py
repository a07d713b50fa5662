"""/allowances and /allowance-waiters: so many units per window."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.allowances import kernel, reads, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import PageLimit, WaitMs

router = exchange.room("", "allowances")
_runtime = exchange.needs(Permission.RUNTIME)
_configure = exchange.needs(Permission.RESOURCE_CONFIG)
_taking = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "/allowances",
    status_code=201,
    response_model=schemas.AllowanceView,
    openapi_extra=_configure,
    responses=replies.documented(Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def create(body: schemas.AllowanceIn, x: Exchange = Current) -> Response:
    """A new allowance; an existing name is CONFLICT."""
    reply = await kernel.create(
        x.kernel,
        x.caller,
        allowance_id=ids.new_id(),
        name=body.name,
        units=body.units_limit,
        window_s=body.window_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/allowances",
    response_model=schemas.AllowanceList,
    openapi_extra=_runtime,
    responses=replies.documented(),
)
async def page(
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit | None, Query()] = None,
    x: Exchange = Current,
) -> Response:
    """All allowances, oldest first; in pages when a limit is given."""

    async def read() -> dict[str, Any]:
        return await reads.page(
            x.floor.engine, x.kernel.schema, x.caller.space_id, cursor=cursor, limit=limit
        )

    return replies.plain(await x.kernel.patiently(read))


@router.get(
    "/allowances/{allowance_id}",
    response_model=schemas.AllowanceView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(allowance_id: str, x: Exchange = Current) -> Response:
    """What this window has left."""
    reply = await kernel.view(x.kernel, x.caller, allowance_id=exchange.known_id(allowance_id, "allowance"))
    return replies.answer(reply)


@router.put(
    "/allowances/by-name/{name}",
    response_model=schemas.AllowanceView,
    openapi_extra=exchange.needs(Permission.RUNTIME, Permission.RESOURCE_CONFIG),
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def ensure(name: str, body: schemas.SizeIn, x: Exchange = Current) -> Response:
    """Find the allowance of this name; with both sizes create it, or check those that are given."""
    reply = await kernel.ensure(
        x.kernel,
        x.caller,
        allowance_id=ids.new_id(),
        name=exchange.path_text(name, "name", bounds.name_chars_max),
        units=body.units_limit,
        window_s=body.window_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.patch(
    "/allowances/{allowance_id}",
    response_model=schemas.AllowanceView,
    openapi_extra=_configure,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def resize(allowance_id: str, body: schemas.ResizeIn, x: Exchange = Current) -> Response:
    """Change the sizes that are given. What this window has consumed stays consumed."""
    reply = await kernel.resize(
        x.kernel,
        x.caller,
        allowance_id=exchange.known_id(allowance_id, "allowance"),
        units=body.units_limit,
        window_s=body.window_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/allowances/{allowance_id}/consume",
    response_model=schemas.ConsumedOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_taking, Code.ALLOWANCE_EXHAUSTED, Code.ALLOWANCE_COOLDOWN),
)
async def consume(allowance_id: str, body: schemas.ConsumeIn, x: Exchange = Current) -> Response:
    """Consume units of this window. While anybody waits in the line it is ALLOWANCE_EXHAUSTED."""
    reply = await kernel.consume(
        x.kernel,
        x.caller,
        allowance_id=exchange.known_id(allowance_id, "allowance"),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        units=body.units,
        holder=body.holder,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/allowances/{allowance_id}/wait",
    response_model=schemas.WaitOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_taking),
)
async def wait(allowance_id: str, body: schemas.WaitIn, x: Exchange = Current) -> Response:
    """Join the line; granted at once when the units are left and nobody is ahead. A granted wait has consumed
    its units."""
    reply = await kernel.wait(
        x.kernel,
        x.caller,
        allowance_id=exchange.known_id(allowance_id, "allowance"),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        waiter_id=ids.new_id(),
        units=body.units,
        holder=body.holder,
        ttl_s=body.ttl_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/allowance-waiters/{allowance_waiter_id}",
    response_model=schemas.WaiterView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def look(
    allowance_waiter_id: str,
    wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0,
    x: Exchange = Current,
) -> Response:
    """A waiter's own look, which keeps it in the line; with waitMs answers as soon as it is not WAITING."""
    waiter = exchange.known_id(allowance_waiter_id, "allowance waiter")

    async def probe() -> Reply:
        return await kernel.look(x.kernel, x.caller, waiter_id=waiter)

    return replies.answer(await x.poll(probe, wait_ms=wait_ms, ready=_ended))


def _ended(reply: Reply) -> bool:
    return reply.code is not None or reply.facts["state"] != schemas.State.WAITING


@router.post(
    "/allowance-waiters/{allowance_waiter_id}/cancel",
    response_model=schemas.WaiterView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def cancel(allowance_waiter_id: str, _body: schemas.CancelIn, x: Exchange = Current) -> Response:
    """Leave the line; one that has ended answers its state."""
    reply = await kernel.cancel(
        x.kernel,
        x.caller,
        waiter_id=exchange.known_id(allowance_waiter_id, "allowance waiter"),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/allowances/{allowance_id}/cooldown",
    response_model=schemas.CooldownOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def cool(allowance_id: str, body: schemas.CooldownIn, x: Exchange = Current) -> Response:
    """Grant nothing for so many seconds, in the whole space; never shortens a longer cooldown."""
    reply = await kernel.cool(
        x.kernel,
        x.caller,
        allowance_id=exchange.known_id(allowance_id, "allowance"),
        seconds=body.seconds,
        reason=body.reason,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
