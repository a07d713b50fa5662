"""The verbs of messages, each the call of one SQL function."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


async def send(
    kernel: Kernel,
    caller: Caller,
    *,
    message_id: uuid.UUID,
    mailbox_id: uuid.UUID,
    scope_id: uuid.UUID,
    payload: str,
    work_key: str | None,
    deadline: datetime | None,
    priority: int,
    delay_s: float,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: NOT_FOUND (scope, mailbox), SCOPE_CANCELLED, DEADLINE_EXCEEDED, BACKLOG_FULL.
    Returns: {id, replay}."""
    return await kernel.call(
        "message_send",
        caller.space_id,
        message_id,
        mailbox_id,
        scope_id,
        payload,
        work_key,
        deadline,
        priority,
        delay_s,
        idempotency=idempotency,
    )


async def take(
    kernel: Kernel,
    caller: Caller,
    *,
    mailbox_id: uuid.UUID,
    scope_id: uuid.UUID,
    descendants: bool,
    form: str,
    holder: str,
    session: str,
    lease_s: float,
    tokens: Sequence[str],
    grants: Sequence[str] = (),
    wait_s: float = 0,
    idempotency: Idempotency | None,
) -> Reply:
    """Deliver at most len(tokens) messages to the holder, each under its token for lease_s seconds. `form`:
    `message` (recv, tasks too), `task` or `tasks` (admit, tasks alone). grants: four tokens for each, for
    what it holds of pools; wait_s: how much longer the caller waits.
    Refuses: NOT_FOUND (scope, mailbox), SCOPE_CANCELLED, DEADLINE_EXCEEDED.
    Returns: what the form says; status 204 with what to sleep on when there is nothing."""
    return await kernel.call(
        "message_take",
        caller.space_id,
        mailbox_id,
        scope_id,
        descendants,
        form,
        holder,
        session,
        lease_s,
        list(tokens),
        list(grants),
        wait_s,
        idempotency=idempotency,
        meets=None if form == "message" else mailbox_id,
    )


async def renew(
    kernel: Kernel,
    caller: Caller,
    *,
    message_id: uuid.UUID,
    token: str,
    lease_s: float | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Extend the lease to now + lease_s seconds, by default its own length; never shortens it.
    Refuses: NOT_FOUND, STALE_CLAIM; once the root run has ended SCOPE_CANCELLED, DEADLINE_EXCEEDED.
    Returns: {leaseExpiresAt}."""
    return await kernel.call(
        "message_renew", caller.space_id, message_id, token, lease_s, idempotency=idempotency
    )


async def complete(
    kernel: Kernel,
    caller: Caller,
    *,
    message_id: uuid.UUID,
    token: str,
    outcome: str | None,
    reply_id: uuid.UUID,
    mailbox_id: uuid.UUID | None,
    scope_id: uuid.UUID | None,
    work_key: str | None,
    idempotency: Idempotency | None,
) -> Reply:
    """Settle as done; a task keeps the outcome, JSON text. With mailbox_id it is sent on as message reply_id.
    Refuses as renew; NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, BACKLOG_FULL of what is sent on.
    Returns: {state: ACKED, replyId?}."""
    return await kernel.call(
        "message_complete",
        caller.space_id,
        message_id,
        token,
        outcome,
        reply_id,
        mailbox_id,
        scope_id,
        work_key,
        idempotency=idempotency,
    )


async def nack(
    kernel: Kernel,
    caller: Caller,
    *,
    message_id: uuid.UUID,
    token: str,
    retry: bool,
    error: str | None,
    delay_s: float | None,
    hand_back: bool,
    idempotency: Idempotency | None,
) -> Reply:
    """Give a delivery back. Refuses as renew. Returns: {state: READY|DEAD, attempt, availableAt?}."""
    return await kernel.call(
        "message_nack",
        caller.space_id,
        message_id,
        token,
        retry,
        error,
        delay_s,
        hand_back,
        idempotency=idempotency,
    )


async def redrive(
    kernel: Kernel, caller: Caller, *, message_id: uuid.UUID, idempotency: Idempotency | None
) -> Reply:
    """Give a DEAD message a fresh set of attempts.
    Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (not DEAD). Returns: {state: READY}."""
    return await kernel.call("message_redrive", caller.space_id, message_id, idempotency=idempotency)
