"""/claims: own a key."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.claims import kernel, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.bodies import UserJson
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Id
from runstate_server.web.waiting import Waiting

router = exchange.room("/claims", "claims")
_runtime = exchange.needs(Permission.RUNTIME)


@router.post(
    "",
    status_code=201,
    response_model=schemas.AcquireOut,
    openapi_extra=_runtime,
    responses=replies.documented(
        Code.NOT_FOUND,
        Code.CLAIM_HELD,
        Code.SCOPE_CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def acquire(body: schemas.AcquireIn, x: Exchange = Current) -> Response:
    """Take a key; with waitMs wait for it. Not re-entrant: the same holder is told CLAIM_HELD too."""
    scope = exchange.known_id(body.scope_id, "scope")

    async def take() -> Reply:
        return await kernel.acquire(
            x.kernel,
            x.caller,
            scope_id=scope,
            key=body.key,
            holder=body.holder,
            session=body.holder_session,
            lease_s=body.lease_seconds,
            token=ids.new_token(),
            idempotency=x.idempotency,
        )

    waiting = Waiting("claim", body.key, scope, body.holder, body.holder_session)
    return replies.answer(await x.poll(take, wait_ms=body.wait_ms, ready=_decided, waits=lambda _: waiting))


def _decided(reply: Reply) -> bool:
    return reply.code != Code.CLAIM_HELD


@router.post(
    "/{key}/renew",
    response_model=schemas.RenewOut,
    openapi_extra=_runtime,
    responses=replies.documented(
        Code.STALE_CLAIM, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT
    ),
)
async def renew(key: str, body: schemas.RenewIn, x: Exchange = Current) -> Response:
    """Extend a lease that is still alive; no renewal shortens one, and a lapsed one cannot be revived."""
    reply = await kernel.renew(
        x.kernel,
        x.caller,
        key=exchange.path_text(key, "key", bounds.key_chars_max),
        token=body.token,
        lease_s=body.lease_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{key}/release",
    response_model=schemas.ReleaseOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.STALE_CLAIM, Code.IDEMPOTENCY_CONFLICT),
)
async def release(key: str, body: schemas.ReleaseIn, x: Exchange = Current) -> Response:
    """Give a key up; the observation is kept for the next owner to read."""
    reply = await kernel.release(
        x.kernel,
        x.caller,
        key=exchange.path_text(key, "key", bounds.key_chars_max),
        token=body.token,
        observation=body.observation.text if body.observation != UserJson() else None,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/{key}",
    response_model=schemas.ClaimView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(key: str, scope_id: Annotated[Id, Query(alias="scopeId")], x: Exchange = Current) -> Response:
    """Who holds a key, since which generation; never the token."""
    reply = await kernel.view(
        x.kernel,
        x.caller,
        scope_id=exchange.known_id(scope_id, "scope"),
        key=exchange.path_text(key, "key", bounds.key_chars_max),
    )
    return replies.answer(reply)
