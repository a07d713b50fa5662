"""/task-groups: several tasks with one outcome."""

import uuid
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.groups import kernel, schemas
from runstate_server.primitives.tasks.schemas import State as TaskState
from runstate_server.web import exchange, replies
from runstate_server.web.bodies import Nothing
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Members, WaitMs
from runstate_server.web.requirements import own
from runstate_server.web.waiting import Waiting

router = exchange.room("/task-groups", "task groups")
_runtime = exchange.needs(Permission.RUNTIME)
_known = (Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT)
_adding = (*_known, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED)
_LIVE = frozenset({TaskState.QUEUED, TaskState.RUNNING})


@router.post(
    "",
    status_code=201,
    response_model=schemas.GroupOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_adding),
)
async def create(body: schemas.GroupIn, x: Exchange = Current) -> Response:
    """A new group with a scope of its own."""
    parent = body.parent_scope_id
    group = kernel.Group(
        ids.new_id(),
        ids.new_id(),
        exchange.known_id(body.mailbox_id, "mailbox"),
        body.condition,
        body.wanted,
        body.expected_members,
        body.deadline,
        exchange.known_id(parent, "scope") if parent is not None else None,
    )
    return replies.answer(await kernel.create(x.kernel, x.caller, group=group, idempotency=x.idempotency))


@router.get(
    "/{group_id}",
    response_model=schemas.GroupView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(
    group_id: str,
    wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0,
    finished: Annotated[Members | None, Query()] = None,
    x: Exchange = Current,
) -> Response:
    """A group with its members; with waitMs answers as soon as it is FINALIZED or, with finished, more than
    so many of its members have ended."""
    group = _id(group_id)

    async def probe() -> Reply:
        return await kernel.view(x.kernel, x.caller, group_id=group)

    def ready(reply: Reply) -> bool:
        return _finalized(reply) or (finished is not None and _ended(reply) > finished)

    return replies.answer(await x.poll(probe, wait_ms=wait_ms, ready=ready, waits=_waiting))


def _finalized(reply: Reply) -> bool:
    return reply.code is not None or reply.facts["state"] == schemas.State.FINALIZED


def _ended(reply: Reply) -> int:
    return sum(member["state"] not in _LIVE for member in reply.facts["members"])


def _waiting(reply: Reply) -> Waiting:
    return Waiting("group", reply.facts["id"], uuid.UUID(reply.facts["scopeId"]))


def _id(group_id: str) -> uuid.UUID:
    return exchange.known_id(group_id, "task group")


@router.post(
    "/{group_id}/tasks",
    response_model=schemas.MemberOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_adding, Code.BACKLOG_FULL),
)
async def submit(group_id: str, body: schemas.MemberIn, x: Exchange = Current) -> Response:
    """Submit a task into the group's scope; the same taskKey answers with the first one."""
    member = kernel.Member(
        ids.new_id(),
        body.task_key,
        body.input.text,
        body.deadline,
        body.priority,
        own(body.requirements),
    )
    reply = await kernel.submit(
        x.kernel, x.caller, group_id=_id(group_id), member=member, idempotency=x.idempotency
    )
    return replies.answer(reply)


@router.post(
    "/{group_id}/join-task",
    response_model=schemas.JoinOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_adding),
)
async def join(group_id: str, body: schemas.JoinIn, x: Exchange = Current) -> Response:
    """Watch a task that was submitted elsewhere. Again is a no-op."""
    reply = await kernel.join(
        x.kernel,
        x.caller,
        group_id=_id(group_id),
        task_id=exchange.known_id(body.task_id, "task"),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{group_id}/close",
    response_model=schemas.CloseOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def close(group_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Take no more members; a group that is FINALIZED answers its outcome."""
    return await _close(group_id, x, strict=False)


@router.post(
    "/{group_id}/seal",
    response_model=schemas.CloseOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_known),
)
async def seal(group_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """As close; CONFLICT when the group is FINALIZED. Kept for clients in the field."""
    return await _close(group_id, x, strict=True)


async def _close(group_id: str, x: Exchange, *, strict: bool) -> Response:
    reply = await kernel.close(
        x.kernel, x.caller, group_id=_id(group_id), strict=strict, idempotency=x.idempotency
    )
    return replies.answer(reply)


@router.post(
    "/{group_id}/tasks/{task_id}/accept",
    response_model=schemas.VerdictOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_known),
)
async def accept(group_id: str, task_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Count the result of a SUCCEEDED member. Again is a no-op."""
    return await _judge(group_id, task_id, x, schemas.Verdict.ACCEPTED)


@router.post(
    "/{group_id}/tasks/{task_id}/reject",
    response_model=schemas.VerdictOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_known),
)
async def reject(group_id: str, task_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Count a member out. Again is a no-op."""
    return await _judge(group_id, task_id, x, schemas.Verdict.REJECTED)


async def _judge(group_id: str, task_id: str, x: Exchange, verdict: schemas.Verdict) -> Response:
    reply = await kernel.judge(
        x.kernel,
        x.caller,
        group_id=_id(group_id),
        task_id=exchange.known_id(task_id, "task"),
        verdict=verdict,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
