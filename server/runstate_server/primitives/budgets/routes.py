"""/budgets: money, reserved before it is spent."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.primitives.budgets import kernel, reads, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import PageLimit

router = exchange.room("/budgets", "budgets")
_runtime = exchange.needs(Permission.RUNTIME)
_configure = exchange.needs(Permission.RESOURCE_CONFIG)


@router.post(
    "",
    status_code=201,
    response_model=schemas.BudgetView,
    openapi_extra=_configure,
    responses=replies.documented(Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def create(body: schemas.BudgetIn, x: Exchange = Current) -> Response:
    """A new budget; an existing name is CONFLICT."""
    reply = await kernel.create(
        x.kernel,
        x.caller,
        budget_id=ids.new_id(),
        name=body.name,
        currency=body.currency,
        scale=body.scale,
        limit_minor=int(body.limit_minor),
        hold_stale=body.hold_stale,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get("", response_model=schemas.BudgetList, openapi_extra=_runtime, responses=replies.documented())
async def page(
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit | None, Query()] = None,
    x: Exchange = Current,
) -> Response:
    """All budgets, oldest first; in pages when a limit is given."""

    async def read() -> dict[str, Any]:
        return await reads.page(
            x.floor.engine, x.kernel.schema, x.caller.space_id, cursor=cursor, limit=limit
        )

    return replies.plain(await x.kernel.patiently(read))


@router.get(
    "/{budget_id}",
    response_model=schemas.BudgetSeen,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(budget_id: str, x: Exchange = Current) -> Response:
    """The balances, and the reservations that are open or ended in the last 24 hours."""
    reply = await kernel.view(x.kernel, x.caller, budget_id=exchange.known_id(budget_id, "budget"))
    return replies.answer(reply)


@router.put(
    "/by-name/{name}",
    response_model=schemas.BudgetView,
    openapi_extra=exchange.needs(Permission.RUNTIME, Permission.RESOURCE_CONFIG),
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def ensure(name: str, body: schemas.SettingsIn, x: Exchange = Current) -> Response:
    """Find the budget of this name; with currency, scale and limitMinor create it, or check what is given."""
    reply = await kernel.ensure(
        x.kernel,
        x.caller,
        budget_id=ids.new_id(),
        name=exchange.path_text(name, "name", bounds.name_chars_max),
        currency=body.currency,
        scale=body.scale,
        limit_minor=None if body.limit_minor is None else int(body.limit_minor),
        hold_stale=body.hold_stale,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.patch(
    "/{budget_id}",
    response_model=schemas.BudgetView,
    openapi_extra=_configure,
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def limit(budget_id: str, body: schemas.LimitIn, x: Exchange = Current) -> Response:
    """Change the limit; below what is settled and reserved is CONFLICT."""
    reply = await kernel.limit(
        x.kernel,
        x.caller,
        budget_id=exchange.known_id(budget_id, "budget"),
        limit_minor=int(body.limit_minor),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{budget_id}/reserve",
    response_model=schemas.ReserveOut,
    openapi_extra=_runtime,
    responses=replies.documented(
        Code.NOT_FOUND,
        Code.SCOPE_CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.INSUFFICIENT_BUDGET,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def reserve(budget_id: str, body: schemas.ReserveIn, x: Exchange = Current) -> Response:
    """Set money aside before it is spent; more than the budget has left is INSUFFICIENT_BUDGET."""
    reply = await kernel.reserve(
        x.kernel,
        x.caller,
        budget_id=exchange.known_id(budget_id, "budget"),
        reservation_id=ids.new_id(),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        holder=body.holder,
        amount_minor=int(body.amount_minor),
        settle_by=body.settle_by,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{budget_id}/settle",
    response_model=schemas.SettleOut,
    openapi_extra=_runtime,
    responses=replies.documented(
        Code.NOT_FOUND, Code.CONFLICT, Code.INSUFFICIENT_BUDGET, Code.IDEMPOTENCY_CONFLICT
    ),
)
async def settle(budget_id: str, body: schemas.SettleIn, x: Exchange = Current) -> Response:
    """Charge a reservation, also in a scope that has ended; what is left of it stays reserved."""
    reply = await kernel.settle(
        x.kernel,
        x.caller,
        budget_id=exchange.known_id(budget_id, "budget"),
        reservation_id=exchange.known_id(body.reservation_id, "reservation"),
        amount_minor=int(body.amount_minor),
        work_key=body.work_key,
        allow_overrun=body.allow_overrun,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{budget_id}/void",
    response_model=schemas.SettleOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def void(budget_id: str, body: schemas.VoidIn, x: Exchange = Current) -> Response:
    """Give what is left of a reservation back, also in a scope that has ended."""
    reply = await kernel.void(
        x.kernel,
        x.caller,
        budget_id=exchange.known_id(budget_id, "budget"),
        reservation_id=exchange.known_id(body.reservation_id, "reservation"),
        work_key=body.work_key,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/{budget_id}/entries",
    response_model=schemas.EntryList,
    openapi_extra=exchange.needs(Permission.OBSERVE),
    responses=replies.documented(Code.NOT_FOUND),
)
async def entries(
    budget_id: str,
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
    x: Exchange = Current,
) -> Response:
    """The ledger, oldest first: every change of the budget's money, never changed itself."""
    budget = exchange.known_id(budget_id, "budget")

    async def read() -> dict[str, Any]:
        return await reads.ledger(
            x.floor.engine, x.kernel.schema, x.caller.space_id, budget, cursor=cursor, limit=limit
        )

    return replies.plain(await x.kernel.patiently(read))
