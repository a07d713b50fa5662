"""The verb of work limits: the call of one SQL function. They are obeyed where tasks are submitted."""

import uuid

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    limit_id: uuid.UUID,
    scope_id: uuid.UUID,
    name: str,
    max_outstanding: int,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (the name exists there).
    Returns: the view."""
    return await kernel.call(
        "work_limit_create",
        caller.space_id,
        limit_id,
        scope_id,
        name,
        max_outstanding,
        idempotency=idempotency,
    )
