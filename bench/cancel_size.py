"""`make bench-cancel`: what one cancel of a run costs, by how many scopes it has, with work in every one.

The kernel's function on one connection. In each scope a lease of once, a claim, a message, a task (every
other one in a worker's hands), a timer and a barrier. Prints how long the cancel takes until it is answered,
what it holds and writes by then, and how long what is left takes to be written off, in steps that wait for
nobody. The same of a branch, whose things are found scope by scope. Ratios are to the smallest run. Writes
nothing.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any

from tests.support import database, spaces, tree

STEP = 500
LOCKS = "SELECT locktype, count(*) AS many FROM pg_locks WHERE pid = pg_backend_pid() GROUP BY locktype"
WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"


@dataclass(frozen=True)
class Cancel:
    """One cancel: milliseconds until its answer and of each step after it, locks by kind, bytes of WAL."""

    ms: float
    steps: list[float]
    locks: dict[str, int]
    wal: int


async def timed(connection: Any, sql: str, *args: Any) -> tuple[Any, float]:
    """The first value, and how long it took in milliseconds."""
    began = time.perf_counter()
    value = await connection.fetchval(sql, *args)
    return value, (time.perf_counter() - began) * 1000


async def cancelled(connection: Any, schema: str, space_id: str, scopes: int, *, branch: bool) -> Cancel:
    """Plant a run of so many scopes, or a branch of them in a run, and cancel it."""
    below = uuid.uuid4() if branch else None
    if branch:
        root = f"SELECT code FROM {schema}.scope_create($1, $2, NULL, NULL, NULL, 1000, 32, NULL, NULL)"
        await connection.fetchval(root, space_id, below)
    run = await tree.plant(connection, schema, space_id, scopes, below=below)
    await connection.execute("VACUUM ANALYZE")
    before = await connection.fetchval(WAL)
    transaction = connection.transaction()
    await transaction.start()
    end = f"SELECT code FROM {schema}.scope_end($1, $2::text::uuid, 'CANCELLED', NULL, NULL)"
    code, call_ms = await timed(connection, end, space_id, run.root)
    assert code is None, code
    locks = {row["locktype"]: row["many"] for row in await connection.fetch(LOCKS)}
    _, commit_ms = await timed_commit(transaction)
    wal = await connection.fetchval(WAL) - before
    steps = []
    while True:
        count, took = await timed(connection, f"SELECT {schema}.scope_tidy_sweep($1)", STEP)
        steps.append(took)
        if count < STEP:
            return Cancel(call_ms + commit_ms, steps, locks, int(wal))


async def timed_commit(transaction: Any) -> tuple[None, float]:
    """Commit, and how long it took in milliseconds."""
    began = time.perf_counter()
    await transaction.commit()
    return None, (time.perf_counter() - began) * 1000


async def measure(template: database.Template, sizes: list[int], turns: int) -> None:
    base: float | None = None
    for scopes, branch in [(size, False) for size in sizes] + [(size, True) for size in sizes[1:]]:
        found = []
        for _ in range(turns):
            with template.clone() as url:
                space = spaces.create(url)
                async with database.connected(url) as connection:
                    await connection.execute("SET statement_timeout = 0")
                    schema = database.kernel_schema()
                    found.append(await cancelled(connection, schema, space.id, scopes, branch=branch))
        ms = statistics.median(one.ms for one in found)
        base = base or ms
        one = found[-1]
        held = ", ".join(f"{many} {kind}" for kind, many in sorted(one.locks.items()))
        what = f"{scopes:,} scopes of a branch" if branch else f"{scopes:,} scopes"
        print(
            f"{what:<26}{ms:>10.1f} ms{ms / base:>8.1f}   {one.wal / 2**20:>6.1f} MB of WAL   "
            f"then {len(one.steps)} steps, {sum(one.steps):>8.0f} ms, the longest {max(one.steps):.0f} ms\n"
            f"{'':>15}locks held: {held}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="One cancel of small and of large runs.")
    parser.add_argument("--sizes", default="10,1000,10000", help="scopes of the runs (default 10,1000,10000)")
    parser.add_argument("--turns", type=int, default=3, help="runs of each size, for the median (default 3)")
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; medians of {given.turns}\n")
    with database.Cluster() as template:
        asyncio.run(measure(template, [int(size) for size in given.sizes.split(",")], given.turns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
