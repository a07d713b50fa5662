"""The verbs of budgets, each the call of one SQL function. Amounts are whole minor units."""

import uuid
from datetime import datetime

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller, Permission


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    budget_id: uuid.UUID,
    name: str,
    currency: str,
    scale: int,
    limit_minor: int,
    hold_stale: bool,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: CONFLICT (the name exists). Returns: the view."""
    return await kernel.call(
        "budget_create",
        caller.space_id,
        budget_id,
        name,
        currency,
        scale,
        limit_minor,
        hold_stale,
        idempotency=idempotency,
    )


async def ensure(
    kernel: Kernel,
    caller: Caller,
    *,
    budget_id: uuid.UUID,
    name: str,
    currency: str | None,
    scale: int | None,
    limit_minor: int | None,
    hold_stale: bool | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Find a budget by name; create it, or check the settings that are given.
    Refuses: NOT_FOUND (not there, and too few settings to create it), CONFLICT (another setting), FORBIDDEN
    (to create without `resource_config`). Returns: the view."""
    return await kernel.call(
        "budget_ensure",
        caller.space_id,
        budget_id,
        name,
        currency,
        scale,
        limit_minor,
        hold_stale,
        caller.may(Permission.RESOURCE_CONFIG),
        idempotency=idempotency,
    )


async def limit(
    kernel: Kernel,
    caller: Caller,
    *,
    budget_id: uuid.UUID,
    limit_minor: int,
    idempotency: Idempotency | None,
) -> Reply:
    """Change the limit. Refuses: NOT_FOUND, CONFLICT (below what is settled and reserved).
    Returns: the view."""
    return await kernel.call("budget_limit", caller.space_id, budget_id, limit_minor, idempotency=idempotency)


async def view(kernel: Kernel, caller: Caller, *, budget_id: uuid.UUID) -> Reply:
    """Refuses: NOT_FOUND. Returns: the view with {reservations}."""
    return await kernel.call("budget_view", caller.space_id, budget_id, repeatable=True)


async def reserve(
    kernel: Kernel,
    caller: Caller,
    *,
    budget_id: uuid.UUID,
    reservation_id: uuid.UUID,
    scope_id: uuid.UUID,
    holder: str,
    amount_minor: int,
    settle_by: datetime | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Reserve money, until settle_by if that is given.
    Refuses: NOT_FOUND (budget, scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, INSUFFICIENT_BUDGET.
    Returns: {reservationId, reservedMinor, state}."""
    return await kernel.call(
        "budget_reserve",
        caller.space_id,
        budget_id,
        reservation_id,
        scope_id,
        holder,
        amount_minor,
        settle_by,
        idempotency=idempotency,
        meets=budget_id,
    )


async def settle(
    kernel: Kernel,
    caller: Caller,
    *,
    budget_id: uuid.UUID,
    reservation_id: uuid.UUID,
    amount_minor: int,
    work_key: str,
    allow_overrun: bool,
    idempotency: Idempotency | None,
) -> Reply:
    """Charge a reservation, once per work_key.
    Refuses: NOT_FOUND (budget, reservation), CONFLICT, INSUFFICIENT_BUDGET (late, and the money is gone).
    Returns: {entryId, reservedMinor, state, replay, chargedMinor, overrunMinor}."""
    return await kernel.call(
        "budget_settle",
        caller.space_id,
        budget_id,
        reservation_id,
        amount_minor,
        work_key,
        allow_overrun,
        idempotency=idempotency,
        meets=budget_id,
    )


async def void(
    kernel: Kernel,
    caller: Caller,
    *,
    budget_id: uuid.UUID,
    reservation_id: uuid.UUID,
    work_key: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Give a reservation up, once per work_key. Refuses: NOT_FOUND (budget, reservation), CONFLICT.
    Returns: as settle."""
    return await kernel.call(
        "budget_void",
        caller.space_id,
        budget_id,
        reservation_id,
        work_key,
        idempotency=idempotency,
        meets=budget_id,
    )
