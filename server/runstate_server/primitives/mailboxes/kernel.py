"""The verbs of mailboxes, each the call of one SQL function."""

import uuid

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller, Permission


async def create(
    kernel: Kernel,
    caller: Caller,
    *,
    mailbox_id: uuid.UUID,
    name: str,
    mode: str | None,
    backlog_limit: int | None,
    max_attempts: int | None,
    requirements: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: CONFLICT (the name exists), NOT_FOUND and VALIDATION_FAILED (requirements). Returns: the
    view."""
    return await kernel.call(
        "mailbox_create",
        caller.space_id,
        mailbox_id,
        name,
        mode,
        backlog_limit,
        max_attempts,
        requirements,
        idempotency=idempotency,
    )


async def ensure(
    kernel: Kernel,
    caller: Caller,
    *,
    mailbox_id: uuid.UUID,
    name: str,
    mode: str | None,
    backlog_limit: int | None,
    max_attempts: int | None,
    requirements: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Find a mailbox by name; create it, or change the settings that are given.
    Refuses: CONFLICT (another mode), FORBIDDEN (settings to write without `resource_config`), NOT_FOUND and
    VALIDATION_FAILED (requirements). Returns: the view."""
    return await kernel.call(
        "mailbox_ensure",
        caller.space_id,
        mailbox_id,
        name,
        mode,
        backlog_limit,
        max_attempts,
        requirements,
        caller.may(Permission.RESOURCE_CONFIG),
        idempotency=idempotency,
    )
