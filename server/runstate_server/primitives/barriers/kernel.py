"""The verbs of barriers, each the call of one SQL function."""

import uuid

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    barrier_id: uuid.UUID,
    scope_id: uuid.UUID,
    name: str | None,
    target: int,
    idempotency: Idempotency | None,
) -> Reply:
    """A new barrier; with a name find that of the scope, or create it.
    Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (the name has another target).
    Returns: {id, name, scopeId, state, epoch, arrivals, target}."""
    return await kernel.call(
        "barrier_create", caller.space_id, barrier_id, scope_id, name, target, idempotency=idempotency
    )


async def view(kernel: Kernel, caller: Caller, *, barrier_id: uuid.UUID) -> Reply:
    """The barrier at this instant. Refuses: NOT_FOUND.
    Returns: {id, name, scopeId, state: WAITING|RELEASED|CANCELLED, epoch, arrivals, target}."""
    return await kernel.call("barrier_view", caller.space_id, barrier_id, repeatable=True)


async def arrive(
    kernel: Kernel, caller: Caller, *, barrier_id: uuid.UUID, key: str, idempotency: Idempotency | None
) -> Reply:
    """Count this key, once in an epoch; the last one releases the barrier.
    Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, BARRIER_RELEASED (a new key, too late),
    BARRIER_CANCELLED. Returns: {state, arrivals, epoch}."""
    return await kernel.call(
        "barrier_arrive", caller.space_id, barrier_id, key, idempotency=idempotency, meets=barrier_id
    )


async def reset(
    kernel: Kernel, caller: Caller, *, barrier_id: uuid.UUID, idempotency: Idempotency | None
) -> Reply:
    """Begin the next epoch, with nobody there.
    Refuses: NOT_FOUND, BARRIER_CANCELLED; SCOPE_CANCELLED or DEADLINE_EXCEEDED where it had been released.
    Returns: the view."""
    return await kernel.call(
        "barrier_reset", caller.space_id, barrier_id, idempotency=idempotency, meets=barrier_id
    )
