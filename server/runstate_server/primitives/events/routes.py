"""/events and /watch: the journal, by the page, held open, and as a stream."""

from typing import Annotated

from fastapi import Depends, Query
from starlette.responses import Response, StreamingResponse

from runstate_server.foundation import bounds
from runstate_server.foundation.errors import Code
from runstate_server.primitives.events import schemas
from runstate_server.primitives.events.kernel import Filter, Reader, Tails, decided, parse_cursor
from runstate_server.web import exchange, replies, stream
from runstate_server.web.caller import Permission
from runstate_server.web.exchange import Current, Exchange
from runstate_server.web.fields import Id, PageLimit

router = exchange.room("", "events")
_observe = exchange.needs(Permission.OBSERVE)
_answers = replies.documented(Code.NOT_FOUND, Code.CURSOR_EXPIRED)

CursorText = Annotated[str | None, Query()]


async def _reader(
    *,
    cursor: CursorText = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
    types: Annotated[schemas.Types | None, Query(description="a comma list")] = None,
    aggregate: Annotated[schemas.AggregateText | None, Query(description="type:id")] = None,
    scope_id: Annotated[Id | None, Query(alias="scopeId", description="its subtree")] = None,
    x: Exchange = Current,
) -> Reader:
    """What all three routes ask for."""
    chosen = Filter(
        schemas.parse_types(types) if types is not None else None,
        schemas.parse_aggregate(aggregate) if aggregate is not None else None,
        exchange.known_id(scope_id, "scope") if scope_id is not None else None,
    )
    if str(x.request.scope["path"]).endswith("/stream"):
        cursor = x.request.headers.get("last-event-id", cursor)
    after = parse_cursor(cursor) if cursor is not None else None
    tails: Tails = x.floor.kept.setdefault("events", Tails(x.kernel))
    return Reader(tails, x.kernel, x.caller.space_id, chosen, after=after, limit=limit)


Asked = Depends(_reader)


@router.get("/events", response_model=schemas.EventsOut, openapi_extra=_observe, responses=_answers)
async def events(reader: Reader = Asked, x: Exchange = Current) -> Response:
    """One page, oldest first; without a cursor from the oldest kept event."""
    reply = await x.poll(reader.look, wait_ms=0, ready=decided)
    if reply.code is not None:
        raise replies.refusal_of(reply)
    return replies.plain({"events": reader.events, "nextCursor": reader.next_cursor})


@router.get("/watch", response_model=schemas.EventsOut, openapi_extra=_observe, responses=_answers)
async def watch(
    wait_seconds: Annotated[
        schemas.WaitSeconds,
        Query(alias="waitSeconds", description=f"held at most {bounds.watch_s_max} s, whatever is asked"),
    ] = bounds.watch_s_default,
    reader: Reader = Asked,
    x: Exchange = Current,
) -> Response:
    """The same, held open until there is something or the wait ends."""
    wait_s = min(wait_seconds, bounds.watch_s_max)
    reply = await x.poll(reader.look, wait_ms=round(wait_s * 1000), ready=decided)
    if reply.code is not None:
        raise replies.refusal_of(reply)
    return replies.plain({"events": reader.events, "nextCursor": reader.next_cursor})


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    openapi_extra=_observe,
    responses={**_answers, 200: {"content": {"text/event-stream": {}}, "description": stream.DESCRIPTION}},
)
async def follow(reader: Reader = Asked, x: Exchange = Current) -> Response:
    """The same as server-sent events: `id:` is the cursor, the header Last-Event-ID resumes after it."""
    reply = await reader.look()
    if reply.code is not None:
        raise replies.refusal_of(reply)
    return StreamingResponse(
        stream.lines(x, reader, reply), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
    )
