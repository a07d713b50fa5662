"""`python -m bench.ops_depth`: how long reports and lists take, by what a run and its space have behind them.

Calls the reports as the routes do, without HTTP. Prints medians, and each as a ratio to that of a run with
1,000 of a kind; the aim for what is finished or past is 1.5. What waits is counted one by one, up to 100,000,
and is shown for what it costs. Writes nothing.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from bench.fetch_depth import AIM, Queue
from runstate_server.foundation import db
from runstate_server.primitives.ops.reads import runs, summary, waits
from runstate_server.primitives.tasks import reads as tasks
from tests.support import database, spaces
from tests.support.clock import Clock

AIMED_AT = {"finished tasks", "events"}
EVENTS = """
INSERT INTO runstate.journal (space_id, num, day, type, created_at, aggregate_type, aggregate_id, payload)
SELECT $1, h.num + i, {schema}.journal_today(), 't',
       {schema}.kernel_now() - make_interval(secs => ($2 - i) * 0.01), 'task', 'x', '{{}}'
  FROM runstate.journal_heads h, generate_series(1, $2::int) i WHERE h.space_id = $1
"""
HEAD = "UPDATE runstate.journal_heads SET num = num + $2 WHERE space_id = $1"
NUMBER = "SELECT * FROM {schema}.journal_step(1000, 0)"


@dataclass
class Place:
    """A run with a child below it, in a fresh database."""

    queue: Queue
    engine: AsyncEngine

    @property
    def reports(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        q = self.queue
        where = (self.engine, q.schema, q.space_id)
        whole: dict[str, Any] = {"scope_id": None, "mailbox_id": None, "task_key": None, "state": None}
        return {
            "ops/runs": lambda: runs.run(*where, uuid.UUID(q.root)),
            "ops/runs of a child": lambda: runs.run(*where, uuid.UUID(q.beside)),
            "ops/waits": lambda: waits.waits(*where),
            "ops/summary": lambda: summary.summary(*where),
            "GET /tasks": lambda: tasks.page(*where, **whole, before=None, limit=100),
            "GET /tasks, running": lambda: tasks.page(
                *where, **whole | {"state": "RUNNING"}, before=None, limit=100
            ),
            "GET /tasks, queued": lambda: tasks.page(
                *where, **whole | {"state": "QUEUED"}, before=None, limit=100
            ),
        }

    async def took_ms(self, looks: int) -> dict[str, float]:
        """The median of each, looked at by turns, and how long the very first look at the run took."""
        took: dict[str, list[float]] = {name: [] for name in self.reports}
        began = time.perf_counter()
        await self.reports["ops/runs"]()
        first = time.perf_counter() - began
        for _ in range(looks):
            for name, look in self.reports.items():
                began = time.perf_counter()
                await look()
                took[name].append(time.perf_counter() - began)
        return {name: statistics.median(each) * 1000 for name, each in took.items()} | {
            "ops/runs, first look": first * 1000
        }

    async def past_events(self, count: int) -> None:
        schema = self.queue.schema
        await self.queue.connection.fetch(NUMBER.format(schema=schema))
        await self.queue.connection.execute(EVENTS.format(schema=schema), self.queue.space_id, count)
        await self.queue.connection.execute(HEAD, self.queue.space_id, count)


@contextlib.asynccontextmanager
async def place(template: database.Template) -> AsyncIterator[Place]:
    with template.clone() as url:
        space = spaces.create(url)
        engine = db.open_engine(url, named_statements=True)
        try:
            async with database.connected(url) as connection:
                await connection.execute("SET synchronous_commit = off; SET statement_timeout = 0")
                queue = Queue(url, connection, space.id)
                await queue.make()
                yield Place(queue, engine)
        finally:
            await engine.dispose()


Fill = Callable[[Place, int], Awaitable[None]]


async def finished_now(p: Place, count: int) -> None:
    await p.queue.backlog.fill(p.queue.root, count, tasks=True, ended="ACKED")


async def finished(p: Place, count: int) -> None:
    await finished_now(p, count)
    await asyncio.to_thread(Clock(p.queue.url).shift, 60)


async def dead(p: Place, count: int) -> None:
    await p.queue.backlog.fill(p.queue.root, count, tasks=True, ended="DEAD")
    await p.queue.connection.execute("VACUUM ANALYZE runstate.messages")


async def events(p: Place, count: int) -> None:
    await p.past_events(count)


async def waiting(p: Place, count: int) -> None:
    await p.queue.backlog.fill(p.queue.root, count, tasks=True)


async def run(many: int, looks: int) -> None:
    kinds: dict[str, Fill] = {
        "finished tasks": finished,
        "tasks finished at once": finished_now,
        "failed tasks": dead,
        "events": events,
        "waiting tasks": waiting,
    }
    with database.Cluster() as template:
        for what, fill in kinds.items():
            base: dict[str, float] = {}
            for count in (1_000, many):
                async with place(template) as p:
                    await fill(p, count)
                    found = await p.took_ms(looks)
                base = base or found
                for name, ms in found.items():
                    ratio = ms / base[name]
                    mark = (
                        "   over the aim" if what in AIMED_AT and ratio > AIM and "first" not in name else ""
                    )
                    print(f"{count:>9,} {what:<26}{name:<22}{ms:>8.1f} ms{ratio:>7.2f}{mark}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--looks", type=int, default=30, help="for each median")
    given = parser.parse_args()
    print(
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; medians of {given.looks} looks\n"
    )
    asyncio.run(run(given.many, given.looks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
