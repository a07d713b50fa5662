"""/tasks: submit, admit, wait for outcomes."""

import time
import uuid
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.messages import kernel as messages
from runstate_server.primitives.tasks import kernel, reads, schemas
from runstate_server.web import exchange, paging, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Id, Key, PageLimit, WaitMs
from runstate_server.web.requirements import own
from runstate_server.web.waiting import Waiting

router = exchange.room("/tasks", "tasks")
_runtime = exchange.needs(Permission.RUNTIME)
_ended = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)
_LIVE = (schemas.State.QUEUED, schemas.State.RUNNING)


def _submission(body: schemas.SubmitIn) -> kernel.Submission:
    return kernel.Submission(
        ids.new_id(),
        exchange.known_id(body.scope_id, "scope"),
        exchange.known_id(body.mailbox_id, "mailbox"),
        body.task_key,
        body.input.text,
        body.deadline,
        body.priority,
        body.delay_seconds,
        body.subscriber_id,
        body.work_limit,
        own(body.requirements),
    )


@router.post(
    "",
    status_code=201,
    response_model=schemas.SubmitOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.BACKLOG_FULL),
)
async def submit(body: schemas.SubmitIn, x: Exchange = Current) -> Response:
    """Submit a task; the same taskKey answers with the first one, whatever its input."""
    reply = await kernel.submit(
        x.kernel, x.caller, tasks=[_submission(body)], single=True, idempotency=x.idempotency
    )
    return replies.answer(reply)


@router.post(
    "/batch",
    response_model=schemas.BatchOut,
    openapi_extra=exchange.needs(Permission.RUNTIME, body_bytes_max=bounds.batch_bytes_max),
    responses=replies.documented(*_ended, Code.BACKLOG_FULL),
)
async def batch(body: schemas.BatchIn, x: Exchange = Current) -> Response:
    """Submit up to 500 tasks, all or none."""
    reply = await kernel.submit(
        x.kernel,
        x.caller,
        tasks=[_submission(t) for t in body.tasks],
        single=False,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/admit",
    response_model=schemas.Admitted | schemas.AdmittedList,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, empty="Nothing to admit."),
)
async def admit(body: schemas.AdmitIn, x: Exchange = Current) -> Response:
    """Take a task with all that it needs, or up to max, under a lease; with waitMs wait for one. 204 when
    none can be had."""
    mailbox = exchange.known_id(body.mailbox_id, "mailbox")
    scope = exchange.known_id(body.scope_id, "scope")
    ends_at = time.monotonic() + body.wait_ms / 1000

    async def take() -> Reply:
        return await messages.take(
            x.kernel,
            x.caller,
            mailbox_id=mailbox,
            scope_id=scope,
            descendants=body.include_descendants,
            form="task" if body.max == 1 else "tasks",
            holder=body.holder,
            session=body.holder_session,
            lease_s=body.lease_seconds,
            tokens=[ids.new_token() for _ in range(body.max)],
            grants=[ids.new_token() for _ in range(body.max * bounds.needs_units_max)],
            wait_s=max(ends_at - time.monotonic(), 0),
            idempotency=x.idempotency,
        )

    return replies.answer(await x.poll(take, wait_ms=body.wait_ms, ready=replies.has_content))


@router.get(
    "",
    response_model=schemas.TaskPage,
    openapi_extra=exchange.needs(Permission.OBSERVE),
    responses=replies.documented(Code.NOT_FOUND),
)
async def page(
    *,
    scope_id: Annotated[Id | None, Query(alias="scopeId")] = None,
    mailbox_id: Annotated[Id | None, Query(alias="mailboxId")] = None,
    state: Annotated[schemas.State | None, Query()] = None,
    task_key: Annotated[Key | None, Query(alias="taskKey")] = None,
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
    x: Exchange = Current,
) -> Response:
    """Tasks of the space, newest first."""
    scope = exchange.known_id(scope_id, "scope") if scope_id is not None else None
    mailbox = exchange.known_id(mailbox_id, "mailbox") if mailbox_id is not None else None

    async def read() -> tuple[list[tuple[dict[str, Any], str, str | None]], int | None]:
        return await reads.page(
            x.floor.engine,
            x.kernel.schema,
            x.caller.space_id,
            scope_id=scope,
            mailbox_id=mailbox,
            task_key=task_key,
            state=state,
            before=paging.decode_number(cursor) if cursor is not None else None,
            limit=limit,
        )

    found, before = await x.kernel.patiently(read)
    tasks = [replies.splice(facts, (given, outcome or "null")) for facts, given, outcome in found]
    after = replies.dumps(paging.encode_number(before)) if before is not None else "null"
    return replies.text(f'{{"tasks":[{",".join(tasks)}],"nextCursor":{after}}}')


@router.get(
    "/{task_id}",
    response_model=schemas.TaskView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND),
)
async def view(
    task_id: str, wait_ms: Annotated[WaitMs, Query(alias="waitMs")] = 0, x: Exchange = Current
) -> Response:
    """A task; with waitMs the answer comes as soon as it is terminal."""
    task = exchange.known_id(task_id, "task")

    async def look() -> Reply:
        return await kernel.view(x.kernel, x.caller, task_id=task)

    return replies.answer(await x.poll(look, wait_ms=wait_ms, ready=_terminal, waits=_waiting))


def _waiting(reply: Reply) -> Waiting:
    return Waiting("task", reply.facts["id"], uuid.UUID(reply.facts["scopeId"]))


def _terminal(reply: Reply) -> bool:
    return reply.code is not None or reply.facts["state"] not in _LIVE


@router.post(
    "/{task_id}/cancel",
    response_model=schemas.TaskView,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def cancel(task_id: str, body: schemas.CancelIn, x: Exchange = Current) -> Response:
    """Cancel a task that is not terminal; its worker sees STALE_CLAIM. A terminal one is answered as it
    is."""
    reply = await kernel.cancel(
        x.kernel,
        x.caller,
        task_id=exchange.known_id(task_id, "task"),
        reason=body.reason,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{task_id}/join",
    response_model=schemas.SubscribersOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def join(task_id: str, body: schemas.JoinIn, x: Exchange = Current) -> Response:
    """Note that somebody waits for a task."""
    reply = await kernel.subscribe(
        x.kernel,
        x.caller,
        task_id=exchange.known_id(task_id, "task"),
        subscriber_id=body.subscriber_id,
        scope_id=exchange.known_id(body.scope_id, "scope"),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/{task_id}/detach",
    response_model=schemas.SubscribersOut,
    openapi_extra=_runtime,
    responses=replies.documented(Code.NOT_FOUND, Code.IDEMPOTENCY_CONFLICT),
)
async def detach(task_id: str, body: schemas.DetachIn, x: Exchange = Current) -> Response:
    """Take the note back; without subscribers a task goes on."""
    reply = await kernel.subscribe(
        x.kernel,
        x.caller,
        task_id=exchange.known_id(task_id, "task"),
        subscriber_id=body.subscriber_id,
        scope_id=None,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
