"""An HTTP peer with a will of its own: it answers what a test says, late, wrongly or not at all.

It stands for what lies between the SDK and the server: proxies, balancers, cut wires. The socket is real."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    method: str
    path: str  # as it came over the wire
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


HANG = "hang"  # keep the connection open and say nothing until the peer closes
DROP = "drop"  # cut the connection instead of answering
Script = Callable[[Request], Any]


def refusal(status: int, code: str, message: str = "no", **headers: str) -> Answer:
    envelope = {"error": {"code": code, "message": message, "requestId": "req-1"}}
    return Answer(status, envelope, {name.replace("_", "-"): value for name, value in headers.items()})


class Peer:
    """`with Peer(script) as peer`: the script gives each request an Answer, HANG or DROP. Speaks TLS with
    `tls`."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._arrival = threading.Condition()
        self._script = script
        self._server = _Server(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self._server.server_port}"

    def answer(self, request: Request) -> Any:
        with self._arrival:
            self.requests.append(request)
            self._arrival.notify_all()
        return self._script(request)

    def arrived(self, count: int) -> None:
        """Waits until so many requests have come in."""
        with self._arrival:
            assert self._arrival.wait_for(lambda: len(self.requests) >= count, 30)

    def __enter__(self) -> "Peer":  # noqa: PYI034 - Self comes with 3.11
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        pass  # a client that hung up is part of many scripts


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.peer.answer(Request(self.command, self.path, headers, body))
        if answer == HANG:
            self.server.peer.closing.wait(60)
            answer = DROP
        if answer == DROP:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        raw = answer.raw()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _handle  # noqa: N815 - names given by http.server

    def log_message(self, *_: object) -> None:
        pass
