"""`make bench-sequencer`: once_acquire by pgbench while its events are numbered, and while they are not.

One server on a durable database; it is stopped (SIGSTOP) during measurements, and a process of this script's
own takes the sequencer's steps in its place, as often as a busy server does, or takes none. Rounds alternate;
the medians and their ratio are printed. Writes nothing."""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import workloads
from bench.load import Load, Round
from runstate_server.foundation import bounds, db
from runstate_server.kernel import install
from tests.support import sources
from tests.support.processes import environment
from tests.support.site import Site, leave_on_signals

CONNECTIONS = 32


class Unnumbered(Load):
    """While it measures nobody numbers events."""

    @contextlib.contextmanager
    def _measured(self, seconds: int) -> Iterator[Any]:
        with super()._measured(seconds) as measure:
            self._site.replicas[0].pause()
            try:
                yield measure
            finally:
                self._site.replicas[0].resume()


class Numbered(Unnumbered):
    """While it measures a process of its own takes the sequencer's steps."""

    @contextlib.contextmanager
    def _measured(self, seconds: int) -> Iterator[Any]:
        with super()._measured(seconds) as measure:
            stepping = subprocess.Popen(
                [sys.executable, "-m", "bench.sequencer", "--step", self._site.postgres.url],
                cwd=sources.ROOT,
                env=environment(),
            )
            try:
                yield measure
            finally:
                stepping.kill()
                stepping.wait()


async def step(url: str) -> None:
    """The sequencer's loop: batch after batch, a pause when one was not full."""
    connection = await db.connect(url)
    while True:
        row = await connection.fetchrow(
            f"SELECT moved FROM {install.schema_name()}.journal_step($1, 0)", bounds.sequencer_batch
        )
        if row["moved"] < bounds.sequencer_batch:
            await asyncio.sleep(bounds.sequencer_pause_s)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-sequencer", description=__doc__)
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is repeated (default 3)")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        asyncio.run(step(options.step))
    leave_on_signals()
    taken: dict[str, list[Round]] = {"numbered": [], "not numbered": []}
    with Site(servers=1) as site, tempfile.TemporaryDirectory() as folder:
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {CONNECTIONS} connections")
        once = workloads.once(site)
        loads = {"numbered": Numbered(site, Path(folder)), "not numbered": Unnumbered(site, Path(folder))}
        for _ in range(options.rounds):
            for name, load in loads.items():
                taken[name].append(load.by_pgbench(once, CONNECTIONS, options.seconds))
        made = sum(load.made["once"] for load in loads.values())
        recorded = once.recorded()
    rates = {name: sorted(r.rate for r in rounds)[len(rounds) // 2] for name, rounds in taken.items()}
    for name, rate in rates.items():
        print(f"once_acquire, {name:<14}{rate:>8,.0f}/s")
    print(f"ratio                       {rates['numbered'] / rates['not numbered']:>8.2f}")
    if set(recorded.values()) != {made}:
        print(f"WRONG: {made} were acquired, {recorded} are recorded")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
