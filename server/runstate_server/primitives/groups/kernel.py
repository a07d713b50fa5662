"""The verbs of task groups, each the call of one SQL function."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from runstate_server.foundation import bounds
from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web.caller import Caller


@dataclass(frozen=True, slots=True)
class Group:
    """A group to create. threshold: how many have to be accepted, None for ALL_TERMINAL."""

    group_id: uuid.UUID
    scope_id: uuid.UUID
    mailbox_id: uuid.UUID
    condition: str
    threshold: int | None
    expected_members: int | None
    deadline: datetime | None
    parent_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class Member:
    """One task to submit into a group; input is JSON text."""

    task_id: uuid.UUID
    task_key: str
    input: str
    deadline: datetime | None
    priority: int
    requirements: str | None


async def create(kernel: Kernel, caller: Caller, *, group: Group, idempotency: Idempotency | None) -> Reply:
    """Refuses: NOT_FOUND (mailbox, parent), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (too deep).
    Returns: {groupId, scopeId, state}."""
    return await kernel.call(
        "group_create",
        caller.space_id,
        group.group_id,
        group.scope_id,
        group.mailbox_id,
        group.condition,
        group.threshold,
        group.expected_members,
        group.deadline,
        group.parent_id,
        bounds.child_limit_default,
        bounds.scope_depth_max,
        idempotency=idempotency,
    )


async def view(kernel: Kernel, caller: Caller, *, group_id: uuid.UUID) -> Reply:
    """What is due to be decided is, before the answer. Refuses: NOT_FOUND. Returns: the view, with what to
    sleep on while it is not FINALIZED."""
    reply = await kernel.call("group_view", caller.space_id, group_id, repeatable=True)
    if reply.decide:
        reply = await kernel.call("group_view", caller.space_id, group_id, repeatable=True)
    return reply


async def submit(
    kernel: Kernel,
    caller: Caller,
    *,
    group_id: uuid.UUID,
    member: Member,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: NOT_FOUND (group, what is required), VALIDATION_FAILED (more is required than there will be),
    SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (not OPEN, full), BACKLOG_FULL. Returns: {taskId, replay}."""
    return await kernel.call(
        "group_submit",
        caller.space_id,
        group_id,
        member.task_id,
        member.task_key,
        member.input,
        member.deadline,
        member.priority,
        member.requirements,
        bounds.group_members_max,
        idempotency=idempotency,
    )


async def join(
    kernel: Kernel,
    caller: Caller,
    *,
    group_id: uuid.UUID,
    task_id: uuid.UUID,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: NOT_FOUND (group, task), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (not OPEN, full).
    Returns: {taskId}."""
    return await kernel.call(
        "group_join",
        caller.space_id,
        group_id,
        task_id,
        bounds.group_members_max,
        idempotency=idempotency,
    )


async def judge(
    kernel: Kernel,
    caller: Caller,
    *,
    group_id: uuid.UUID,
    task_id: uuid.UUID,
    verdict: str,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: NOT_FOUND (group, member), CONFLICT (judged otherwise, or accepted before it is SUCCEEDED).
    Returns: {verdict, late, groupState, outcome, outcomeReason}."""
    return await kernel.call(
        "group_judge", caller.space_id, group_id, task_id, verdict, idempotency=idempotency
    )


async def close(
    kernel: Kernel,
    caller: Caller,
    *,
    group_id: uuid.UUID,
    strict: bool,
    idempotency: Idempotency | None,
) -> Reply:
    """Refuses: NOT_FOUND; when strict, CONFLICT (it is FINALIZED). Returns: {state, outcome,
    outcomeReason}."""
    return await kernel.call("group_close", caller.space_id, group_id, strict, idempotency=idempotency)
