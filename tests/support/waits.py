"""Long polls of three replicas on one database, which differ in what may wake them. None of them sweeps, and
two do not tick: what is left is the cause."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from runstate_server.wakeups.bus import CHANNEL
from tests.support import database, spaces
from tests.support.builders import Call
from tests.support.database import Template
from tests.support.metrics import Metrics, until_polls
from tests.support.processes import Replica
from tests.support.spaces import Space

NEVER = {"TICK_S": "60", "SWEEP_S": "3600"}
WAIT_MS = 30_000
PATIENCE_S = 12
CAUSES = ("commit", "notify", "tick", "alarm", "reconnect")


@dataclass
class Group:
    """`deaf` neither notifies nor listens; it ticks instead."""

    here: Replica
    there: Replica
    deaf: Replica
    space: Space
    database_url: str

    def poll(self, where: str, call: Call, key: str | None = None) -> "Poll":
        """The call, under that Idempotency-Key, waiting in that replica by the time the block is entered."""
        return Poll(self, getattr(self, where), call, key)


@contextlib.contextmanager
def group(template: Template) -> Iterator[Group]:
    with template.clone("waits") as url, ExitStack() as exits:
        here, there = Replica(url, **NEVER), Replica(url, **NEVER)
        deaf = Replica(url, NOTIFY="false", TICK_S="0.2", SWEEP_S="3600")
        for replica in (here, there, deaf):
            replica.start(wait=False)
            exits.push(replica.__exit__)
        for replica in (here, there, deaf):
            replica.wait_ready()
        yield Group(here, there, deaf, spaces.create(url), url)


class Poll:
    """A waiting call in a thread, asleep by the time the block is entered."""

    def __init__(self, group: Group, replica: Replica, call: Call, key: str | None) -> None:
        self._client = group.space.client(replica.url)
        self._replica = replica
        self._call = call
        self._key = key

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1)
        self._before = Metrics.of(self._replica)
        self._answer = self._pool.submit(self._call.send, self._client, self._key)
        until_polls(self._replica, int(self._before.open_polls) + 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._client.close()

    @property
    def done(self) -> bool:
        """Whether it has been answered."""
        return self._answer.done()

    def response(self) -> Any:
        """Its response, which must come long before its wait ends by itself."""
        return self._answer.result(PATIENCE_S)

    def causes(self) -> dict[str, float]:
        """What woke polls of this replica since the poll began, each with how often."""
        now = Metrics.of(self._replica)
        counts = {by: now.woken(by) - self._before.woken(by) for by in CAUSES}
        return {by: count for by, count in counts.items() if count}


@contextlib.contextmanager
def heard(database_url: str) -> Iterator[None]:
    """Ends once a NOTIFY of one of the block's commits has gone out to all who listen."""

    async def listen() -> None:
        got = asyncio.Event()
        async with database.connected(database_url) as connection:
            await connection.add_listener(CHANNEL, lambda *_: got.set())
            listening.set()
            await asyncio.wait_for(got.wait(), PATIENCE_S)

    listening = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(asyncio.run, listen())
        assert listening.wait(PATIENCE_S)
        yield
        told.result(PATIENCE_S)


@contextlib.contextmanager
def dialled(space: Space, replica: Replica, call: Call) -> Iterator[socket.socket]:
    """A connection that has sent the call and waits, asleep by the time the block is entered."""
    count = int(Metrics.of(replica).open_polls)
    body = json.dumps(call.body)
    head = (
        f"{call.method} /v1/spaces/{space.id}{call.path} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {space.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", replica.port), timeout=10) as connection:
        connection.sendall((head + body).encode())
        until_polls(replica, count + 1)
        yield connection
