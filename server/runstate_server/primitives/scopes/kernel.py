"""The verbs of scopes, each the call of one SQL function."""

import uuid
from datetime import datetime

from runstate_server.foundation import bounds
from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    scope_id: uuid.UUID,
    name: str | None,
    parent_id: uuid.UUID | None,
    deadline: datetime | None,
    child_limit: int,
    idempotency: Idempotency | None,
) -> Reply:
    """A new root, or a child of parent_id. Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED (of the
    parent), CONFLICT (childLimit or depth reached). Returns: the view."""
    return await kernel.call(
        "scope_create",
        caller.space_id,
        scope_id,
        name,
        parent_id,
        deadline,
        child_limit,
        bounds.scope_depth_max,
        idempotency=idempotency,
    )


async def ensure_run(
    kernel: Kernel,
    caller: Caller,
    *,
    name: str,
    scope_id: uuid.UUID,
    deadline: datetime | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Join the one active run of this name, or create it as scope_id. Returns: the view."""
    return await kernel.call(
        "run_ensure",
        caller.space_id,
        name,
        scope_id,
        deadline,
        bounds.child_limit_default,
        idempotency=idempotency,
    )


async def view(kernel: Kernel, caller: Caller, *, scope_id: uuid.UUID) -> Reply:
    """Refuses: NOT_FOUND. Returns: the view."""
    return await kernel.call("scope_view", caller.space_id, scope_id, repeatable=True)


async def end(
    kernel: Kernel, caller: Caller, *, scope_id: uuid.UUID, state: str, idempotency: Idempotency | None
) -> Reply:
    """End a scope and its subtree as CANCELLED or COMPLETED; repeating is a no-op.
    Refuses: NOT_FOUND, CONFLICT (it ended another way). Returns: {id, state, version}."""
    return await kernel.call("scope_end", caller.space_id, scope_id, state, idempotency=idempotency)
