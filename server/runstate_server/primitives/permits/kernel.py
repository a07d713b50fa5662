"""The verbs of permits, each the call of one SQL function."""

import uuid

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller, Permission


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    pool_id: uuid.UUID,
    name: str,
    units: int,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: CONFLICT (the name exists). Returns: {id, name, unitsTotal}."""
    return await kernel.call("pool_create", caller.space_id, pool_id, name, units, idempotency=idempotency)


async def ensure(
    kernel: Kernel,
    caller: Caller,
    *,
    pool_id: uuid.UUID,
    name: str,
    units: int | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Find a pool by name; with units create it, or check its size.
    Refuses: NOT_FOUND (no units given), CONFLICT (another size), FORBIDDEN (to create one without
    `resource_config`). Returns: the view + units."""
    configure = caller.may(Permission.RESOURCE_CONFIG)
    return await kernel.call(
        "pool_ensure", caller.space_id, pool_id, name, units, configure, idempotency=idempotency
    )


async def resize(
    kernel: Kernel, caller: Caller, *, pool_id: uuid.UUID, units: int, idempotency: Idempotency | None
) -> Reply:
    """Refuses: NOT_FOUND. Returns: the view."""
    return await kernel.call("pool_resize", caller.space_id, pool_id, units, idempotency=idempotency)


async def view(kernel: Kernel, caller: Caller, *, pool_id: uuid.UUID) -> Reply:
    """Refuses: NOT_FOUND. Returns: {id, name, unitsTotal, unitsUsed, waiting}."""
    return await kernel.call("pool_view", caller.space_id, pool_id, repeatable=True)


async def acquire(
    kernel: Kernel,
    caller: Caller,
    *,
    pool_id: uuid.UUID,
    scope_id: uuid.UUID,
    grant_id: uuid.UUID,
    units: int,
    holder: str,
    session: str,
    lease_s: float,
    waiter_id: uuid.UUID | None,
    token: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Take units for lease_s seconds, with waiter_id as the one whom the line has signalled.
    Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED (more units than there are),
    CAPACITY_UNAVAILABLE, CONFLICT (a waiter that has ended, or for other units).
    Returns: {grantId, token, units, leaseExpiresAt}."""
    return await kernel.call(
        "permit_acquire",
        caller.space_id,
        pool_id,
        scope_id,
        grant_id,
        units,
        holder,
        session,
        lease_s,
        waiter_id,
        token,
        idempotency=idempotency,
        meets=pool_id,
    )


async def wait(
    kernel: Kernel,
    caller: Caller,
    *,
    pool_id: uuid.UUID,
    scope_id: uuid.UUID,
    waiter_id: uuid.UUID,
    units: int,
    holder: str,
    ttl_s: float,
    idempotency: Idempotency | None,
) -> Reply:
    """Join the line; ttl_s: seconds without a look after which the waiter expires.
    Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED.
    Returns: {waiterId, state, position}."""
    return await kernel.call(
        "permit_wait",
        caller.space_id,
        pool_id,
        scope_id,
        waiter_id,
        units,
        holder,
        ttl_s,
        idempotency=idempotency,
        meets=pool_id,
    )


async def look(kernel: Kernel, caller: Caller, *, waiter_id: uuid.UUID) -> Reply:
    """A waiter's own look, which keeps it in the line. Refuses: NOT_FOUND.
    Returns: {waiterId, state, units, position}."""
    return await kernel.call("waiter_look", caller.space_id, waiter_id, repeatable=True)


async def cancel(
    kernel: Kernel, caller: Caller, *, waiter_id: uuid.UUID, idempotency: Idempotency | None
) -> Reply:
    """Leave the line. Refuses: NOT_FOUND. Returns: {state}, that of one which has ended before, too."""
    return await kernel.call("waiter_cancel", caller.space_id, waiter_id, idempotency=idempotency)


async def renew(
    kernel: Kernel,
    caller: Caller,
    *,
    grant_id: uuid.UUID,
    token: str,
    lease_s: float | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Extend the lease to now + lease_s seconds, by default its own length; never shortens it.
    Refuses: STALE_CLAIM, SCOPE_CANCELLED, DEADLINE_EXCEEDED. Returns: {leaseExpiresAt}."""
    return await kernel.call(
        "grant_renew", caller.space_id, grant_id, token, lease_s, idempotency=idempotency
    )


async def release(
    kernel: Kernel,
    caller: Caller,
    *,
    grant_id: uuid.UUID,
    token: str,
    observation: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Give the units back, in a scope that has ended too. Refuses: STALE_CLAIM. Returns: {released: true}."""
    return await kernel.call(
        "grant_release", caller.space_id, grant_id, token, observation, idempotency=idempotency
    )
