"""HTTP/1.1 clients that cost as little as Python can: raw sockets, one request under way on each of them.

`python -m bench.connections` says "ready", reads one JSON line (see Order) and answers one: the latencies in
µs, and the answers that were not what was expected.
"""

import json
import re
import selectors
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

READ_BYTES = 65_536
PLACE = re.compile(rb"%\((\w+)\)s")
KEY, LENGTH = b"key", b"length"


@dataclass(frozen=True)
class Request:
    """One request of a unit. In both texts every %(key)s becomes a key that is fresh for each request; any
    other %(name)s what stands under that name, as a JSON string, in an answer before it in the same unit. The
    head holds %(length)s, the body's length, if there is a body. An answer must hold the bytes `wanted`."""

    head: str
    body: str
    wanted: str


@dataclass(frozen=True)
class Order:
    """Keep `connections` busy for `seconds` with units of these requests, one after another on the same
    connection. Keys are `keys`, a dash, and a number."""

    port: int
    connections: int
    seconds: float
    requests: list[Request]
    keys: str

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of(cls, line: str) -> "Order":
        given = json.loads(line)
        return cls(**given | {"requests": [Request(**each) for each in given["requests"]]})


class Step:
    """A request made ready: its bytes, and the names that later ones want from its answer."""

    def __init__(self, request: Request, later: list[Request]) -> None:
        self._head = request.head.encode()
        self._body = request.body.encode()
        self.wanted = request.wanted.encode()
        named = {name for each in later for name in PLACE.findall((each.head + each.body).encode())}
        self.names = sorted(named - {KEY, LENGTH})

    def text(self, values: dict[bytes, bytes]) -> bytes:
        body = self._body % values
        values[LENGTH] = b"%d" % len(body)
        return self._head % values + body

    def take(self, answer: bytes, values: dict[bytes, bytes]) -> None:
        for name in self.names:
            _, _, after = answer.partition(b'"%s":"' % name)
            values[name], _, _ = after.partition(b'"')


@dataclass
class Connection:
    """One connection with one request under way, the `step`th of its unit."""

    socket: socket.socket
    step: int = 0
    began_at: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)
    got: bytes = b""

    @classmethod
    def to(cls, port: int) -> "Connection":
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connection)

    def whole(self) -> bool:
        """Whether what came is a whole answer."""
        head, end, body = self.got.partition(b"\r\n\r\n")
        if not end:
            return False
        _, _, length = head.lower().partition(b"content-length: ")  # 204 has none
        return len(body) >= int(length.split(b"\r\n", 1)[0] or 0)


class Connections:
    """All of one process."""

    def __init__(self, order: Order) -> None:
        self._steps = [Step(each, order.requests[i + 1 :]) for i, each in enumerate(order.requests)]
        self._keys = f"{order.keys}-%d".encode()
        self._number = 0
        self._ends_at = 0
        self._ready = selectors.DefaultSelector()
        self._all = [Connection.to(order.port) for _ in range(order.connections)]
        self.took_us: list[int] = []  # of whole units
        self.wrong = 0
        self.sample = b""

    def run(self, seconds: float) -> None:
        """Keep them busy for so long, then take in the last answers."""
        self._ends_at = time.perf_counter_ns() + int(seconds * 1e9)
        for connection in self._all:
            self._ready.register(connection.socket, selectors.EVENT_READ, connection)
            self._begin(connection)
        while self._ready.get_map():
            for found, _ in self._ready.select():
                self._hear(found.data)

    def told(self) -> dict[str, Any]:
        return {"took_us": self.took_us, "wrong": self.wrong, "sample": self.sample.decode(errors="replace")}

    def _hear(self, connection: Connection) -> None:
        came = connection.socket.recv(READ_BYTES)
        connection.got += came
        if came and not connection.whole():
            return
        step = self._steps[connection.step]
        if not came or step.wanted not in connection.got:
            self.wrong += 1
            self.sample = connection.got
            self._end(connection)
        elif connection.step + 1 < len(self._steps):
            step.take(connection.got, connection.values)
            connection.step += 1
            self._send(connection)
        else:
            now = time.perf_counter_ns()
            self.took_us.append((now - connection.began_at) // 1000)
            if now < self._ends_at:
                self._begin(connection)
            else:
                self._end(connection)

    def _end(self, connection: Connection) -> None:
        self._ready.unregister(connection.socket)
        connection.socket.close()

    def _begin(self, connection: Connection) -> None:
        connection.step = 0
        connection.began_at = time.perf_counter_ns()
        self._send(connection)

    def _send(self, connection: Connection) -> None:
        self._number += 1
        connection.values[KEY] = self._keys % self._number
        connection.got = b""
        connection.socket.sendall(self._steps[connection.step].text(connection.values))


if __name__ == "__main__":
    print("ready", flush=True)
    order = Order.of(sys.stdin.readline())
    mine = Connections(order)
    mine.run(order.seconds)
    json.dump(mine.told(), sys.stdout)
