"""/scopes and /runs: make, join, look at and end the units of cancellation."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.primitives.scopes import kernel, reads, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.bodies import Nothing
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Id, Name, PageLimit

router = exchange.room("", "scopes")
_runtime = exchange.needs(Permission.RUNTIME)


@router.post(
    "/scopes",
    status_code=201,
    response_model=schemas.ScopeView,
    openapi_extra=_runtime,
    responses=replies.documented(
        Code.NOT_FOUND,
        Code.CONFLICT,
        Code.SCOPE_CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def create(body: schemas.ScopeIn, x: Exchange = Current) -> Response:
    """A new scope: a root, or a child of parentId."""
    reply = await kernel.create(
        x.kernel,
        x.caller,
        scope_id=ids.new_id(),
        name=body.name,
        parent_id=exchange.known_id(body.parent_id, "scope") if body.parent_id is not None else None,
        deadline=body.deadline,
        child_limit=body.child_limit,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/scopes",
    response_model=schemas.ScopePage,
    openapi_extra=exchange.needs(Permission.OBSERVE),
    responses=replies.documented(Code.NOT_FOUND),
)
async def page(
    *,
    parent_id: Annotated[Id | None, Query(alias="parentId")] = None,
    state: Annotated[schemas.State | None, Query()] = None,
    name: Annotated[Name | None, Query()] = None,
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
    x: Exchange = Current,
) -> Response:
    """Scopes, newest first: roots, or the children of parentId. `state` filters by the effective state."""
    parent = exchange.known_id(parent_id, "scope") if parent_id is not None else None
    if parent is not None:
        replies.answer(await kernel.view(x.kernel, x.caller, scope_id=parent))

    async def read() -> dict[str, Any]:
        return await reads.page(
            x.floor.engine,
            x.kernel.schema,
            x.caller.space_id,
            parent_id=parent,
            state=state,
            name=name,
            cursor=cursor,
            limit=limit,
        )

    return replies.plain(await x.kernel.patiently(read))


@router.get(
    "/scopes/{scope_id}",
    response_model=schemas.ScopeView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(scope_id: str, x: Exchange = Current) -> Response:
    """One scope as it is at this instant."""
    return replies.answer(
        await kernel.view(x.kernel, x.caller, scope_id=exchange.known_id(scope_id, "scope"))
    )


async def _end(scope_id: str, state: schemas.State, x: Exchange) -> Response:
    reply = await kernel.end(
        x.kernel,
        x.caller,
        scope_id=exchange.known_id(scope_id, "scope"),
        state=state,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


_end_errors = replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "/scopes/{scope_id}/cancel",
    response_model=schemas.EndOut,
    openapi_extra=_runtime,
    responses=_end_errors,
)
async def cancel(scope_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Cancel the scope and everything in it, at once. Repeating is a no-op."""
    return await _end(scope_id, schemas.State.CANCELLED, x)


@router.post(
    "/scopes/{scope_id}/complete",
    response_model=schemas.EndOut,
    openapi_extra=_runtime,
    responses=_end_errors,
)
async def complete(scope_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Complete the scope and end everything in it, at once. Repeating is a no-op."""
    return await _end(scope_id, schemas.State.COMPLETED, x)


@router.put(
    "/runs/{name}",
    response_model=schemas.ScopeView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.IDEMPOTENCY_CONFLICT),
)
async def ensure_run(name: str, body: schemas.RunIn, x: Exchange = Current) -> Response:
    """Join the one active run of this name, or create it; the deadline counts only then."""
    reply = await kernel.ensure_run(
        x.kernel,
        x.caller,
        name=exchange.path_text(name, "name", bounds.name_chars_max),
        scope_id=ids.new_id(),
        deadline=body.deadline,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
