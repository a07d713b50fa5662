"""`make bench`: once/acquire over HTTP beside pgbench calling the same kernel function, in the same run.

One server process on a durable PostgreSQL of its own, fresh keys, an Idempotency-Key on every call. Prints a
table and writes nothing. Rounds alternate, and the median round is shown, since machines are seldom quiet.
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

from bench.connections import KEY_NUMBER_DIGITS, Order
from bench.processors import Usage
from runstate_server.kernel import install
from tests.support import sources
from tests.support.processes import environment
from tests.support.site import Site, leave_on_signals

HTTP, PGBENCH, NOTHING = "once/acquire over HTTP", "once_acquire by pgbench", "GET /healthz"
CONNECTIONS = (1, 32)
CLIENTS_MAX = 2  # client processes
SETTLE_S = 0.1  # until the backends that have ended are counted with their postmaster
LEASE_S = 3600  # nothing lapses while we measure
SCRIPT = """\\set n :n + 1
SELECT * FROM {schema}.once_acquire('{space}', '{scope}'::uuid, 'p' || :run || '-' || :client_id || '-' || :n,
  'bench', 'bench', {lease_s}, '0123456789abcdef0123456789abcdef',
  'p' || :run || '-' || :client_id || '-' || :n, '\\x00112233445566778899aabbccddeeff'::bytea);
"""


@dataclass(frozen=True)
class Round:
    """One measurement: latencies in µs, seconds, and the cores that were busy with it."""

    took_us: list[int]
    seconds: float
    cores: Usage

    @property
    def rate(self) -> float:
        return len(self.took_us) / self.seconds

    def percentile_ms(self, percent: int) -> float:
        ordered = sorted(self.took_us)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1000


class Load:
    """Measures on one site, whose one server has run `name`'s scope to put keys in."""

    def __init__(self, site: Site, seconds: float, folder: Path) -> None:
        self._site = site
        self._seconds = seconds
        self._folder = folder
        self._scope = site.run_id("bench")
        self.acquired = 0

    def acquire(self, connections: int) -> Round:
        """POST once/acquire."""
        place = f'"scopeId":"{self._scope}","key":"%s","holder":"bench","holderSession":"bench"'
        body = f'{{{place},"leaseSeconds":{LEASE_S}}}'  # compact, as the SDK writes it
        done = self._http(connections, self._post("/once/acquire", body), '"ACQUIRED"')
        self.acquired += len(done.took_us)
        return done

    def nothing(self, connections: int) -> Round:
        """GET /healthz: what a request costs that does nothing."""
        return self._http(connections, "GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n", '"ok"')

    def pgbench(self, connections: int) -> Round:
        """The same kernel function by prepared statements from pgbench."""
        script = self._folder / "acquire.sql"
        script.write_text(
            SCRIPT.format(
                schema=install.schema_name(),
                space=self._site.space.id,
                scope=self._scope,
                lease_s=LEASE_S,
            )
        )
        url = urlsplit(self._site.postgres.url)
        with tempfile.TemporaryDirectory(dir=self._folder) as logs:
            command = [self._site.postgres.bin_dir / "pgbench", "--no-vacuum", "--protocol=prepared", "--log"]
            command += [
                f"--log-prefix={logs}/took",
                f"--file={script}",
                f"--time={max(1, round(self._seconds))}",
            ]
            command += [f"--client={connections}", f"--jobs={min(connections, CLIENTS_MAX)}", "--define=n=0"]
            command += [f"--define=run={secrets.randbits(40)}", f"--host={parse_qs(url.query)['host'][0]}"]
            with self._measured() as measure:
                subprocess.run(
                    [*command, f"--username={url.username}", url.path[1:]], check=True, capture_output=True
                )
            took = [int(line.split()[2]) for log in Path(logs).iterdir() for line in log.open()]
        self.acquired += len(took)
        return measure(took)

    def _post(self, path: str, body: str) -> str:
        size = len(body) - 2 + _key_chars()
        space = self._site.space
        return (
            f"POST /v1/spaces/{space.id}{path} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {space.key}\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: %s\r\nContent-Length: {size}\r\n\r\n{body}"
        )

    def _http(self, connections: int, request: str, wanted: str) -> Round:
        count = min(connections, CLIENTS_MAX)
        orders = [
            Order(
                self._site.replicas[0].port,
                connections // count,
                self._seconds,
                request,
                f"h{secrets.token_hex(4)}",
                wanted,
            )
            for _ in range(count)
        ]
        with self._measured() as measure:
            answers = [json.loads(answer) for answer in _answers(orders)]
        for answer in answers:
            if answer["wrong"]:
                raise SystemExit(f"{answer['wrong']} wrong answers, the last one:\n{answer['sample']}")
        return measure([us for answer in answers for us in answer["took_us"]])

    def _usage(self) -> Usage:
        return Usage.now(server=self._site.replicas[0].pid, postgres=self._site.postgres.pid)

    @contextlib.contextmanager
    def _measured(self) -> Iterator["_Measure"]:
        """Everything is numbered before and after, so that no round pays for the one before."""
        self._site.until_numbered()
        before, began_at = self._usage(), time.monotonic()
        measure = _Measure(self._seconds)
        yield measure
        took_s = time.monotonic() - began_at
        time.sleep(SETTLE_S)
        measure.cores = self._usage().since(before, took_s)
        self._site.until_numbered()


