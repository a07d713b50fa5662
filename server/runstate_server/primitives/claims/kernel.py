"""The verbs of claims, each the call of one SQL function."""

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
    """Take the key under `token` for lease_s seconds.
    Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CLAIM_HELD (with what to sleep on).
    Returns: {key, scopeId, generation, token, leaseExpiresAt}."""
    return await kernel.call(
        "claim_acquire",
        caller.space_id,
        scope_id,
        key,
        holder,
        session,
        lease_s,
        token,
        idempotency=idempotency,
    )


async def renew(
    kernel: Kernel,
    caller: Caller,
    *,
    key: str,
    token: str,
    lease_s: float | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Extend the lease to now + lease_s seconds, by default its own length; never shortens it.
    Refuses: STALE_CLAIM, SCOPE_CANCELLED, DEADLINE_EXCEEDED. Returns: {leaseExpiresAt, generation}."""
    return await kernel.call("claim_renew", caller.space_id, key, token, lease_s, idempotency=idempotency)


async def release(
    kernel: Kernel,
    caller: Caller,
    *,
    key: str,
    token: str,
    observation: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Give the key up; an observation, JSON text, is kept for the next owner.
    Refuses: STALE_CLAIM. Returns: {released: true}."""
    return await kernel.call(
        "claim_release", caller.space_id, key, token, observation, idempotency=idempotency
    )


async def view(kernel: Kernel, caller: Caller, *, scope_id: uuid.UUID, key: str) -> Reply:
    """The key's state at this instant, never its token. Refuses: NOT_FOUND (scope).
    Returns: {key, scopeId, state, holder, generation, leaseExpiresAt, observation}."""
    return await kernel.call("claim_view", caller.space_id, scope_id, key, repeatable=True)
