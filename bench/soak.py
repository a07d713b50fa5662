"""`make soak`: two minutes of open watches, idle workers and a trickle of events.

Two servers on a durable PostgreSQL of their own. First nobody calls: how many statements does an idle server
cost the database? Then 200 watches, 100 idle workers in long polls, 20 events a second: does the servers'
memory stay flat, how long does an event take to a watcher, does everybody see everything? Writes nothing."""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support import database
from tests.support.site import Site, leave_on_signals

WATCHES, WORKERS, EVENTS_PER_S, RUNS = 200, 100, 20, 20
IDLE_S = 20.0
STATEMENTS = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""
LONG_S = 60
FLAT = 1.1  # the last memory to the one after a quarter of the time


@dataclass
class Soak:
    """What is counted meanwhile."""

    site: Site
    runs: list[str] = field(default_factory=list)
    written: dict[str, float] = field(default_factory=dict)
    lags_s: list[float] = field(default_factory=list)
    seen: int = 0
    missed: int = 0
    answers: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    memory: list[list[int]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self, client: httpx.AsyncClient, cursor: str, run: str) -> None:
        """One watch of a run, that goes on from its cursor until the end."""
        mine: set[str] = set()
        while True:
            last = self.ended.is_set()
            query: dict[str, Any] = {"cursor": cursor, "types": "claim.acquired", "scopeId": run}
            query["waitSeconds"] = 0 if last else 8
            told = await self._asked(client.get, "/watch", params=query)
            now = time.monotonic()
            self.answers += 1
            for event in told["events"]:
                name = event["aggregate"]["id"]
                self.lags_s.append(now - self.written[name])
                mine.add(name)
            cursor = told["nextCursor"]
            if last and not told["events"]:
                break
        self.seen += len(mine)
        wanted = {name for name in self.written if name.startswith(run)}
        self.missed += len(wanted - mine)

    async def _asked(self, send: Any, path: str, **what: Any) -> Any:
        """The answer; a connection that was lost is made again, and counted."""
        while True:
            try:
                response: httpx.Response = (await send(path, **what)).raise_for_status()
            except httpx.TransportError as error:
                self.lost[type(error).__name__] += 1
                continue
            return response.json() if response.content else None

    async def work(self, client: httpx.AsyncClient, mailbox: str, run: str) -> None:
        """One idle worker."""
        asked = {"scopeId": run, "mailboxId": mailbox, "holder": "idle", "holderSession": "s"}
        while not self.ended.is_set():
            body = asked | {"leaseSeconds": 30, "waitMs": 5_000}
            await self._asked(client.post, "/tasks/admit", json=body)

    async def write(self, client: httpx.AsyncClient, seconds: float) -> None:
        """So many events a second, each the acquire of a fresh claim."""
        began = time.monotonic()
        for n in range(round(seconds * EVENTS_PER_S)):
            await asyncio.sleep(max(0.0, began + n / EVENTS_PER_S - time.monotonic()))
            run = self.runs[n % RUNS]
            name = f"{run}:{n}"
            self.written[name] = time.monotonic()
            body = {"scopeId": run, "key": name, "holder": "writer", "holderSession": "s"}
            await self._asked(client.post, "/claims", json=body, headers={"Idempotency-Key": name})
            if n % (5 * EVENTS_PER_S) == 0:
                self.memory.append([_resident_kb(replica.pid) for replica in self.site.replicas])


async def soak(site: Site, seconds: float) -> Soak:
    found = Soak(site)
    async with contextlib.AsyncExitStack() as exits:

        async def client() -> httpx.AsyncClient:
            """A pool of its own for everybody: one with hundreds of connections is slow at choosing."""
            limits = httpx.Limits(keepalive_expiry=3)
            return await exits.enter_async_context(
                site.space.async_client(site.url, limits=limits, verify=False)
            )

        first = await client()
        mailbox = (await first.put("/mailboxes/by-name/idle", json={})).json()["id"]
        for _ in range(RUNS):
            found.runs.append((await first.post("/scopes", json={})).json()["id"])
        cursor = (await first.get("/events", params={"types": "none.such"})).json()["nextCursor"]
        others = [
            asyncio.create_task(found.watch(await client(), cursor, found.runs[n % RUNS]))
            for n in range(WATCHES)
        ]
        others += [
            asyncio.create_task(found.work(await client(), mailbox, found.runs[0])) for _ in range(WORKERS)
        ]
        await found.write(first, seconds)
        found.ended.set()
        await asyncio.gather(*others)
    return found


def _resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def idle_statements(site: Site, seconds: float) -> float:
    """Transactions a second that one idle server makes."""
    time.sleep(2)
    before = int(database.fetchval(site.postgres.url, STATEMENTS))
    time.sleep(seconds)
    after = int(database.fetchval(site.postgres.url, STATEMENTS))
    return (after - before) / seconds / len(site.replicas)


def report(found: Soak, *, long: bool) -> int:
    lags = sorted(found.lags_s)
    pick = [lags[min(len(lags) - 1, len(lags) * p // 100)] * 1000 for p in (50, 99)]
    print(f"events written            {len(found.written)}")
    print(f"events seen by watches    {found.seen}, missed {found.missed}")
    print(f"answers to watches        {found.answers}")
    print(f"from write to watcher     p50 {pick[0]:.0f} ms, p99 {pick[1]:.0f} ms")
    print(f"connections lost          {dict(found.lost) or 0}")
    quarter, last = found.memory[len(found.memory) // 4], found.memory[-1]
    growth = max(b / a for a, b in zip(quarter, last, strict=True))
    shown = ", ".join(f"{kb / 1024:.0f} MB" for kb in last)
    print(f"memory of the servers     {shown}; {growth:.2f} of that after a quarter of the time")
    wrong = found.missed > 0 or (long and growth > FLAT)  # caches fill in the first minute
    if wrong:
        print("WRONG: something was missed, or memory grows")
    return int(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="length of the soak (default 120)")
    options = parser.parse_args()
    leave_on_signals()
    with Site(servers=2) as site:
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
        idle_s = min(IDLE_S, options.seconds)
        print(f"an idle server            {idle_statements(site, idle_s):.1f} statements/s")
        return report(asyncio.run(soak(site, options.seconds)), long=options.seconds >= LONG_S)


if __name__ == "__main__":
    sys.exit(main())
