"""The verbs of tasks, each the call of one SQL function."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


@dataclass(frozen=True, slots=True)
class Submission:
    """One task to submit; input is JSON text."""

    task_id: uuid.UUID
    scope_id: uuid.UUID
    mailbox_id: uuid.UUID
    task_key: str
    input: str
    deadline: datetime | None
    priority: int
    delay_s: float
    subscriber_id: str | None
    work_limit: str | None
    requirements: str | None


async def submit(
    kernel: Kernel,
    caller: Caller,
    *,
    tasks: Sequence[Submission],
    single: bool,
    idempotency: Idempotency | None,
) -> Reply:
    """All or none. Refuses: NOT_FOUND (scope, mailbox, work limit, what is required), VALIDATION_FAILED (more
    is required than there will be), SCOPE_CANCELLED, DEADLINE_EXCEEDED, BACKLOG_FULL.
    Returns: {tasks: [{taskId, replay, state}]}, or the one of a single submit."""
    return await kernel.call(
        "task_submit",
        caller.space_id,
        [t.task_id for t in tasks],
        [t.scope_id for t in tasks],
        [t.mailbox_id for t in tasks],
        [t.task_key for t in tasks],
        [t.input for t in tasks],
        [t.deadline for t in tasks],
        [t.priority for t in tasks],
        [t.delay_s for t in tasks],
        [t.subscriber_id for t in tasks],
        [t.work_limit for t in tasks],
        [t.requirements for t in tasks],
        single,
        idempotency=idempotency,
    )


async def view(kernel: Kernel, caller: Caller, *, task_id: uuid.UUID) -> Reply:
    """Refuses: NOT_FOUND. Returns: the view, with what to sleep on while it is not terminal."""
    return await kernel.call("task_view", caller.space_id, task_id, repeatable=True)


async def cancel(
    kernel: Kernel,
    caller: Caller,
    *,
    task_id: uuid.UUID,
    reason: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Cancel unless it is terminal. Refuses: NOT_FOUND. Returns: the view."""
    return await kernel.call("task_cancel", caller.space_id, task_id, reason, idempotency=idempotency)


async def subscribe(
    kernel: Kernel,
    caller: Caller,
    *,
    task_id: uuid.UUID,
    subscriber_id: str,
    scope_id: uuid.UUID | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Join with a scope, detach without. Refuses: NOT_FOUND. Returns: {subscribers}."""
    return await kernel.call(
        "task_subscribe", caller.space_id, task_id, subscriber_id, scope_id, idempotency=idempotency
    )
