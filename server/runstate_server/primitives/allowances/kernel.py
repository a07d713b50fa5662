"""The verbs of allowances, each the call of one SQL function."""

import uuid

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller, Permission


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    allowance_id: uuid.UUID,
    name: str,
    units: int,
    window_s: int,
    idempotency: Idempotency | None,
) -> Reply:
    """units: the most per window of window_s seconds. Refuses: CONFLICT (the name exists).
    Returns: the view."""
    return await kernel.call(
        "allowance_create", caller.space_id, allowance_id, name, units, window_s, idempotency=idempotency
    )


async def ensure(
    kernel: Kernel,
    caller: Caller,
    *,
    allowance_id: uuid.UUID,
    name: str,
    units: int | None,
    window_s: int | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Find an allowance by name; with both sizes create it, or check those that are given.
    Refuses: NOT_FOUND (no size given), CONFLICT (another size), VALIDATION_FAILED (one size alone, and
    nothing there), FORBIDDEN (to create one without `resource_config`). Returns: the view."""
    configure = caller.may(Permission.RESOURCE_CONFIG)
    return await kernel.call(
        "allowance_ensure",
        caller.space_id,
        allowance_id,
        name,
        units,
        window_s,
        configure,
        idempotency=idempotency,
    )


async def resize(
    kernel: Kernel,
    caller: Caller,
    *,
    allowance_id: uuid.UUID,
    units: int | None,
    window_s: int | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Change the sizes that are given; the window's consumption stays. Refuses: NOT_FOUND.
    Returns: the view."""
    return await kernel.call(
        "allowance_resize", caller.space_id, allowance_id, units, window_s, idempotency=idempotency
    )


async def view(kernel: Kernel, caller: Caller, *, allowance_id: uuid.UUID) -> Reply:
    """Refuses: NOT_FOUND. Returns: {id, name, unitsLimit, windowSeconds, windowStart, consumed, remaining,
    cooldownUntil, waiting}."""
    return await kernel.call("allowance_view", caller.space_id, allowance_id, repeatable=True)


async def consume(
    kernel: Kernel,
    caller: Caller,
    *,
    allowance_id: uuid.UUID,
    scope_id: uuid.UUID,
    units: int,
    holder: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Consume units of this window.
    Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED (more than a window has),
    ALLOWANCE_EXHAUSTED (too few left, or others wait), ALLOWANCE_COOLDOWN.
    Returns: {consumptionId, units, windowStart, remaining}."""
    return await kernel.call(
        "allowance_consume",
        caller.space_id,
        allowance_id,
        scope_id,
        units,
        holder,
        idempotency=idempotency,
        meets=allowance_id,
    )


async def wait(
    kernel: Kernel,
    caller: Caller,
    *,
    allowance_id: uuid.UUID,
    scope_id: uuid.UUID,
    waiter_id: uuid.UUID,
    units: int,
    holder: str,
    ttl_s: float,
    idempotency: Idempotency | None,
) -> Reply:
    """Join the line; ttl_s: seconds without a look after which the waiter expires.
    Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED.
    Returns: {waiterId, state, consumptionId, position}."""
    return await kernel.call(
        "allowance_wait",
        caller.space_id,
        allowance_id,
        scope_id,
        waiter_id,
        units,
        holder,
        ttl_s,
        idempotency=idempotency,
        meets=allowance_id,
    )


async def look(kernel: Kernel, caller: Caller, *, waiter_id: uuid.UUID) -> Reply:
    """A waiter's own look, which keeps it in the line. Refuses: NOT_FOUND.
    Returns: {waiterId, state, units, consumptionId}."""
    return await kernel.call("allowance_waiter_look", caller.space_id, waiter_id, repeatable=True)


async def cancel(
    kernel: Kernel, caller: Caller, *, waiter_id: uuid.UUID, idempotency: Idempotency | None
) -> Reply:
    """Leave the line. Refuses: NOT_FOUND. Returns: {waiterId, state, units, consumptionId}, of one which has
    ended before, too."""
    return await kernel.call("allowance_waiter_cancel", caller.space_id, waiter_id, idempotency=idempotency)


async def cool(
    kernel: Kernel,
    caller: Caller,
    *,
    allowance_id: uuid.UUID,
    seconds: float,
    reason: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Grant nothing for so many seconds; never shortens a longer cooldown. Refuses: NOT_FOUND.
    Returns: {cooldownUntil}."""
    return await kernel.call(
        "allowance_cool", caller.space_id, allowance_id, seconds, reason, idempotency=idempotency
    )
