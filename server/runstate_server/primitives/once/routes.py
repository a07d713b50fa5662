"""/once: own a key once, record its one result, wait for it."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.once import kernel, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Id, Key, WaitMs
from runstate_server.web.waiting import Waiting

router = exchange.room("/once", "once")
_runtime = exchange.needs(Permission.RUNTIME)
_ended = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "/acquire",
    response_model=schemas.AcquireOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended),
)
async def acquire(body: schemas.AcquireIn, x: Exchange = Current) -> Response:
    """Take the key, or learn that another holds it (HELD), that its result is recorded (DONE), or that its
    attempts are used up (FAILED). Not re-entrant."""
    reply = await kernel.acquire(
        x.kernel,
        x.caller,
        scope_id=exchange.known_id(body.scope_id, "scope"),
        key=body.key,
        holder=body.holder,
        session=body.holder_session,
        lease_s=body.lease_seconds,
        token=ids.new_token(),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "", response_model=schemas.OnceView, openapi_extra=_runtime, responses=replies.documented(Code.NOT_FOUND)
)
async def view(
    scope_id: Annotated[Id, Query(alias="scopeId")],
    key: Annotated[Key, Query()],
    wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0,
    x: Exchange = Current,
) -> Response:
    """The state of a key. With waitMs the answer comes as soon as the state is no longer HELD."""
    scope = exchange.known_id(scope_id, "scope")

    async def look() -> Reply:
        return await kernel.view(x.kernel, x.caller, scope_id=scope, key=key)

    waiting = Waiting("once", key, scope)
    return replies.answer(await x.poll(look, wait_ms=wait_ms, ready=_settled, waits=lambda _: waiting))


def _settled(reply: Reply) -> bool:
    return reply.code is not None or reply.facts["state"] != schemas.State.HELD


@router.post(
    "/renew",
    response_model=schemas.RenewOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.STALE_CLAIM),
)
async def renew(body: schemas.RenewIn, x: Exchange = Current) -> Response:
    """Extend a lease that is still alive; no renewal shortens one."""
    reply = await kernel.renew(
        x.kernel,
        x.caller,
        scope_id=exchange.known_id(body.scope_id, "scope"),
        key=body.key,
        token=body.token,
        lease_s=body.lease_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/complete",
    response_model=schemas.CompleteOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.STALE_CLAIM),
)
async def complete(body: schemas.CompleteIn, x: Exchange = Current) -> Response:
    """Record the result. Exactly one is ever recorded for a key."""
    reply = await kernel.complete(
        x.kernel,
        x.caller,
        scope_id=exchange.known_id(body.scope_id, "scope"),
        key=body.key,
        token=body.token,
        result=body.result.text,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/fail",
    response_model=schemas.FailOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.STALE_CLAIM),
)
async def fail(body: schemas.FailIn, x: Exchange = Current) -> Response:
    """Record a failed attempt. The key opens again, or is FAILED for good when maxAttempts are used up."""
    reply = await kernel.fail(
        x.kernel,
        x.caller,
        scope_id=exchange.known_id(body.scope_id, "scope"),
        key=body.key,
        token=body.token,
        error=body.error,
        max_attempts=body.max_attempts,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
