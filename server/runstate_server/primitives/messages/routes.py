"""/messages, and what goes through a mailbox: send, recv, settle, redrive, look."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.kernel.call import Reply
from runstate_server.primitives.messages import kernel, reads, schemas
from runstate_server.web import exchange, paging, replies
from runstate_server.web.bodies import Nothing
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Id, PageLimit

router = exchange.room("", "messages")
_runtime = exchange.needs(Permission.RUNTIME)
_ended = (Code.NOT_FOUND, Code.SCOPE_CANCELLED, Code.DEADLINE_EXCEEDED, Code.IDEMPOTENCY_CONFLICT)


@router.get(
    "/mailboxes/{mailbox_id}",
    response_model=schemas.MailboxDepthView,
    openapi_extra=exchange.needs(Permission.RUNTIME),
    responses=replies.documented(Code.NOT_FOUND),
)
async def depth(mailbox_id: str, x: Exchange = Current) -> Response:
    """A mailbox with how much of what is in it."""
    mailbox = exchange.known_id(mailbox_id, "mailbox")

    async def read() -> dict[str, Any]:
        return await reads.depth(x.floor.engine, x.kernel.schema, x.caller.space_id, mailbox)

    return replies.plain(await x.kernel.patiently(read))


@router.post(
    "/mailboxes/{mailbox_id}/messages",
    status_code=201,
    response_model=schemas.SendOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.BACKLOG_FULL),
)
async def send(mailbox_id: str, body: schemas.SendIn, x: Exchange = Current) -> Response:
    """Send a message; the same workKey answers with the first one."""
    reply = await kernel.send(
        x.kernel,
        x.caller,
        message_id=ids.new_id(),
        mailbox_id=exchange.known_id(mailbox_id, "mailbox"),
        scope_id=exchange.known_id(body.scope_id, "scope"),
        payload=body.payload.text,
        work_key=body.work_key,
        deadline=body.deadline,
        priority=body.priority,
        delay_s=body.delay_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "/mailboxes/{mailbox_id}/messages",
    response_model=schemas.MessagePage,
    openapi_extra=exchange.needs(Permission.OBSERVE),
    responses=replies.documented(Code.NOT_FOUND),
)
async def page(
    *,
    mailbox_id: str,
    state: Annotated[schemas.State | None, Query()] = None,
    scope_id: Annotated[Id | None, Query(alias="scopeId")] = None,
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
    x: Exchange = Current,
) -> Response:
    """The messages of a mailbox in every state, newest first."""
    mailbox = exchange.known_id(mailbox_id, "mailbox")
    scope = exchange.known_id(scope_id, "scope") if scope_id is not None else None

    async def read() -> tuple[list[dict[str, Any]], int | None]:
        return await reads.page(
            x.floor.engine,
            x.kernel.schema,
            x.caller.space_id,
            mailbox,
            state=state,
            scope_id=scope,
            before=paging.decode_number(cursor) if cursor is not None else None,
            limit=limit,
        )

    found, before = await x.kernel.patiently(read)
    return replies.plain(
        {"messages": found, "nextCursor": paging.encode_number(before) if before is not None else None}
    )


@router.post(
    "/mailboxes/{mailbox_id}/recv",
    response_model=schemas.TakeOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, empty="Nothing to deliver."),
)
async def recv(mailbox_id: str, body: schemas.TakeIn, x: Exchange = Current) -> Response:
    """Take one message, or task, under a lease; with waitMs wait for one. 204 when there is none."""
    mailbox = exchange.known_id(mailbox_id, "mailbox")
    scope = exchange.known_id(body.scope_id, "scope")

    async def take() -> Reply:
        return await kernel.take(
            x.kernel,
            x.caller,
            mailbox_id=mailbox,
            scope_id=scope,
            descendants=body.include_descendants,
            form="message",
            holder=body.holder,
            session=body.holder_session,
            lease_s=body.lease_seconds,
            tokens=[ids.new_token()],
            idempotency=x.idempotency,
        )

    return replies.answer(await x.poll(take, wait_ms=body.wait_ms, ready=replies.has_content))


@router.post(
    "/messages/{message_id}/renew",
    response_model=schemas.RenewOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.STALE_CLAIM),
)
async def renew(message_id: str, body: schemas.RenewIn, x: Exchange = Current) -> Response:
    """Extend a lease that is still alive; no renewal shortens one."""
    reply = await kernel.renew(
        x.kernel,
        x.caller,
        message_id=exchange.known_id(message_id, "message"),
        token=body.token,
        lease_s=body.lease_seconds,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/messages/{message_id}/complete",
    response_model=schemas.CompleteOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.STALE_CLAIM, Code.BACKLOG_FULL),
)
async def complete(message_id: str, body: schemas.CompleteIn, x: Exchange = Current) -> Response:
    """Settle as done; a task keeps result.payload as its outcome, result.mailboxId sends it on."""
    result = body.result or schemas.ResultIn()
    reply = await kernel.complete(
        x.kernel,
        x.caller,
        message_id=exchange.known_id(message_id, "message"),
        token=body.token,
        outcome=result.payload.text,
        reply_id=ids.new_id(),
        mailbox_id=exchange.known_id(result.mailbox_id, "mailbox") if result.mailbox_id is not None else None,
        scope_id=exchange.known_id(result.scope_id, "scope") if result.scope_id is not None else None,
        work_key=result.work_key,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/messages/{message_id}/nack",
    response_model=schemas.NackOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.STALE_CLAIM),
)
async def nack(message_id: str, body: schemas.NackIn, x: Exchange = Current) -> Response:
    """Give a delivery back: to be retried with backoff, DEAD, or handed back without counting the attempt."""
    reply = await kernel.nack(
        x.kernel,
        x.caller,
        message_id=exchange.known_id(message_id, "message"),
        token=body.token,
        retry=body.retry,
        error=body.error,
        delay_s=body.delay_seconds,
        hand_back=body.hand_back,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.post(
    "/messages/{message_id}/redrive",
    response_model=schemas.RedriveOut,
    openapi_extra=_runtime,
    responses=replies.documented(*_ended, Code.CONFLICT),
)
async def redrive(message_id: str, _: Nothing, x: Exchange = Current) -> Response:
    """Give a DEAD message a fresh set of attempts; its task, if FAILED, is QUEUED again."""
    reply = await kernel.redrive(
        x.kernel,
        x.caller,
        message_id=exchange.known_id(message_id, "message"),
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
