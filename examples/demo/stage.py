"""What the demo plays on: a PostgreSQL of its own, two servers behind one address, and the callers."""

import contextlib
import json
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx

from examples.demo.account import Event, Telling
from runstate_server import migrator
from runstate_server.embedded import EmbeddedPostgres
from tests.support import database, machine
from tests.support.processes import Replica, environment
from tests.support.proxy import RoundRobin

SPACE = "demo"
JOURNAL = """
SELECT j.created_at, j.type, j.payload::json ->> 'holder' AS holder FROM runstate.journal j
 WHERE j.space_id = $1 AND j.aggregate_type = 'once' AND j.aggregate_id = $2 ORDER BY j.num
"""
UNNUMBERED = "SELECT count(*) FROM runstate.outbox"
LOOK_S = 0.05


class GaveUp(Exception):  # noqa: N818  not a false claim: the account could not be finished
    """A process ended that should not have, or the demo took too long."""


class Caller:
    """One caller process; what it tells goes into the stage's ear."""

    def __init__(self, name: str, variables: dict[str, str], ear: "queue.SimpleQueue[Telling]") -> None:
        self.name = name
        self._ear = ear
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("caller.py")), name],
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo, which then ends its callers
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            told = json.loads(line)
            self._ear.put(Telling(told.pop("at"), told.pop("who"), told.pop("what"), told))
        self._ear.put(Telling(time.time(), self.name, "ended"))

    def ask(self, company: str, work_s: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([company, work_s]) + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> float:
        """Send the signal. Returns: when."""
        self.process.send_signal(number)
        return time.time()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Stage:
    """A context manager: everything it started is gone when it is left."""

    def __init__(self, callers: int) -> None:
        self._count = callers
        self._exits = contextlib.ExitStack()
        self._ear: queue.SimpleQueue[Telling] = queue.SimpleQueue()
        self._key = "rs_demo_" + secrets.token_hex(16)
        self.callers: dict[str, Caller] = {}
        self.gone: set[str] = set()  # killed by the demo, so their end is no surprise
        self.told: list[Telling] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            folder = exits.enter_context(machine.reachable_folder())
            self.postgres = exits.enter_context(EmbeddedPostgres(folder))
            migrator.migrate(self.postgres.url)
            self.replicas = [self._replica(exits) for _ in range(2)]
            front = exits.enter_context(RoundRobin([replica.port for replica in self.replicas]))
            self.url = front.url
            for replica in self.replicas:
                replica.wait_ready()
            self.space = exits.enter_context(self._client(f"{self.url}/v1/spaces/{SPACE}"))
            for number in range(1, self._count + 1):
                self._start_caller(f"caller-{number}", exits)
            for name in self.callers:
                self.until(name, "ready")
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _replica(self, exits: contextlib.ExitStack) -> Replica:
        replica = Replica(
            self.postgres.url,
            TEST_CLOCK="0",
            LOG_LEVEL="warning",
            BOOTSTRAP_SPACE_ID=SPACE,
            BOOTSTRAP_API_KEY=self._key,
        )
        exits.callback(_end, replica)  # before the start: an interrupt may come between the two
        return replica.start(wait=False)

    def _start_caller(self, name: str, exits: contextlib.ExitStack) -> None:
        variables = {
            "RUNSTATE_BASE_URL": self.url,
            "RUNSTATE_SPACE_ID": SPACE,
            "RUNSTATE_API_KEY": self._key,
        }
        self.callers[name] = Caller(name, variables, self._ear)
        exits.callback(self.callers[name].end)

    def _client(self, base_url: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._key}"}
        return httpx.Client(base_url=base_url, headers=headers, timeout=30, trust_env=False)

    # -- callers -----------------------------------------------------------------------------------------

    def ask(self, names: Sequence[str], company: str, *, work_s: float) -> None:
        """A new scene: what was told before is forgotten."""
        self.told.clear()
        for name in names:
            self.callers[name].ask(company, work_s)

    def hear(self, enough: Callable[[list[Telling]], object], patience_s: float | None = None) -> bool:
        """Listen until `enough` has been told (True), or patience ends (False; None: the demo's own)."""
        ends_at = None if patience_s is None else time.monotonic() + patience_s
        while not enough(self.told):
            left_s = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            try:
                telling = self._ear.get(timeout=left_s)
            except queue.Empty:
                return False
            if telling.what == "ended" and telling.who not in self.gone:
                raise GaveUp(f"{telling.who} ended by itself; its errors stand above")
            self.told.append(telling)
        return True

    def until(self, who: str | None, what: str) -> Telling:
        """Listen until `who` (None: anybody) has told `what`."""
        self.hear(lambda told: any(t.what == what and who in (None, t.who) for t in told))
        return next(t for t in self.told if t.what == what and who in (None, t.who))

    def until_all(self, names: Sequence[str], *whats: str) -> None:
        """Listen until each of them has told one of these."""
        self.hear(lambda told: set(names) <= {t.who for t in told if t.what in whats})

    # -- the server's word -------------------------------------------------------------------------------

    def run_id(self) -> str:
        """The run that the callers are in."""
        return str(self._answer("PUT", "/runs/default")["id"])

    def view(self, key: str, wait_ms: int = 0) -> dict[str, Any]:
        """GET /once: state, failures, holder, lease, result."""
        return self._answer("GET", "/once", params={"scopeId": self.run_id(), "key": key, "waitMs": wait_ms})

    def _answer(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        while True:
            # A connection through a server that has just been killed is worth another one, and both calls
            # may be repeated.
            with contextlib.suppress(httpx.TransportError):
                return dict(self.space.request(method, path, **request).raise_for_status().json())
            time.sleep(LOOK_S)

    def journal(self, key: str) -> tuple[Event, ...]:
        """The events of a key, read from the table itself once every committed event has its number."""
        while database.fetchval(self.postgres.url, UNNUMBERED):
            time.sleep(LOOK_S)
        rows = database.fetch(self.postgres.url, JOURNAL, SPACE, key)
        return tuple(Event(row["created_at"].timestamp(), row["type"], row["holder"]) for row in rows)

    def asleep(self) -> list[int]:
        """How many long polls are open, replica by replica; 0 for one that is not there."""
        return [_open_polls(replica.url) for replica in self.replicas]

    def until_asleep(self, count: int, patience_s: float = 2.0) -> list[int]:
        """`asleep`, as soon as there are `count` of them altogether or patience ends."""
        ends_at = time.monotonic() + patience_s
        while sum(found := self.asleep()) < count and time.monotonic() < ends_at:
            time.sleep(LOOK_S)
        return found


def _end(replica: Replica) -> None:
    with contextlib.suppress(AssertionError):  # never started
        replica.__exit__(None, None, None)


def _open_polls(url: str) -> int:
    with contextlib.suppress(httpx.TransportError):
        text = httpx.get(f"{url}/metrics", timeout=5, trust_env=False).text
        found = re.search(r"^runstate_open_polls (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def instant(text: str) -> float:
    """A time of the wire as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
