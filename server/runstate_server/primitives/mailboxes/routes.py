"""/mailboxes: define queues and find them by name."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code
from runstate_server.primitives.mailboxes import kernel, reads, schemas
from runstate_server.web import exchange, replies
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import PageLimit

router = exchange.room("/mailboxes", "mailboxes")


@router.post(
    "",
    status_code=201,
    response_model=schemas.MailboxView,
    openapi_extra=exchange.needs(Permission.RESOURCE_CONFIG),
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def create(body: schemas.MailboxIn, x: Exchange = Current) -> Response:
    """A new mailbox; an existing name is CONFLICT."""
    reply = await kernel.create(
        x.kernel,
        x.caller,
        mailbox_id=ids.new_id(),
        name=body.name,
        mode=body.mode,
        backlog_limit=body.backlog_limit,
        max_attempts=body.max_attempts,
        requirements=None if body.requirements is None else body.requirements.text,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)


@router.get(
    "",
    response_model=schemas.MailboxList,
    openapi_extra=exchange.needs(Permission.RUNTIME),
    responses=replies.documented(),
)
async def page(
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit | None, Query()] = None,
    x: Exchange = Current,
) -> Response:
    """All mailboxes, oldest first; in pages when a limit is given."""

    async def read() -> dict[str, Any]:
        return await reads.page(
            x.floor.engine, x.kernel.schema, x.caller.space_id, cursor=cursor, limit=limit
        )

    return replies.plain(await x.kernel.patiently(read))


@router.put(
    "/by-name/{name}",
    response_model=schemas.MailboxView,
    openapi_extra=exchange.needs(Permission.RUNTIME, Permission.RESOURCE_CONFIG),
    responses=replies.documented(Code.NOT_FOUND, Code.CONFLICT, Code.IDEMPOTENCY_CONFLICT),
)
async def ensure(name: str, body: schemas.SettingsIn, x: Exchange = Current) -> Response:
    """Find the mailbox of this name; create it, or change the settings that are given. Settings that differ
    from what exists need `resource_config`."""
    reply = await kernel.ensure(
        x.kernel,
        x.caller,
        mailbox_id=ids.new_id(),
        name=exchange.path_text(name, "name", bounds.name_chars_max),
        mode=body.mode,
        backlog_limit=body.backlog_limit,
        max_attempts=body.max_attempts,
        requirements=None if body.requirements is None else body.requirements.text,
        idempotency=x.idempotency,
    )
    return replies.answer(reply)
