"""`make bench-admit`: how long it takes to admit a task with its needs, by how many blocked ones stand before
it.

As bench.fetch_depth: the kernel's function on one connection, medians, each as a ratio to that of a queue
with nothing before it. The blocked ones need a pool that is lent out, the others an allowance. Writes
nothing.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
import uuid

from bench.fetch_depth import Queue, Report, queue
from tests.support import database
from tests.support.needs import needs

ADMITS = 200
FREE = needs(quotas={"searches": 1})
BLOCKED = needs({"browsers": 1})


class Admissions:
    """A queue with a pool of one unit that is lent out, and an allowance that lasts."""

    def __init__(self, q: Queue) -> None:
        self.q = q

    async def make(self) -> None:
        pool = await self.q.made("pool_create", uuid.uuid4(), "browsers", 1)
        await self.q.made("allowance_create", uuid.uuid4(), "searches", 1_000_000_000, 86_400)
        lend = (
            f"SELECT code FROM {self.q.schema}.permit_acquire($1, $2::text::uuid, $3::text::uuid,"
            " gen_random_uuid(), 1, 'bench', 'bench', 3600, NULL, 'token', NULL, NULL)"
        )
        await self.q.connection.fetchrow(lend, self.q.space_id, pool, self.q.root)
        await self.admit_ms(5)

    async def admit_ms(self, count: int) -> float:
        """The median of so many admissions; completions stand outside the measurement."""
        take = await self.q.connection.prepare(
            f"SELECT status, facts FROM {self.q.schema}.message_take($1, $2::text::uuid, $3::text::uuid,"
            " true, 'task', 'bench', 'bench', 3600, $4, $5, 0, NULL, NULL)"
        )
        done = await self.q.connection.prepare(
            f"SELECT code FROM {self.q.schema}.message_complete($1, $2::text::uuid, $3, NULL,"
            " gen_random_uuid(), NULL, NULL, NULL, NULL, NULL)"
        )
        took = []
        for _ in range(count):
            token = uuid.uuid4().hex
            grants = [uuid.uuid4().hex] * 4
            began = time.perf_counter()
            row = await take.fetchrow(self.q.space_id, self.q.mailbox, self.q.root, [token], grants)
            took.append(time.perf_counter() - began)
            if row["status"] == 200:
                await done.fetchrow(self.q.space_id, json.loads(row["facts"])["messageId"], token)
        return statistics.median(took) * 1000


async def depths(template: database.Template, report: Report, many: int) -> None:
    for count in (0, 1_000, many):
        async with queue(template) as q:
            admissions = Admissions(q)
            await admissions.make()
            if count:
                await q.backlog.fill(q.root, count, needs=BLOCKED)
            await q.backlog.fill(q.root, 2 * ADMITS, needs=FREE)
            await admissions.admit_ms(ADMITS // 2)
            report.line(f"{count:,} blocked before it", await admissions.admit_ms(ADMITS), base=count == 0)


async def lanes(template: database.Template, report: Report, kinds: int) -> None:
    async with queue(template) as q:
        admissions = Admissions(q)
        await admissions.make()
        for i in range(kinds):
            await q.made("pool_create", uuid.uuid4(), f"pool-{i}", 1)
            await q.backlog.fill(q.root, 10, needs=needs({"browsers": 1, f"pool-{i}": 1}))
        await q.backlog.fill(q.root, 2 * ADMITS, needs=FREE)
        await admissions.admit_ms(ADMITS // 2)
        report.line(f"{kinds} kinds of blocked ones before it", await admissions.admit_ms(ADMITS))


def main() -> None:
    parser = argparse.ArgumentParser(description="Admission before and behind blocked tasks.")
    parser.add_argument(
        "--many", type=int, default=100_000, help="the most that are blocked (default 100000)"
    )
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    report = Report(arguments.many, ADMITS)
    print(f"load {os.getloadavg()[0]:.1f}; medians of {ADMITS}")
    with database.Cluster() as template:
        asyncio.run(depths(template, report, arguments.many))
        asyncio.run(lanes(template, report, 20))


if __name__ == "__main__":
    main()
