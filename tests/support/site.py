"""A whole Runstate for demo and bench: a PostgreSQL of its own, servers on it, one address before them."""

import contextlib
import re
import secrets
import signal
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Self

import httpx

from runstate_server import migrator
from runstate_server.embedded import EmbeddedPostgres
from tests.support import database, machine
from tests.support.processes import Replica
from tests.support.proxy import RoundRobin
from tests.support.spaces import Space

LOOK_S = 0.05
ANSWER_S_MAX = 30.0
UNNUMBERED = "SELECT count(*) FROM runstate.outbox"
EVENTS = """
SELECT j.num, j.created_at, j.type, j.aggregate_id, j.payload::json ->> 'holder' AS holder
  FROM runstate.journal j
 WHERE j.space_id = $1 AND j.aggregate_type = 'once' ORDER BY j.num
"""


@dataclass(frozen=True)
class Event:
    """What the journal says of a once key; `at` in seconds since the epoch, on the database's clock."""

    at: float
    type: str
    key: str
    holder: str | None
    num: int = 0


class Site:
    """A context manager: everything that it started is gone when it is left. Enter it on the main thread.

    The database is durable and has the production build's clock. `settings` are the servers', as Replica's.
    """

    def __init__(self, *, servers: int = 2, **settings: str) -> None:
        self._servers = servers
        self.space = Space("site", "rs_site_" + secrets.token_hex(16))
        self._settings = {
            "TEST_CLOCK": "0",
            "LOG_LEVEL": "warning",
            "BOOTSTRAP_SPACE_ID": self.space.id,
            "BOOTSTRAP_API_KEY": self.space.key,
        } | settings
        self.replicas: list[Replica] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            folder = exits.enter_context(machine.reachable_folder())
            self.postgres = exits.enter_context(EmbeddedPostgres(folder))
            migrator.migrate(self.postgres.url)
            for _ in range(self._servers):
                replica = Replica(self.postgres.url, **self._settings)
                exits.callback(_end, replica)  # before the start: an interrupt may come between the two
                self.replicas.append(replica.start(wait=False))
            front = exits.enter_context(RoundRobin([replica.port for replica in self.replicas]))
            self.url = front.url
            for replica in self.replicas:
                replica.wait_ready()
            self._client = exits.enter_context(self.space.client(self.url))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def variables(self) -> dict[str, str]:
        """What the SDK of another process reads."""
        return self.space.environment(self.url)

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request inside the space, whatever comes of it."""
        return self._client.request(method, path, json=body)

    def answer(self, method: str, path: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a call that may be repeated, since a server that is killed gives none."""
        ends_at = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                return dict(self._client.request(method, path, params=params).raise_for_status().json())
            except httpx.TransportError:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(LOOK_S)

    def run_id(self, name: str = "default") -> str:
        """The run of that name, in which the SDK's callers are by default."""
        return str(self.answer("PUT", f"/runs/{name}")["id"])

    def once(self, run_id: str, key: str, *, wait_ms: int = 0) -> dict[str, Any]:
        """GET /once: state, failures, holder, lease, result."""
        return self.answer("GET", "/once", {"scopeId": run_id, "key": key, "waitMs": wait_ms})

    def until_numbered(self) -> None:
        """Wait until every event that has been committed stands in the journal."""
        while database.fetchval(self.postgres.url, UNNUMBERED):
            time.sleep(LOOK_S)

    def once_events(self, key: str | None = None) -> list[Event]:
        """The events of once keys, of one or of all, from the journal's own table."""
        self.until_numbered()
        return [
            Event(r["created_at"].timestamp(), r["type"], r["aggregate_id"], r["holder"], r["num"])
            for r in database.fetch(self.postgres.url, EVENTS, self.space.id)
            if key in (None, r["aggregate_id"])
        ]

    def open_polls(self) -> list[int]:
        """How many long polls are open, server by server; 0 for one that is not there."""
        return [_open_polls(replica.url) for replica in self.replicas]


def leave_on_signals() -> None:
    """The first SIGINT or SIGTERM raises KeyboardInterrupt; later ones must not disturb the leaving."""

    def interrupted(_signal: int, _frame: FrameType | None) -> NoReturn:
        signal.alarm(0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)


def _end(replica: Replica) -> None:
    with contextlib.suppress(AssertionError):  # never started
        replica.__exit__(None, None, None)


def _open_polls(url: str) -> int:
    with contextlib.suppress(httpx.TransportError):
        text = httpx.get(f"{url}/metrics", timeout=5, trust_env=False).text
        found = re.search(r"^runstate_open_polls (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0
    return 0
