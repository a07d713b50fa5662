"""HTTP/1.1 clients that cost as little as Python can: raw sockets, one request under way on each of them.

`python -m bench.connections` says "ready", reads one JSON line (see Order) and answers one: the latencies in
µs, and the answers that were not what was expected.
"""

import json
import selectors
import socket
import sys
import time
from dataclasses import asdict, dataclass

READ_BYTES = 65_536
KEY_NUMBER_DIGITS = 9


@dataclass(frozen=True)
class Order:
    """Keep `connections` busy for `seconds`. Every %s in the request becomes a fresh key: `keys`, a dash, and
    a number of KEY_NUMBER_DIGITS digits. An answer must hold the bytes `wanted`."""

    port: int
    connections: int
    seconds: float
    request: str
    keys: str
    wanted: str

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


class Connection:
    """One connection with one request under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0
        self.got = b""

    def whole(self) -> bool:
        """Whether what came is a whole answer."""
        head, end, body = self.got.partition(b"\r\n\r\n")
        if not end:
            return False
        _, _, length = head.lower().partition(b"content-length: ")
        return len(body) >= int(length.split(b"\r\n", 1)[0])


class Connections:
    """All of one process."""

    def __init__(self, order: Order) -> None:
        self._request = order.request.encode()
        self._places = self._request.count(b"%s")
        self._keys = f"{order.keys}-%0{KEY_NUMBER_DIGITS}d".encode()
        self._wanted = order.wanted.encode()
        self._number = 0
        self._ready = selectors.DefaultSelector()
        self._all = [Connection(order.port) for _ in range(order.connections)]
        self.took_us: list[int] = []
        self.wrong = 0
        self.sample = b""

    def run(self, seconds: float) -> None:
        """Keep them busy for so long, then take in the last answers."""
        ends_at = time.perf_counter_ns() + int(seconds * 1e9)
        for connection in self._all:
            self._ready.register(connection.socket, selectors.EVENT_READ, connection)
            self._send(connection)
        while self._ready.get_map():
            for found, _ in self._ready.select():
                connection = found.data
                connection.got += connection.socket.recv(READ_BYTES)
                if not connection.whole():
                    continue
                now = time.perf_counter_ns()
                self.took_us.append((now - connection.sent_at) // 1000)
                if self._wanted not in connection.got:
                    self.wrong += 1
                    self.sample = connection.got
                if now < ends_at:
                    self._send(connection)
                else:
                    self._ready.unregister(connection.socket)
                    connection.socket.close()

    def _send(self, connection: Connection) -> None:
        request = self._request
        if self._places:
            self._number += 1
            request %= (self._keys % self._number,) * self._places
        connection.got = b""
        connection.sent_at = time.perf_counter_ns()
        connection.socket.sendall(request)


if __name__ == "__main__":
    print("ready", flush=True)
    order = Order(**json.loads(sys.stdin.readline()))
    mine = Connections(order)
    mine.run(order.seconds)
    told = {"took_us": mine.took_us, "wrong": mine.wrong, "sample": mine.sample.decode(errors="replace")}
    json.dump(told, sys.stdout)
