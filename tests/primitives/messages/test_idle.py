"""A thousand idle workers cost the database almost nothing, and a message wakes few of them."""

import asyncio
import json
import resource
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support import database, races, spaces
from tests.support.builders import ok, scope
from tests.support.metrics import Metrics
from tests.support.processes import Replica
from tests.support.proxy import RoundRobin, database_socket, database_through
from tests.support.queues import batch, mailbox, sent

pytestmark = pytest.mark.processes

WORKERS = 1_000
STATEMENTS_PER_S_MAX = 5
HEARTBEAT_S = 5  # how often a replica says that it is alive
ANSWERED = b"\r\n\r\n"
SIGN = "SELECT max(query_start) FROM pg_stat_activity WHERE datname = $1 AND query LIKE '%replica_seen%'"


@contextmanager
def many_files():
    """As many open connections as there are workers, here and in the server that is started inside."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * WORKERS), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


class Workers:
    """Connections that have each asked for a message; what they are answered is kept."""

    def __init__(self, replica, space, box):
        self._port = replica.port
        body = json.dumps(box.recv(lease_s=3600, waitMs=30_000).body)
        path = f"/v1/spaces/{space.id}/mailboxes/{box.id}/recv"
        self._request = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {space.key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        self.delivered = []
        self._tasks = []

    async def start(self, count):
        gate = asyncio.Semaphore(100)
        self._tasks += [asyncio.create_task(self._work(gate)) for _ in range(count)]

    async def _work(self, gate):
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(self._request)
            await writer.drain()
        try:
            head = await reader.readuntil(ANSWERED)
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.delivered.append(json.loads(await reader.readexactly(length))["message"]["id"])
        finally:
            writer.close()

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Wire(RoundRobin):
    """The way to the database, on which it is counted what the server sends: one chunk for a statement."""

    asked = 0

    async def _up(self, reader, writer, link):
        await super()._up(_Counted(self, reader), writer, link)


class _Counted:
    def __init__(self, wire, reader):
        self._wire, self._reader = wire, reader

    async def read(self, size):
        data = await self._reader.read(size)
        self._wire.asked += 1
        return data


@dataclass
class Idle:
    """What the replica says of itself, and what it asks of the database."""

    url: str
    admin_url: str
    replica: Replica
    wire: Wire

    async def metrics(self):
        return await asyncio.to_thread(Metrics.of, self.replica)

    async def until_asleep(self, count):
        async def look():
            once, again = await self.metrics(), await self.metrics()
            asleep = once.open_polls == again.open_polls == count and not again.looking
            return again if asleep else None

        return await races.until(look, patience_s=60, what=f"{count} workers asleep")

    async def woken(self):
        now = await self.metrics()
        return sum(now.woken(by) for by in ("commit", "notify", "tick", "alarm", "reconnect"))

    async def statements_per_s(self):
        """Between two signs of life of the replica, looked at from another database."""
        name = self.url.rpartition("/")[2].partition("?")[0]
        async with database.connected(self.admin_url) as connection:
            asked = []
            for _ in range(2):
                before = await connection.fetchval(SIGN, name)

                async def another(before=before):
                    return await connection.fetchval(SIGN, name) not in (None, before)

                await races.until(another, what="a sign of life")
                asked.append(self.wire.asked)
        return (asked[1] - asked[0]) / HEARTBEAT_S


@pytest.fixture
def idle(fresh_database, template):
    with (
        many_files(),
        Wire([database_socket(fresh_database)]) as wire,
        Replica(database_through(wire, fresh_database)) as replica,
    ):
        yield Idle(fresh_database, template.admin_url, replica, wire)


async def test_a_thousand_idle_workers_cost_little_and_one_message_wakes_few(idle, fresh_database):
    space = spaces.create(fresh_database)
    with space.client(idle.replica.url) as api:
        box = mailbox(api, scope(api))
        workers = Workers(idle.replica, space, box)
        try:
            await workers.start(WORKERS)
            await idle.until_asleep(WORKERS)
            assert await idle.statements_per_s() <= STATEMENTS_PER_S_MAX
            woken = await idle.woken()

            message = await asyncio.to_thread(sent, api, box)
            await idle.until_asleep(WORKERS - 1)
            assert workers.delivered == [message]
            assert await idle.woken() - woken <= 3  # the one, whom his leaving wakes, and one of a tick

            tasks = batch([box.task(str(i)) for i in range(50)])
            ok(await asyncio.to_thread(tasks.send, api))
            await idle.until_asleep(WORKERS - 51)
            assert len(set(workers.delivered)) == 51
            assert await idle.woken() - woken <= 120
        finally:
            await workers.stop()
