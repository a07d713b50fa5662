"""Bytes → requests: uvicorn's protocol, made fit for whoever connects.

What is no request of HTTP/1.1 or 1.0 is answered 400 in the envelope, in its turn, and the connection closes.
Heads, quiet times and the line of pipelined requests are bounded, and so is the time in which a caller reads
nothing of its answer; a request to upgrade is served as it is.
"""

import asyncio
import logging
import uuid
from enum import Enum, auto
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from runstate_server.foundation import bounds
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.foundation.logs import request_id
from runstate_server.web import replies

STALL_S: Final = "runstate.stall_s"  # in the state that the app's lifespan hands to its server
_HEADER_OVERHEAD_BYTES: Final = 32  # what one more header costs beside its bytes
_CHUNKED: Final = b"transfer-encoding: chunked"
log = logging.getLogger("runstate.access")


class _Part(Enum):
    """What of a request has arrived last."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


class Protocol(HttpToolsProtocol):
    """One connection. `_part` is of the request that is being read; `_running` is the one being answered,
    perhaps an earlier one. `_fault` says why no more is read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stall_s: float = self.app_state[STALL_S]
        self._part = _Part.NOTHING
        self._running: RequestResponseCycle | None = None
        self._fault: str | None = None
        self._head_bytes = 0
        self._quiet_bytes = 0  # since a head or some of a body was understood
        self._framing = b""  # of a body that follows a request to upgrade
        self._priming = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread_bytes = 0  # of what has been answered, when that was looked at last
        self._reader_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, also when others stand behind it."""
        self._disarm()
        self._watch_no_reader()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; after a fault, what comes is not looked at."""
        if self._fault is not None or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._quiet_bytes += len(data)
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._break(cause.message if isinstance(cause, Refusal) else f"this is no HTTP/1.1: {error}")
            return
        if self._quiet_bytes > bounds.head_bytes_max:
            self._break(f"more than {bounds.head_bytes_max} bytes without an end of the head or of a chunk")
        elif self._part is _Part.BODY:
            self._arm(anew=True)
        elif self._part is _Part.HEAD or not self._busy:
            self._arm()

    def _feed(self, data: bytes) -> bytes:
        """Returns: what is left of the data behind a head that asks for an upgrade."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay()
            return data[upgrade.args[0] :]
        return b""

    def _stay(self) -> None:
        """No upgrade is made (RFC 9110, 7.8): read the body of that request, and then the next one. The
        parser has given up on the body: another one is told how it is framed."""
        self.parser = httptools.HttpRequestParser(self)
        framing, self._framing = self._framing, b""
        if framing:
            self._priming = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
            self._priming = False

    # What the parser finds

    def on_message_begin(self) -> None:
        """A request begins. Refuses: one more than may stand in line."""
        if self._priming:
            return
        if len(self.pipeline) >= bounds.pipelined_max:
            raise _refusal(f"more than {bounds.pipelined_max} requests wait on this connection")
        self._disarm()
        super().on_message_begin()
        self._part = _Part.HEAD
        self._head_bytes = self._quiet_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Some of the target."""
        if not self._priming:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers come after the body; nothing of theirs is a header of the request."""
        if self._priming:
            return
        self._count(len(name) + len(value) + _HEADER_OVERHEAD_BYTES)
        if self._part is _Part.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole. Refuses what is ambiguous: two readers must not read two requests in it."""
        if self._priming:
            return
        self._check_head()
        self._head_bytes = self._quiet_bytes = 0
        try:
            super().on_headers_complete()
        except (httptools.HttpParserInvalidURLError, AttributeError, UnicodeDecodeError):
            raise _refusal("the target of the request is no path of this server") from None
        self._part = _Part.BODY
        if self.pipeline:
            # uvicorn pauses here, and would not see the caller hang up. The line is bounded instead.
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._quiet_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole, unless the parser skips the body of one that asks for an upgrade."""
        if self._framing:
            return
        super().on_message_complete()
        self._part = _Part.NOTHING
        self._disarm()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > bounds.head_bytes_max:
            raise _refusal(f"the head is larger than {bounds.head_bytes_max} bytes")

    def _check_head(self) -> None:
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            raise _refusal(f"this server speaks HTTP/1.1, not {version}")
        hosts = len(self._values(b"host"))
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise _refusal(f"a request has one Host header, not {hosts}")
        if b"#" in self.url:
            raise _refusal("the target has a '#': in a key or name it is written %23")
        codings = self._values(b"transfer-encoding")
        if codings and (version == "1.0" or [c.strip().lower() for c in codings] != [b"chunked"]):
            raise _refusal("the only Transfer-Encoding is chunked, of HTTP/1.1")
        if self.parser.should_upgrade():
            length = b"".join(self._values(b"content-length")).strip()
            body = b"content-length: " + length if length.strip(b"0") else b""
            self._framing = _CHUNKED if codings else body

    def _values(self, wanted: bytes) -> list[bytes]:
        return [value for name, value in self.headers if name == wanted]

    # Answering

    @property
    def _busy(self) -> bool:
        """Whether a request is being answered."""
        return self._running is not None and not self._running.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """The next in line; after the last one the answer to what was no request."""
        if self._fault is None or self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:
            self._answer(self._fault)

    def _break(self, fault: str) -> None:
        """Read no more. The answer to the request at fault comes after those before it: else their callers
        would take it for theirs."""
        self._fault = fault
        self._disarm()
        cycle = self.cycle if self._part is _Part.BODY else None
        if cycle is not None and cycle is self._running:
            if cycle.response_started:
                self.transport.close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
            self._answer(fault)
            return
        if cycle is not None:
            self.pipeline.popleft()  # the latest: its head was good, the rest is not
        if not self._busy:
            self._answer(fault)

    def _answer(self, fault: str) -> None:
        """The envelope, then the end of the connection."""
        rid = uuid.uuid4().hex
        response = replies.error(_refusal(fault), rid)
        headers = [
            *self.server_state.default_headers,
            *response.raw_headers,
            (b"x-request-id", rid.encode()),
            (b"connection", b"close"),
        ]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(response.body))
        self.transport.close()
        token = request_id.set(rid)
        log.info("no request 400", extra={"why": fault})
        request_id.reset(token)

    # Time

    def _arm(self, *, anew: bool = False) -> None:
        """From now on, or from when it was armed, something must come within the time of a stall."""
        if anew:
            self._disarm()
        if self._timer is None:
            self._timer = self.loop.call_later(self._stall_s, self._stalled)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stalled(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._part is _Part.NOTHING:
            self.transport.close()  # nobody has asked for anything
        elif self._busy and (self._part is _Part.HEAD or self.cycle is not self._running):
            self._arm()  # behind another one that is being answered: perhaps it is not read for that
        else:
            self._break(f"the rest of the request did not come within {self._stall_s:g} s")

    def pause_writing(self) -> None:
        """More has been answered than the caller has read."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """It has read nearly all of it."""
        super().resume_writing()
        self._watch_no_reader()

    def _watch_reader(self) -> None:
        self._watch_no_reader()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self._stall_s, self._unread)

    def _watch_no_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _unread(self) -> None:
        """An answer is kept in memory until it has been read: whoever reads too little of it is let go."""
        read = self._unread_bytes - self.transport.get_write_buffer_size()
        if read < bounds.stall_read_bytes_min:
            log.info("the answer was not read within %g s", self._stall_s)
            self.transport.abort()
        else:
            self._watch_reader()


def _refusal(message: str) -> Refusal:
    return Refusal(Code.VALIDATION_FAILED, message)
