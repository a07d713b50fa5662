"""`make bench`: calls over HTTP beside pgbench calling the same kernel functions, in the same run.

One server process on a durable PostgreSQL of its own, fresh keys, an Idempotency-Key on every call. Prints a
table and writes nothing. Rounds alternate, and the median round is shown, since machines are seldom quiet.
What is called is in workloads.py.
"""

import argparse
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench.connections import Order, Request
from bench.processors import Usage
from bench.workloads import MAKERS, NOTHING, Workload
from tests.support import sources
from tests.support.processes import environment
from tests.support.site import Site, leave_on_signals

CONNECTIONS = (1, 32)
CLIENTS_MAX = 2  # client processes
# The server repeats a call that has waited too long for a hot row; pgbench would give up.
PATIENT = os.environ | {"PGOPTIONS": "-c lock_timeout=10s"}
SETTLE_S = 0.1  # until the backends that have ended are counted with their postmaster
WARM_UP_S = 1
IDLE = "GET /healthz"


@dataclass(frozen=True)
class Round:
    """One measurement: latencies in µs, seconds, and the cores that were busy with it."""

    took_us: list[int]
    seconds: int
    cores: Usage

    @property
    def rate(self) -> float:
        return len(self.took_us) / self.seconds

    def percentile_ms(self, percent: int) -> float:
        ordered = sorted(self.took_us)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1000


