"""/barriers: wait until so many have arrived."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.barriers import kernel, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.bodies import Nothing
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange, known_id
from runstate_server.web.fields import WaitMs
from runstate_server.web.waiting import Waiting

router = exchange.room("/barriers", "barriers")
_runtime = exchange.needs(Permission.RUNTIME)
_ended = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "",
    response_model=schemas.BarrierView,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended),
)
async def create(body: schemas.BarrierIn, x: Exchange = Current) -> Response:
    """A new barrier of a scope, without a name."""
    return await _made(None, body, x)


@router.put(
    "/by-name/{name}",
    response_model=schemas.BarrierView,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.CONFLICT),
)
async def ensure(name: str, body: schemas.BarrierIn, x: Exchange = Current) -> Response:
    """The barrier of this name in the scope, created if there is none; another target is CONFLICT."""
    return await _made(exchange.path_text(name, "name", bounds.name_chars_max), body, x)


async def _made(name: str | None, body: schemas.BarrierIn, x: Exchange) -> Response:
    reply = await kernel.create(
        x.kernel,
        x.caller,
        barrier_id=ids.new_id(),
        scope_id=known_id(body.scope_id, "scope"),
        name=name,
        target=body.target,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/{barrier_id}",
    response_model=schemas.BarrierView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(
    barrier_id: str, wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0, x: Exchange = Current
) -> Response:
    """How many have arrived. With waitMs the answer comes as soon as the state is no longer WAITING, or the
    barrier has been reset since."""
    barrier = known_id(barrier_id, "barrier")
    epochs: list[int] = []

    async def look() -> Reply:
        return await kernel.view(x.kernel, x.caller, barrier_id=barrier)

    def over(reply: Reply) -> bool:
        if reply.code is not None or reply.facts["state"] != schemas.State.WAITING:
            return True
        epochs.append(reply.facts["epoch"])
        return epochs[0] != epochs[-1]

    return replies.answer(await x.poll(look, wait_ms=wait_ms, ready=over, waits=_waiting))


def _waiting(reply: Reply) -> Waiting:
    told = reply.facts
    return Waiting("barrier", told["name"] or told["id"], known_id(told["scopeId"], "scope"))


@router.post(
    "/{barrier_id}/arrive",
    response_model=schemas.ArriveOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.BARRIER_RELEASED, Code.BARRIER_CANCELLED),
)
async def arrive(barrier_id: str, body: schemas.ArriveIn, x: Exchange = Current) -> Response:
    """Be counted; the same key counts once, and is told the same after the release. A new key is
    BARRIER_RELEASED then."""
    reply = await kernel.arrive(
        x.kernel,
        x.caller,
        barrier_id=known_id(barrier_id, "barrier"),
        key=body.arrival_key,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{barrier_id}/reset",
    response_model=schemas.BarrierView,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.BARRIER_CANCELLED),
)
async def reset(barrier_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Begin the next epoch: nobody has arrived, and who waits for the one before wakes. Every call begins
    one: only under an Idempotency-Key is it safe to send again."""
    reply = await kernel.reset(
        x.kernel, x.caller, barrier_id=known_id(barrier_id, "barrier"), idempotency=x.idempotency
    )
    return replies.answer(reply)
