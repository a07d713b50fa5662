"""The verbs of once, each the call of one SQL function of the same name."""

import uuid

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


async def acquire(
    kernel: Kernel,
    caller: Caller,
    *,
    scope_id: uuid.UUID,
    key: str,
    holder: str,
    session: str,
    lease_s: float,
    token: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Take the key under `token` for lease_s seconds, or learn who has it or what came of it.
    Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED.
    Returns: {state: ACQUIRED|HELD|DONE|FAILED, attempts, token?, leaseExpiresAt?, result?, lastError?}."""
    return await kernel.call(
        "once_acquire",
        caller.space_id,
        scope_id,
        key,
        holder,
        session,
        lease_s,
        token,
        idempotency=idempotency,
    )


async def view(kernel: Kernel, caller: Caller, *, scope_id: uuid.UUID, key: str) -> Reply:
    """The key's state at this instant. Refuses: NOT_FOUND (scope).
    Returns: {state: OPEN|HELD|DONE|FAILED, attempts, result?, holder?, leaseExpiresAt?, lastError?}."""
    return await kernel.call("once_view", caller.space_id, scope_id, key, repeatable=True)


async def renew(
    kernel: Kernel,
    caller: Caller,
    *,
    scope_id: uuid.UUID,
    key: str,
    token: str,
    lease_s: float,
    idempotency: Idempotency | None,
) -> Reply:
    """Extend the lease to now + lease_s seconds; never shortens it.
    Refuses: STALE_CLAIM (not the current token, or lapsed, even if nobody took over), SCOPE_CANCELLED,
    DEADLINE_EXCEEDED, NOT_FOUND (scope). Returns: {leaseExpiresAt}."""
    return await kernel.call(
        "once_renew", caller.space_id, scope_id, key, token, lease_s, idempotency=idempotency
    )


async def complete(
    kernel: Kernel,
    caller: Caller,
    *,
    scope_id: uuid.UUID,
    key: str,
    token: str,
    result: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Record the one result, JSON text as it came. Refuses as renew. Returns: {state: DONE}."""
    return await kernel.call(
        "once_complete", caller.space_id, scope_id, key, token, result, idempotency=idempotency
    )


async def fail(
    kernel: Kernel,
    caller: Caller,
    *,
    scope_id: uuid.UUID,
    key: str,
    token: str,
    error: str,
    max_attempts: int,
    idempotency: Idempotency | None,
) -> Reply:
    """Record a failed attempt; FAILED for good at max_attempts. Refuses as renew.
    Returns: {state: OPEN|FAILED, attempts}."""
    return await kernel.call(
        "once_fail", caller.space_id, scope_id, key, token, error, max_attempts, idempotency=idempotency
    )