class _Measure:
    """Becomes a Round once its latencies are known."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.cores = Usage(0, 0, 0)

    def __call__(self, took_us: list[int]) -> Round:
        return Round(took_us, self._seconds, self.cores)


def _key_chars() -> int:
    return len("h") + 8 + len("-") + KEY_NUMBER_DIGITS


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
    leave_on_signals()
    try:
        with Site(servers=1, LOG_LEVEL="info") as site, tempfile.TemporaryDirectory() as folder:
            load = Load(site, options.seconds, Path(folder))
            print(f"{os.cpu_count()} cores, load average {_load_average()} before; ", end="", flush=True)
            rounds = _rounds(load, options.rounds)
            print(f"{_load_average()} after. Each of {options.rounds} rounds: {options.seconds:g} s.\n")
            recorded = sum(event.type == "once.acquired" for event in site.once_events())
    except KeyboardInterrupt:
        print("\ninterrupted; everything it had started is gone", file=sys.stderr)
        return 130
    print(_table(rounds))
    if recorded != load.acquired:
        print(f"\nWRONG: {load.acquired} keys were acquired, the journal has {recorded}")
        return 1
    return 0


def _rounds(load: Load, count: int) -> dict[tuple[int, str], list[Round]]:
    """What is compared stands side by side in time."""
    measures = {HTTP: load.acquire, PGBENCH: load.pgbench, NOTHING: load.nothing}
    found: dict[tuple[int, str], list[Round]] = {}
    load.acquire(CONNECTIONS[-1])  # fills caches and pools; not shown
    for _ in range(count):
        for connections in CONNECTIONS:
            for name, measure in measures.items():
                found.setdefault((connections, name), []).append(measure(connections))
    return found


def _table(rounds: dict[tuple[int, str], list[Round]]) -> str:
    names = f"{'':<32}{'requests/s':>10}{'p50 ms':>9}{'p99 ms':>9}"
    lines = [
        f"{'':<{len(names)}}   µs of CPU for each request, by   cores of",
        f"{names}   clients  server  PostgreSQL   clients  rounds, requests/s",
    ]
    rate: dict[tuple[int, str], float] = {}
    for (connections, name), taken in rounds.items():
        middle = sorted(taken, key=lambda each: each.rate)[len(taken) // 2]
        rate[connections, name] = middle.rate
        times = f"{middle.percentile_ms(50):>9.2f}{middle.percentile_ms(99):>9.2f}"
        each = [used / middle.rate * 1e6 for used in middle.cores]
        used = f"{each[0]:>10.0f}{each[1]:>8.0f}{each[2]:>12.0f}{middle.cores.clients:>10.2f}"
        spread = f"{min(r.rate for r in taken):,.0f} to {max(r.rate for r in taken):,.0f}"
        lines.append(f"{connections:>2} x {name:<27}{middle.rate:>10,.0f}{times}{used}  {spread}")
    lines.append("")
    for connections in CONNECTIONS:
        http = rate[connections, HTTP]
        lines.append(
            f"at {connections:>2}: HTTP does {http / rate[connections, PGBENCH]:.2f} of pgbench "
            f"and {http / rate[connections, NOTHING]:.2f} of a request that does nothing"
        )
    return "\n".join(lines)


def _load_average() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is repeated (default 3)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
