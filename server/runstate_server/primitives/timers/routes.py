"""/timers: instants that the server keeps, whoever is up when they come."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.timers import kernel, schemas
from runstate_server.web import bodies, exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import WaitMs
from runstate_server.web.waiting import Waiting

router = exchange.room("/timers", "timers")
_runtime = exchange.needs(Permission.RUNTIME)
_in_scope = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "",
    response_model=schemas.TimerSet,
    openapi_extra=_runtime,
    responses=replies.documented(*_in_scope),
)
async def create(body: schemas.TimerIn, x: Exchange = Current) -> Response:
    """A new timer without a name. A time in the past fires at once: then the answer has the token."""
    return await _set(None, body, x)


@router.put(
    "/by-name/{name}",
    response_model=schemas.TimerSet,
    openapi_extra=_runtime,
    responses=replies.documented(*_in_scope),
)
async def ensure(name: str, body: schemas.TimerIn, x: Exchange = Current) -> Response:
    """The scope's timer of this name: the first call sets its time, later ones read it, whatever time they
    give and whatever became of it."""
    return await _set(exchange.path_text(name, "name", bounds.name_chars_max), body, x)


async def _set(name: str | None, body: schemas.TimerIn, x: Exchange) -> Response:
    if (body.after_seconds is None) == (body.at is None):
        bodies.invalid("give one of 'afterSeconds' and 'at'")
    reply = await kernel.set_timer(
        x.kernel,
        x.caller,
        timer_id=ids.new_id(),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        name=name,
        after_s=body.after_seconds,
        at=body.at,
        token=ids.new_token(),
        idempotency=x.idempotency,
    )
    if reply.changed and reply.again_s is not None:
        x.floor.due_in(reply.again_s)
    return replies.answer(reply)


@router.post(
    "/poll",
    response_model=schemas.PollOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_in_scope),
)
async def poll(body: schemas.PollIn, x: Exchange = Current) -> Response:
    """The timers of exactly this scope that have fired and nobody has acknowledged; with waitMs wait for one.
    Changes nothing: they are told again until they are acknowledged."""
    scope = exchange.known_id(body.scope_id, "scope")

    async def look() -> Reply:
        return await kernel.poll(x.kernel, x.caller, scope_id=scope, idempotency=x.idempotency)

    return replies.answer(await x.poll(look, wait_ms=body.wait_ms, ready=_some))


def _some(reply: Reply) -> bool:
    return reply.code is not None or bool(reply.facts["timers"])


@router.get(
    "/{timer_id}",
    response_model=schemas.TimerView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(
    timer_id: str, wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0, x: Exchange = Current
) -> Response:
    """A timer, without its token; with waitMs the answer comes as soon as it is no longer PENDING."""
    timer = exchange.known_id(timer_id, "timer")

    async def look() -> Reply:
        return await kernel.view(x.kernel, x.caller, timer_id=timer)

    return replies.answer(await x.poll(look, wait_ms=wait_ms, ready=_over, waits=_waiting))


def _waiting(reply: Reply) -> Waiting:
    told = reply.facts
    return Waiting("timer", told["name"] or told["id"], exchange.known_id(told["scopeId"], "scope"))


def _over(reply: Reply) -> bool:
    return reply.code is not None or reply.facts["state"] != schemas.State.PENDING


@router.post(
    "/{timer_id}/ack",
    response_model=schemas.AckOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def ack(timer_id: str, body: schemas.AckIn, x: Exchange = Current) -> Response:
    """Take note of a timer that has fired, also in a scope that has ended. Again, with its token, is a
    no-op."""
    reply = await kernel.ack(
        x.kernel,
        x.caller,
        timer_id=exchange.known_id(timer_id, "timer"),
        token=body.token,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{timer_id}/cancel",
    response_model=schemas.TimerView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def cancel(timer_id: str, x: Exchange = Current) -> Response:
    """Cancel a timer that has not fired; one that was cancelled or has ended with its scope is answered as it
    is."""
    reply = await kernel.cancel(
        x.kernel,
        x.caller,
        timer_id=exchange.known_id(timer_id, "timer"),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
