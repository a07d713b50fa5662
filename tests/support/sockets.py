"""HTTP as bytes on a socket: what no client library would send, and exactly what comes back."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from typing import Self

_STEP = 65_536
_CLOSED = (ConnectionResetError, BrokenPipeError)


class Connection:
    """One TCP connection to a port of this machine; waits `timeout_s` at most for anything. `receive_bytes`:
    so much is taken before it is read, about. `pause_s`: before every step of reading."""

    def __init__(
        self, port: int, timeout_s: float = 20, *, receive_bytes: int | None = None, pause_s: float = 0
    ) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.connect(("127.0.0.1", port))
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._read = b""

    def send(self, data: bytes) -> Self:
        """All of it."""
        self.socket.sendall(data)
        return self

    def pour(self, pieces: Iterable[bytes]) -> int:
        """Send piece after piece until the other side has closed. Returns: how many bytes were taken."""
        taken = 0
        with contextlib.suppress(*_CLOSED):
            for piece in pieces:
                self.socket.sendall(piece)
                taken += len(piece)
        return taken

    def push(self, piece: bytes, *, bytes_max: int) -> int:
        """Send it again and again and read nothing, until the other side takes no more for a second or has
        closed. Returns: how many bytes were taken."""
        taken = 0
        self.socket.settimeout(1)
        with contextlib.suppress(TimeoutError, *_CLOSED):
            while taken < bytes_max:
                taken += self.socket.send(piece[taken % len(piece) :])
        self.socket.settimeout(self._timeout_s)
        return taken

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def answer(self) -> httpx.Response:
        """The next response."""
        return self._next() or _ended(self._read)

    def answers(self) -> list[httpx.Response]:
        """Every response until the other side closes, which it must."""
        found = []
        while (response := self._next()) is not None:
            found.append(response)
        assert not self._read, f"these bytes are no response: {self._read[:200]!r}"
        return found

    def rest(self) -> bytes:
        """Everything until the other side closes, as it is."""
        while self._more():
            pass
        return self._read

    def quiet(self, for_s: float) -> bool:
        """Whether nothing comes and nothing is closed for that long."""
        ends_at = time.monotonic() + for_s
        try:
            while (left_s := ends_at - time.monotonic()) > 0:
                self.socket.settimeout(left_s)
                if not self._more():
                    return False
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(self._timeout_s)
        return not self._read

    def _next(self) -> httpx.Response | None:
        """The next final response; None when the other side has closed."""
        while True:
            head = self._until(b"\r\n\r\n")
            if head is None:
                return None
            status, *lines = head.decode("latin-1").split("\r\n")[:-2]
            headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            code = int(re.match(r"HTTP/1\.1 (\d{3}) ", status)[1])
            length = int(dict(headers).get("content-length", 0))
            while len(self._read) < length:
                if not self._more():
                    return None
            body, self._read = self._read[:length], self._read[length:]
            if code >= 200:
                return httpx.Response(code, headers=headers, content=body)

    def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._read:
            if not self._more():
                return None
        head, _, self._read = self._read.partition(mark)
        return head + mark

    def _more(self) -> bool:
        time.sleep(self._pause_s)
        try:
            data = self.socket.recv(_STEP)
        except _CLOSED:
            return False
        self._read += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def _ended(read: bytes) -> httpx.Response:
    raise AssertionError(f"the connection ended without a response, after {read[:200]!r}")


def head(line: str, *headers: str, host: str | None = "x") -> bytes:
    """A request line and its headers, as bytes of Latin-1."""
    named = [] if host is None else [f"Host: {host}"]
    return "".join(text + "\r\n" for text in (line, *named, *headers, "")).encode("latin-1")
