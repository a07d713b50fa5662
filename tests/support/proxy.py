"""A TCP round robin on the loopback, with faults on request.

Stands for the load balancer in front of two replicas, and for the wire to the database. It runs on a thread
of its own, so that blocking and async tests use it alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10, under which the SDK's tests run too

Backend = int | Path  # a TCP port of 127.0.0.1, or a Unix socket
READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)  # close with a reset instead of an orderly end


class RoundRobin:
    """Connections to `port` go to the backends in turn; one that refuses is passed over, as a balancer does.

    sever() cuts what is open. blackhole(True) keeps connections open and lets nothing through.
    drop_reply(text) forwards the next request that contains the text and closes the connection instead of
    delivering its reply.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.backends = list(backends)
        self.dropped = threading.Event()  # set when the reply asked for has been thrown away
        self.accepted = 0
        self._turn = itertools.count()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._drop: bytes | None = None
        self._open_gate: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="round-robin", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        """For HTTP clients."""
        return f"http://127.0.0.1:{self.port}"

    def sever(self) -> None:
        """Cut every open connection, at both ends, without a goodbye."""
        self._call(self._abort())

    def blackhole(self, on: bool) -> None:
        """Swallow nothing, forward nothing: bytes wait in the proxy until this is turned off again."""
        self._call(self._gate(on))

    def drop_reply(self, containing: bytes) -> None:
        """Lose the reply of the next request that contains these bytes, after the backend has answered it."""
        self.dropped.clear()
        self._drop = containing

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(15)

    async def _listen(self) -> int:
        self._open_gate = asyncio.Event()
        self._open_gate.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _abort(self) -> None:
        for writer in list(self._writers):
            connection = writer.get_extra_info("socket")
            if connection is not None and connection.family != socket.AF_UNIX:
                with contextlib.suppress(OSError):  # closed in the meantime
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _gate(self, on: bool) -> None:
        (self._open_gate.clear if on else self._open_gate.set)()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # only at the end; asyncio's server would report it as an error
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend = await self._connect()
        if backend is None:
            return
        far_reader, far_writer = backend
        self._writers.add(far_writer)
        link = _Link()
        ways = {
            asyncio.create_task(self._up(reader, far_writer, link)),
            asyncio.create_task(self._down(far_reader, writer, link)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers.discard(far_writer)
            far_writer.close()

    async def _connect(self):
        for _ in self.backends:
            backend = self.backends[next(self._turn) % len(self.backends)]
            with contextlib.suppress(OSError):
                if isinstance(backend, Path):
                    return await asyncio.open_unix_connection(str(backend))
                return await asyncio.open_connection("127.0.0.1", backend)
        return None

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
        """Client to backend."""
        while data := await reader.read(READ_BYTES):
            await self._open_gate.wait()
            link.recent = (link.recent + data)[-READ_BYTES:]
            if self._drop is not None and self._drop in link.recent:
                self._drop = None
                link.lose_reply = True
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
        """Backend to client; its end ends the connection."""
        while data := await reader.read(READ_BYTES):
            await self._open_gate.wait()
            if link.lose_reply:
                self.dropped.set()
                raise _EndedError
            link.recent = b""  # a request has been answered; what follows belongs to the next
            writer.write(data)
            await writer.drain()
        raise _EndedError


class _Link:
    """One connection through the proxy."""

    def __init__(self) -> None:
        self.recent = b""
        self.lose_reply = False


class _EndedError(Exception):
    """Ends both directions of one connection."""


def database_socket(url: str) -> Path:
    """The Unix socket behind the URL of an embedded cluster: a backend for RoundRobin."""
    return Path(parse_qs(urlsplit(url).query)["host"][0]) / ".s.PGSQL.5432"


def database_through(proxy: RoundRobin, url: str) -> str:
    """The same database, reached through the proxy."""
    parts = urlsplit(url)
    return f"postgresql://{parts.username}@127.0.0.1:{proxy.port}{parts.path}"
