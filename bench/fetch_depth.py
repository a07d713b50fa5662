"""`make bench-fetch`: how long a fetch takes, by what waits in the queue and stands in its way.

Calls the kernel's function as the server does, on one connection, so that network and Python do not hide what
the database does; commits are not forced to the disk. Prints medians, and each as a ratio to that with 1,000
waiting; the aim is 1.5. Writes nothing.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg

from runstate_server.kernel import install
from tests.support import database, spaces
from tests.support.backlog import Backlog

WARM_UP = 50
PAST = datetime(2001, 1, 1, tzinfo=UTC)
AIM = 1.5


@dataclass
class Queue:
    """One mailbox in one run of a fresh database, seen by one connection that keeps its plans."""

    url: str
    connection: asyncpg.Connection
    space_id: str
    schema: str = field(default_factory=lambda: install.schema_name(test_clock=True))

    async def make(self) -> None:
        self.mailbox = await self.made("mailbox_create", uuid.uuid4(), "bench", None, None, None, None)
        self.root = await self.made("scope_create", uuid.uuid4(), None, None, None, 100, 32)
        self.beside = await self.made("scope_create", uuid.uuid4(), None, self.root, None, 100, 32)
        self.backlog = Backlog(self.connection, self.schema, self.space_id, self.mailbox)
        await self.fetch_ms(5)  # plans are made while the tables are empty

    async def made(self, function: str, *args: Any) -> str:
        """Call a kernel function that makes something; returns its id."""
        places = ", ".join(f"${i + 2}" for i in range(len(args)))
        sql = f"SELECT facts FROM {self.schema}.{function}($1, {places}, NULL, NULL)"
        return str(json.loads(await self.connection.fetchval(sql, self.space_id, *args))["id"])

    async def fetch_ms(self, count: int, *, below: bool = True) -> float:
        """The median of so many fetches; what is delivered is completed outside the measurement."""
        take = await self.connection.prepare(
            f"SELECT status, facts FROM {self.schema}.message_take($1, $2::text::uuid, $3::text::uuid, $4,"
            " 'message', 'bench', 'bench', 3600, $5, '{}'::text[], 0, NULL, NULL)"
        )
        done = await self.connection.prepare(
            f"SELECT code FROM {self.schema}.message_complete($1, $2::text::uuid, $3, NULL,"
            " gen_random_uuid(), NULL, NULL, NULL, NULL, NULL)"
        )
        took = []
        for _ in range(count):
            token = uuid.uuid4().hex
            began = time.perf_counter()
            row = await take.fetchrow(self.space_id, self.mailbox, self.root, below, [token])
            took.append(time.perf_counter() - began)
            if row["status"] == 200:
                await done.fetchrow(self.space_id, row["facts"].split('"')[5], token)
        return statistics.median(took) * 1000


@contextlib.asynccontextmanager
async def queue(template: database.Template) -> AsyncIterator[Queue]:
    with template.clone() as url:
        space = spaces.create(url)
        async with database.connected(url) as connection:
            await connection.execute("SET synchronous_commit = off; SET statement_timeout = 0")
            found = Queue(url, connection, space.id)
            await found.make()
            yield found


class Report:
    def __init__(self, million: int, fetches: int) -> None:
        self.million = million
        self.fetches = fetches
        self._base = 0.0

    def line(self, what: str, ms: float, *, base: bool = False) -> None:
        if base:
            self._base = ms
        ratio = ms / self._base
        mark = "" if ratio <= AIM else "   over the aim"
        print(f"{what:<58}{ms:>9.3f} ms{ratio:>8.2f}{mark}", flush=True)


async def depths(template: database.Template, report: Report) -> None:
    fetches, million = report.fetches, report.million
    async with queue(template) as q:
        waiting = 0
        for count in (1_000, million // 10, million):
            await q.backlog.fill(q.root, count - waiting + (fetches + WARM_UP if waiting else 2 * fetches))
            waiting = count
            await q.fetch_ms(WARM_UP)
            report.line(f"{count:,} waiting", await q.fetch_ms(fetches), base=count == 1_000)
        await q.connection.execute("VACUUM ANALYZE runstate.queue_ready, runstate.messages")
        report.line(f"{million:,} waiting, analysed", await q.fetch_ms(fetches))
        await long_snapshot(q, report)


async def long_snapshot(q: Queue, report: Report) -> None:
    """A snapshot that stays open elsewhere keeps every row that is taken: fetches step over them."""
    async with database.connected(q.url) as other:
        await other.execute("SET idle_in_transaction_session_timeout = 0")
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM runstate.epoch")
        taken = 0
        for count in (3 * report.fetches, 10 * report.fetches, 30 * report.fetches):
            await q.fetch_ms(count - taken)
            took = await q.fetch_ms(report.fetches)
            report.line(f"{report.million:,} waiting, a snapshot open for {count:,} fetches", took)
            taken = count + report.fetches


async def finished(template: database.Template, report: Report) -> None:
    async with queue(template) as q:
        await q.backlog.fill(q.root, report.million, ended="ACKED")
        await q.backlog.fill(q.root, 1_000 + report.fetches)
        await q.fetch_ms(WARM_UP)
        report.line(f"1,000 waiting, {report.million:,} finished", await q.fetch_ms(report.fetches))


async def in_the_way(template: database.Template, report: Report) -> None:
    fetches, many = report.fetches, report.million // 10
    async with queue(template) as q:
        await q.backlog.fill(q.root, many, priority=100, delay_s=3600)
        await q.backlog.fill(q.root, 1_000 + fetches)
        await q.fetch_ms(WARM_UP)
        report.line(f"{many:,} delayed of higher priority before 1,000", await q.fetch_ms(fetches))
    async with queue(template) as q:
        await q.backlog.fill(q.beside, many, priority=100)
        await q.backlog.fill(q.root, 1_000 + fetches)
        await q.fetch_ms(WARM_UP, below=False)
        report.line(f"{many:,} of another scope before 1,000", await q.fetch_ms(fetches, below=False))
    async with queue(template) as q:
        await q.backlog.fill(q.root, many, priority=100, deadline=PAST)
        await q.backlog.fill(q.root, 1_000 + fetches)
        report.line(f"{many:,} expired before 1,000: the first fetch", await q.fetch_ms(1))
        report.line(f"{many:,} expired before 1,000: while they are settled", await q.fetch_ms(20))
        await q.connection.execute(
            f"DELETE FROM runstate.queue_ready WHERE deadline < {q.schema}.kernel_now()"
        )
        await q.connection.execute("VACUUM runstate.queue_ready")
        await q.fetch_ms(WARM_UP)
        report.line("1,000 waiting, once those are gone", await q.fetch_ms(fetches))


async def ranks(template: database.Template, report: Report) -> None:
    async with queue(template) as q:
        for priority in range(-100, 101):
            await q.backlog.fill(q.root, 1, priority=priority)
        await q.fetch_ms(201)
        await q.backlog.fill(q.root, 1_000 + report.fetches, priority=-100)
        report.line("1,000 waiting in the last of 201 priorities", await q.fetch_ms(report.fetches))


async def run(report: Report) -> None:
    with database.Cluster() as template:
        for part in (depths, finished, in_the_way, ranks):
            await part(template, report)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-fetch", description=__doc__)
    parser.add_argument("--million", type=int, default=1_000_000, help="what stands for it, 20,000 at least")
    parser.add_argument("--fetches", type=int, default=300, help="how many each median is of (default 300)")
    given = parser.parse_args()
    if given.million < 20_000:
        parser.error("--million must be 20,000 or more")
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"load average {load:.1f} on {cores} cores; medians of {given.fetches} fetches\n")
    asyncio.run(run(Report(given.million, given.fetches)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
