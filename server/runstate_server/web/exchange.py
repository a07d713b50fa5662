"""One request under way, as a route sees it: who calls, the kernel, the idempotency key, the long poll.

`RoomRoute` does for every route what must come before its own code, in the order of http-api.md: the
permission, then the shape of query and body.
"""

import hashlib
import re
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.kernel.call import Idempotency, Kernel, Reply
from runstate_server.web import bodies
from runstate_server.web.caller import Caller, Permission
from runstate_server.web.longpoll import ClientGone, LongPolls, Probe
from runstate_server.web.waiting import Describe

PERMISSION: Final = "x-permissions"
BODY_BYTES: Final = "x-body-bytes-max"
_BAD_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Floor:
    """What the rooms stand on; app.py builds it once per process. `due_in`: tells the sweeps that something
    is due in so many seconds. `kept`: what a room keeps in memory, under its name."""

    kernel: Kernel
    long_polls: LongPolls
    engine: AsyncEngine
    due_in: Callable[[float], None]
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request under way."""

    request: Request
    caller: Caller
    floor: Floor
    idempotency: Idempotency | None

    @property
    def kernel(self) -> Kernel:
        """Where kernel functions are called."""
        return self.floor.kernel

    async def poll(
        self, probe: Probe, *, wait_ms: int, ready: Callable[[Reply], bool], waits: Describe | None = None
    ) -> Reply:
        """`probe` until `ready`, at most wait_ms; see LongPolls.wait_until."""
        return await self.floor.long_polls.wait_until(
            probe,
            space_id=self.caller.space_id,
            wait_s=wait_ms / 1000,
            receive=self.request.receive,
            ready=ready,
            waits=waits,
        )


async def exchange(request: Request) -> Exchange:
    """The dependency that routes take as `Current`. A plain function would be sent through a thread pool."""
    return Exchange(
        request,
        request.scope["runstate.caller"],
        request.app.state.floor,
        request.scope.get("runstate.idempotency"),
    )


Current = Depends(exchange)


def path_text(raw: str, what: str, chars_max: int) -> str:
    """A key or name from the raw path: percent-decoded once, here.
    Refuses: VALIDATION_FAILED for a `%` that begins no byte, bytes that are not UTF-8, NUL, and length."""
    text = _decoded(raw, f"the {what} in the path")
    if not 1 <= len(text) <= chars_max:
        bodies.invalid(f"the {what} in the path must have 1 to {chars_max} characters, not {len(text)}")
    if "\0" in text:
        bodies.invalid(f"the {what} in the path must not contain NUL")
    return text


def _decoded(raw: str, what: str) -> str:
    """Percent-encoded text in clear. Read loosely, two spellings would be one key, or one key another."""
    if _BAD_PERCENT.search(raw):
        bodies.invalid(f"{what} has a '%' without two hex digits; '%' itself is written %25")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        bodies.invalid(f"{what} is not UTF-8")


def known_id(raw: str, what: str) -> uuid.UUID:
    """An id from path, query or body. Refuses: NOT_FOUND for one that this server never made, which is not
    repeated: what stands in its place may be a key or a token."""
    value = ids.parse_id(raw)
    if value is None:
        raise Refusal(Code.NOT_FOUND, f"this is no id of a {what}: nothing in this space has it")
    return value


class _ParsedRequest(Request):
    """The request with its body read and parsed by this project's rules; FastAPI sees JSON whatever the
    client said."""

    def __init__(self, request: Request, raw: bytes, members: dict[str, Any]) -> None:
        headers = [h for h in request.scope["headers"] if h[0] != b"content-type"]
        scope = {**request.scope, "headers": [*headers, (b"content-type", b"application/json")]}
        super().__init__(scope, request.receive)
        self._body = raw
        self._members = members

    async def json(self) -> Any:
        return self._members


class RoomRoute(APIRoute):
    """A route of a room. Its `openapi_extra`, made by `needs`, names its permissions and the size of its
    body."""

    def authorizer(self) -> Callable[[Request], None]:
        """The check of who calls, made before anything else of the request is looked at."""
        permissions = [Permission(p) for p in (self.openapi_extra or {})[PERMISSION]]

        def check(request: Request) -> None:
            request.scope["runstate.caller"].need(*permissions)

        return check

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Permission, query, body and idempotency key, then FastAPI's own handler."""
        handler = super().get_route_handler()
        extra = self.openapi_extra or {}
        authorize = self.authorizer()
        bytes_max = extra.get(BODY_BYTES, bounds.body_bytes_max)
        params = frozenset(_query_names(self.dependant))
        field = self.body_field
        model: Any = field.field_info.annotation if field is not None else None

        async def handle(request: Request) -> Response:
            authorize(request)
            _check_query(request, params)
            if request.method == "GET":
                return await handler(request)
            raw = await _read(request, bytes_max)
            text = bodies.text_of(raw)
            members = bodies.envelope(text, model or bodies.Nothing)
            if model is None and members:
                bodies.invalid(f"unknown field {next(iter(members))!r}")
            request.scope["runstate.idempotency"] = _idempotency(request, text)
            return await handler(_ParsedRequest(request, text.encode(), members))

        return handle


def room(prefix: str, word: str) -> APIRouter:
    """The router of a room: its prefix below the space, its word in the documentation."""
    return APIRouter(prefix="/v1/spaces/{space_id}" + prefix, tags=[word], route_class=RoomRoute)


def needs(*permissions: Permission, body_bytes_max: int = bounds.body_bytes_max) -> dict[str, Any]:
    """The `openapi_extra` of a route that needs one of these permissions."""
    return {PERMISSION: [p.value for p in permissions], BODY_BYTES: body_bytes_max}


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Of a route and of what it depends on."""
    yield from (param.alias for param in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def _check_query(request: Request, known: frozenset[str]) -> None:
    _decoded(request.scope["query_string"].decode("latin-1"), "the query")
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in known:
            bodies.invalid(f"unknown query parameter {name!r}")
        if name in seen:
            bodies.invalid(f"query parameter {name!r} is given twice")
        if "\0" in value:
            bodies.invalid(f"query parameter {name!r} must not contain NUL")
        seen.add(name)


async def _read(request: Request, bytes_max: int) -> bytes:
    """The whole body, refused before it is held when it is too large or compressed."""
    coding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
    if coding not in {"", "identity"}:
        bodies.invalid("the body has a Content-Encoding: send it as it is")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    chunks = bytearray()
    try:
        async for chunk in request.stream():
            chunks += chunk
            if len(chunks) > bytes_max:
                raise _too_large(bytes_max)
    except ClientDisconnect:
        raise ClientGone from None
    return bytes(chunks)


def _too_large(bytes_max: int) -> Refusal:
    # The rest of the body is not read, so the connection cannot be used again.
    return Refusal(
        Code.VALIDATION_FAILED,
        f"the body is larger than {bytes_max} bytes",
        status=413,
        headers={"Connection": "close"},
    )


def _idempotency(request: Request, text: str) -> Idempotency | None:
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1:
        bodies.invalid(f"a request has one Idempotency-Key header, not {len(keys)}")
    [key] = keys
    if not 1 <= len(key) <= bounds.idempotency_key_chars_max:
        bodies.invalid(f"Idempotency-Key must have 1 to {bounds.idempotency_key_chars_max} characters")
    parts = (
        request.method,
        request.scope["path"],
        request.scope["query_string"].decode("latin-1"),
        bodies.tight(text),
    )
    return Idempotency(key, hashlib.sha256("\n".join(parts).encode()).digest())
