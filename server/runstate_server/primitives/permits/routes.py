"""/permits, /permit-waiters and /grants: at most N at the same time."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.permits import kernel, reads, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.bodies import UserJson
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import PageLimit, WaitMs

router = exchange.room("", "permits")
_runtime = exchange.needs(Permission.RUNTIME)
_configure = exchange.needs(Permission.RESOURCE_CONFIG)
_taking = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "/permits",
    status_code=201,
    response_model=schemas.PoolOut,
    openapi_extra=_configure,
    responses=replies.documented(Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def create(body: schemas.PoolIn, x: Exchange = Current) -> Response:
    """A new pool; an existing name is CONFLICT."""
    reply = await kernel.create(
        x.kernel,
        x.caller,
        pool_id=ids.new_id(),
        name=body.name,
        units=body.units,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/permits",
    response_model=schemas.PoolList,
    openapi_extra=_runtime,
    responses=replies.documented(),
)
async def page(
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit | None, Query()] = None,
    x: Exchange = Current,
) -> Response:
    """All pools, oldest first; in pages when a limit is given."""

    async def read() -> dict[str, Any]:
        return await reads.page(
            x.floor.engine, x.kernel.schema, x.caller.space_id, cursor=cursor, limit=limit
        )

    return replies.plain(await x.kernel.patiently(read))


@router.get(
    "/permits/{pool_id}",
    response_model=schemas.PoolSeen,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(pool_id: str, x: Exchange = Current) -> Response:
    """How many units there are, are lent out, are waited for."""
    reply = await kernel.view(x.kernel, x.caller, pool_id=exchange.known_id(pool_id, "permit pool"))
    return replies.answer(reply)


@router.put(
    "/permits/by-name/{name}",
    response_model=schemas.PoolSized,
    openapi_extra=exchange.needs(Permission.RUNTIME, Permission.RESOURCE_CONFIG),
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def ensure(name: str, body: schemas.SizeIn, x: Exchange = Current) -> Response:
    """Find the pool of this name; with units create it, or check that it has as many."""
    reply = await kernel.ensure(
        x.kernel,
        x.caller,
        pool_id=ids.new_id(),
        name=exchange.path_text(name, "name", bounds.name_chars_max),
        units=body.units,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.patch(
    "/permits/{pool_id}",
    response_model=schemas.PoolView,
    openapi_extra=_configure,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def resize(pool_id: str, body: schemas.ResizeIn, x: Exchange = Current) -> Response:
    """Resize; below what is in use the pool drains as grants end."""
    reply = await kernel.resize(
        x.kernel,
        x.caller,
        pool_id=exchange.known_id(pool_id, "permit pool"),
        units=body.units,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/permits/{pool_id}/acquire",
    response_model=schemas.GrantOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_taking, Code.CAPACITY_UNAVAILABLE, Code.CONFLICT),
)
async def acquire(pool_id: str, body: schemas.AcquireIn, x: Exchange = Current) -> Response:
    """Take units. Without waiterId it fails while anybody waits in the line: who only ever acquires gets
    nothing then."""
    pool, scope = exchange.known_id(pool_id, "permit pool"), exchange.known_id(body.scope_id, "scope")
    waiter = None if body.waiter_id is None else exchange.known_id(body.waiter_id, "permit waiter")

    async def take() -> Reply:
        return await kernel.acquire(
            x.kernel,
            x.caller,
            pool_id=pool,
            scope_id=scope,
            grant_id=ids.new_id(),
            units=body.units,
            holder=body.holder,
            session=body.holder_session,
            lease_s=body.lease_seconds,
            waiter_id=waiter,
            token=ids.new_token(),
            idempotency=x.idempotency,
        )

    return replies.answer(await x.poll(take, wait_ms=0, ready=lambda _: True))


@router.post(
    "/permits/{pool_id}/wait",
    response_model=schemas.WaitOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_taking),
)
async def wait(pool_id: str, body: schemas.WaitIn, x: Exchange = Current) -> Response:
    """Join the line; its head is SIGNALED when its units are there, and has 10 s to acquire them."""
    reply = await kernel.wait(
        x.kernel,
        x.caller,
        pool_id=exchange.known_id(pool_id, "permit pool"),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        waiter_id=ids.new_id(),
        units=body.units,
        holder=body.holder,
        ttl_s=body.ttl_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/permit-waiters/{permit_waiter_id}",
    response_model=schemas.WaiterView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def look(
    permit_waiter_id: str,
    wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0,
    x: Exchange = Current,
) -> Response:
    """A waiter's own look, which keeps it in the line; with waitMs answers as soon as it is not WAITING."""
    waiter = exchange.known_id(permit_waiter_id, "permit waiter")

    async def probe() -> Reply:
        return await kernel.look(x.kernel, x.caller, waiter_id=waiter)

    return replies.answer(await x.poll(probe, wait_ms=wait_ms, ready=_called))


def _called(reply: Reply) -> bool:
    return reply.code is not None or reply.facts["state"] != schemas.State.WAITING


@router.post(
    "/permit-waiters/{permit_waiter_id}/cancel",
    response_model=schemas.StateOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def cancel(permit_waiter_id: str, _body: schemas.CancelIn, x: Exchange = Current) -> Response:
    """Leave the line; one that has ended answers its state."""
    reply = await kernel.cancel(
        x.kernel,
        x.caller,
        waiter_id=exchange.known_id(permit_waiter_id, "permit waiter"),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/grants/{grant_id}/renew",
    response_model=schemas.RenewOut,
    openapi_extra=_runtime,
    responses=replies.documented(
        Code.NOT_FOUND,
        Code.STALE_CLAIM,
        Code.SCOPE_CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def renew(grant_id: str, body: schemas.RenewIn, x: Exchange = Current) -> Response:
    """Extend a lease that is still alive; no renewal shortens one, and a lapsed one cannot be revived."""
    reply = await kernel.renew(
        x.kernel,
        x.caller,
        grant_id=exchange.known_id(grant_id, "grant"),
        token=body.token,
        lease_s=body.lease_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/grants/{grant_id}/release",
    response_model=schemas.ReleaseOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.STALE_CLAIM, Code.IDEMPOTENCY_CONFLICT),
)
async def release(grant_id: str, body: schemas.ReleaseIn, x: Exchange = Current) -> Response:
    """Give units back, also in a scope that has ended."""
    reply = await kernel.release(
        x.kernel,
        x.caller,
        grant_id=exchange.known_id(grant_id, "grant"),
        token=body.token,
        observation=body.observation.text if body.observation != UserJson() else None,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