class Load:
    """Measures on one site, which has one server, and counts what each workload must have made."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self.made: dict[str, int] = {}

    def over_http(self, workload: Workload, connections: int, seconds: int) -> Round:
        """The workload's requests."""
        workload.prepare(seconds)
        done = self._http(workload.requests, connections, seconds)
        self._count(workload, done)
        return done

    def nothing(self, connections: int, seconds: int) -> Round:
        """What a request costs that does nothing."""
        return self._http([NOTHING], connections, seconds)

    def by_pgbench(self, workload: Workload, connections: int, seconds: int) -> Round:
        """The same kernel functions by prepared statements from pgbench."""
        workload.prepare(seconds)
        script = self._folder / f"{workload.name}.sql"
        script.write_text(workload.script)
        url = urlsplit(self._site.postgres.url)
        with tempfile.TemporaryDirectory(dir=self._folder) as logs:
            command = [self._site.postgres.bin_dir / "pgbench", "--no-vacuum", "--protocol=prepared", "--log"]
            command += [f"--log-prefix={logs}/took", f"--file={script}", f"--time={seconds}"]
            command += [f"--client={connections}", f"--jobs={min(connections, CLIENTS_MAX)}", "--define=n=0"]
            command += [f"--define=run={secrets.randbits(40)}", f"--host={parse_qs(url.query)['host'][0]}"]
            command += [f"--username={url.username}", url.path[1:]]
            with self._measured(seconds) as measure:
                ended = subprocess.run(command, check=False, capture_output=True, text=True, env=PATIENT)
            if ended.returncode:
                raise SystemExit(f"pgbench failed:\n{ended.stderr}")
            took = [int(line.split()[2]) for log in Path(logs).iterdir() for line in log.open()]
        done = measure(took)
        self._count(workload, done)
        return done

    def _count(self, workload: Workload, done: Round) -> None:
        made = len(done.took_us) * workload.made_by_a_unit
        self.made[workload.name] = self.made.get(workload.name, 0) + made

    def _http(self, requests: list[Request], connections: int, seconds: int) -> Round:
        count = min(connections, CLIENTS_MAX)
        port = self._site.replicas[0].port
        orders = [
            Order(port, connections // count, seconds, requests, f"h{secrets.token_hex(4)}")
            for _ in range(count)
        ]
        with self._measured(seconds) as measure:
            answers = [json.loads(answer) for answer in _answers(orders)]
        for answer in answers:
            if answer["wrong"]:
                raise SystemExit(f"{answer['wrong']} wrong answers, the last one:\n{answer['sample']}")
        return measure([us for answer in answers for us in answer["took_us"]])

    def _usage(self) -> Usage:
        return Usage.now(server=self._site.replicas[0].pid, postgres=self._site.postgres.pid)

    @contextlib.contextmanager
    def _measured(self, seconds: int) -> Iterator["_Measure"]:
        """Everything is numbered before and after, so that no round pays for the one before."""
        self._site.until_numbered()
        before, began_at = self._usage(), time.monotonic()
        measure = _Measure(seconds)
        yield measure
        took_s = time.monotonic() - began_at
        time.sleep(SETTLE_S)
        measure.cores = self._usage().since(before, took_s)
        self._site.until_numbered()


class _Measure:
    """Becomes a Round once its latencies are known."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self.cores = Usage(0, 0, 0)

    def __call__(self, took_us: list[int]) -> Round:
        return Round(took_us, self._seconds, self.cores)


def _answers(orders: list[Order]) -> list[str]:
    """Start a client process for each order, and let them begin together."""
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.connections"],
            cwd=sources.ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in orders
    ]
    try:
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()
        for client, order in zip(clients, orders, strict=True):
            assert client.stdin is not None
            client.stdin.write(order.line())
            client.stdin.flush()
        return [client.communicate()[0] for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()


def main() -> int:
    options = _parser().parse_args()
    chosen = [name for name in MAKERS if name in (options.only or MAKERS)]
    leave_on_signals()
    try:
        with Site(servers=1, LOG_LEVEL="info") as site, tempfile.TemporaryDirectory() as folder:
            load = Load(site, Path(folder))
            workloads = [MAKERS[name](site) for name in chosen]
            print(f"{os.cpu_count()} cores, load average {_load_average()} before; ", end="", flush=True)
            rounds = _rounds(load, workloads, options.rounds, options.seconds)
            print(f"{_load_average()} after. Each of {options.rounds} rounds: {options.seconds} s.\n")
            missing = [line for workload in workloads for line in lost(workload, load.made[workload.name])]
    except KeyboardInterrupt:
        print("\ninterrupted; everything it had started is gone", file=sys.stderr)
        return 130
    print("\n".join([*_table(rounds), "", *_ratios(rounds, workloads)]))
    if missing:
        print("\n" + "\n".join(missing))
    return 1 if missing else 0


Rounds = dict[tuple[int, str], list[Round]]


def _rounds(load: Load, workloads: list[Workload], count: int, seconds: int) -> Rounds:
    """What is compared stands side by side in time."""
    found: Rounds = {}
    for workload in workloads:
        load.over_http(workload, CONNECTIONS[-1], WARM_UP_S)  # fills caches and pools; not shown
    for _ in range(count):
        for connections in CONNECTIONS:
            for each in workloads:
                one = load.over_http(each, connections, seconds)
                found.setdefault((connections, each.over_http), []).append(one)
                one = load.by_pgbench(each, connections, seconds)
                found.setdefault((connections, each.by_pgbench), []).append(one)
            found.setdefault((connections, IDLE), []).append(load.nothing(connections, seconds))
    return found


def lost(workload: Workload, made: int) -> Iterator[str]:
    for where, recorded in workload.recorded().items():
        if recorded != made:
            yield f"WRONG: {workload.name} made {made}, the {where} has {recorded}"


def _middle(taken: list[Round]) -> Round:
    return sorted(taken, key=lambda each: each.rate)[len(taken) // 2]


def _table(rounds: Rounds) -> Iterator[str]:
    names = f"{'':<34}{'each s':>8}{'p50 ms':>9}{'p99 ms':>9}"
    yield f"{'':<{len(names)}}   µs of CPU for each one, by       cores of"
    yield f"{names}   clients  server  PostgreSQL   clients  rounds, each s"
    for (connections, name), taken in rounds.items():
        middle = _middle(taken)
        times = f"{middle.percentile_ms(50):>9.2f}{middle.percentile_ms(99):>9.2f}"
        each = [used / middle.rate * 1e6 for used in middle.cores]
        used = f"{each[0]:>10.0f}{each[1]:>8.0f}{each[2]:>12.0f}{middle.cores.clients:>10.2f}"
        spread = f"{min(r.rate for r in taken):,.0f} to {max(r.rate for r in taken):,.0f}"
        yield f"{connections:>2} x {name:<29}{middle.rate:>8,.0f}{times}{used}  {spread}"


def _ratios(rounds: Rounds, workloads: list[Workload]) -> Iterator[str]:
    rate = {what: _middle(taken).rate for what, taken in rounds.items()}
    for connections in CONNECTIONS:
        for each in workloads:
            http = rate[connections, each.over_http]
            beside = http / rate[connections, each.by_pgbench]
            idle = http * len(each.requests) / rate[connections, IDLE]
            many = f"; {http * each.made_by_a_unit:,.0f} tasks/s" if each.made_by_a_unit > 1 else ""
            yield (
                f"{each.name:<7}at {connections:>2}: HTTP does {beside:.2f} of pgbench, its requests are "
                f"{idle:.2f} of those that do nothing{many}"
            )


def _load_average() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=MAKERS, help="this workload; may be repeated")
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is repeated (default 3)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
