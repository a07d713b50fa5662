"""`make chaos-database`: PostgreSQL stands still for 10 s, is stopped for 10 s, is killed; all under load.

Two servers; callers of `once`, producers and workers of a queue, by the SDK; and clients that speak plain
HTTP and count every answer. Ends 0 when what was acknowledged is there, once results are one per key, nobody
saw anything but refusals that were worth another try, and all of it went on by itself.
"""

import argparse
import contextlib
import itertools
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench import chaos_once, chaos_queue, verdict
from bench.verdict import Verdict
from tests.support import database, faults
from tests.support.crowd import Telling
from tests.support.site import Site, leave_on_signals

CALLERS = 6
WORKERS = 2
PRODUCERS = 3
PLAIN_CLIENTS = 4
LEASE_S = 30.0  # the default: longer than the outages, so that nobody loses work to them
REFUSAL_S_MAX = 8.0  # five seconds inside, and what a busy machine adds
ANSWER_S_MAX = 60.0
SLICE_S = 0.05
COUNTS = """
SELECT count(*) AS jobs, count(*) FILTER (WHERE m.ended = 'ACKED') AS recorded,
       count(*) FILTER (WHERE m.ended = 'DEAD') AS dead,
       (SELECT count(*) FROM runstate.once o WHERE o.space_id = $1 AND o.state = 'DONE') AS results
  FROM runstate.messages m WHERE m.space_id = $1 AND m.task_key IS NOT NULL
"""


class PlainClient(threading.Thread):
    """Acquires and completes keys, and submits tasks, one after another by plain HTTP; sends what was refused
    again, under the same Idempotency-Key."""

    def __init__(self, site: Site, run_id: str, mailbox_id: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._client = site.space.client(site.url)
        self._run, self._mailbox = run_id, mailbox_id
        self.enough = threading.Event()
        self.answers: Counter[str] = Counter()
        self.slowest_refusal_s = 0.0
        self.succeeded_at: list[float] = []
        self.recorded: dict[str, int] = {}  # key → result
        self.submitted: dict[str, str] = {}  # job → page
        self.strange: list[str] = []

    def run(self) -> None:
        """Until told to stop; the last one is seen through."""
        named = {"holder": self.name, "holderSession": "1", "leaseSeconds": LEASE_S}
        for n in itertools.count():
            if self.enough.is_set():
                return
            key = {"scopeId": self._run, "key": f"{self.name}-{n}"}
            token = self._insist("/once/acquire", key | named, f"{self.name}-a{n}").get("token")
            self._insist("/once/complete", key | {"token": token, "result": n}, f"{self.name}-c{n}")
            self.recorded[key["key"]] = n
            page = f"{self.name}-{n}"
            job = {"scopeId": self._run, "mailboxId": self._mailbox, "taskKey": page}
            given = job | {"input": {"name": page, "work_s": 0.05}}
            self.submitted[self._insist("/tasks", given, f"{self.name}-t{n}").get("taskId", page)] = page

    def _insist(self, path: str, body: dict[str, Any], idempotency_key: str) -> dict[str, Any]:
        """The answer to a call that is repeated while the server refuses it as it may."""
        while True:
            asked_at = time.monotonic()
            try:
                response = self._client.post(path, json=body, headers={"Idempotency-Key": idempotency_key})
            except httpx.TransportError as error:
                self.strange.append(f"{path}: {error!r}")
                return {}
            self.answers[str(response.status_code)] += 1
            if response.is_success:
                self.succeeded_at.append(time.monotonic())
                return dict(response.json())
            retry_after = response.headers.get("retry-after")
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE or retry_after is None:
                self.strange.append(f"{path}: {response.status_code} {response.text[:200]}")
                return {}
            self.slowest_refusal_s = max(self.slowest_refusal_s, time.monotonic() - asked_at)
            time.sleep(float(retry_after))


@dataclass
class Heard:
    """When the SDK's programs told of an answer of the server, on the monotonic clock."""

    at: list[float] = field(default_factory=list)

    def note(self, told: Telling) -> None:
        """Keep it if it is one."""
        if told.what in ("got", "submitted", "worked"):
            self.at.append(told.at - time.time() + time.monotonic())


class OnceStorm(chaos_once.Storm):
    """Callers of `once`; nobody is killed."""

    heard: Heard

    def _heard(self, told: Telling) -> None:
        self.heard.note(told)
        super()._heard(told)


class QueueStorm(chaos_queue.Storm):
    """Producers and workers; nobody is killed."""

    heard: Heard

    def _heard(self, told: Telling) -> None:
        self.heard.note(told)
        super()._heard(told)


class Load:
    """Everybody who wants something of the servers."""

    def __init__(self, site: Site, exits: contextlib.ExitStack, seed: int) -> None:
        self.site = site
        self.run_id = site.run_id()
        self.heard = Heard()
        OnceStorm.heard = QueueStorm.heard = self.heard
        self.once = OnceStorm(site, exits, seed=seed, began_at=time.time(), callers=CALLERS, lease_s=LEASE_S)
        self.queue = QueueStorm(site, exits, seed, workers=WORKERS, producers=PRODUCERS, lease_s=LEASE_S)
        mailbox = site.send("PUT", "/mailboxes/by-name/pages", {}).raise_for_status().json()["id"]
        self.plain = [PlainClient(site, self.run_id, mailbox, f"plain-{n}") for n in range(PLAIN_CLIENTS)]
        for client in self.plain:
            client.start()

    def listen(self, seconds: float) -> None:
        """Keep everybody busy for so long."""
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self.once.listen(SLICE_S)
            self.queue.listen(SLICE_S)

    def until(self, what: Callable[[], bool]) -> bool:
        """Keep everybody busy until then. Returns: whether it came to be in time."""
        ends_at = time.monotonic() + ANSWER_S_MAX
        while not what() and time.monotonic() < ends_at:
            self.listen(2 * SLICE_S)
        return what()

    def back_after(self, moment: float) -> tuple[float, float]:
        """The seconds from that moment to the first success of a plain client, and of an SDK's; inf when
        there was none in time."""
        firsts = [
            lambda: [at for client in self.plain for at in client.succeeded_at if at > moment],
            lambda: [at for at in self.heard.at if at > moment],
        ]
        self.until(lambda: all(first() for first in firsts))
        plain, sdk = (min(first(), default=float("inf")) - moment for first in firsts)
        return plain, sdk

    def counts(self) -> str:
        """What has been acknowledged, beside what the database has."""
        acknowledged = len(self.queue.told.submitted) + sum(len(c.submitted) for c in self.plain)
        [has] = database.fetch(self.site.postgres.url, COUNTS, self.site.space.id)
        return (
            f"submits acknowledged {acknowledged}, in the database {has['jobs']}: "
            f"{has['recorded']} recorded, {has['dead']} dead; once results {has['results']}"
        )

    def finish(self) -> bool:
        """Nothing new; wait for what is due. Returns: whether all came."""
        for client in self.plain:
            client.enough.set()
        answered = [self.once.finish(), self.queue.finish()]
        for client in self.plain:
            client.join(ANSWER_S_MAX)
        return all(answered) and not any(client.is_alive() for client in self.plain)


def judge(load: Load, *, all_answered: bool, backs: list[float]) -> Verdict:
    """What the servers have, beside what everybody was told."""
    site, told = load.site, load.queue.told
    for client in load.plain:
        told.submitted |= client.submitted
        load.once.counts.keys |= client.recorded.keys()
        load.once.counts.answers += client.recorded.items()
        load.once.counts.executions += len(client.recorded)
    queue = chaos_queue.judge(load.queue, load.run_id, all_answered=all_answered)
    once = verdict.judge(
        verdict.read(site, load.run_id, load.once.counts.keys), load.once.counts, all_answered=all_answered
    )
    answers = sum((client.answers for client in load.plain), Counter[str]())
    slowest = max(client.slowest_refusal_s for client in load.plain)
    strange = [text for client in load.plain for text in client.strange]
    wanted = {"jobs submitted", "recorded", "dead", "duplicates of recorded ends", "recorded results per key"}
    wanted |= {"refused submits, sent again", "client-visible errors", "journal"}
    return Verdict(
        lines=[
            *((name, value) for name, value in queue.lines + once.lines if name in wanted),
            ("plain clients saw", ", ".join(f"{n} x {status}" for status, n in sorted(answers.items()))),
            ("slowest refusal", f"{slowest:.1f} s"),
        ],
        wrong=[
            *queue.wrong,
            *once.wrong,
            *(f"a plain client saw {text}" for text in strange[:5]),
            *(f"a caller of once saw {error}" for error in load.once.counts.errors),
            *(["a refusal took too long"] if slowest > REFUSAL_S_MAX else []),
            *(["the servers did not come back by themselves"] if max(backs) > ANSWER_S_MAX else []),
        ],
    )


def main() -> int:
    """Run it. Returns: the exit status."""
    options = _parser().parse_args()
    leave_on_signals()
    try:
        with Site() as site, contextlib.ExitStack() as exits:
            found = _rage(site, exits, options.away, options.seed)
    except KeyboardInterrupt:
        print("\ninterrupted; everything it had started is gone", file=sys.stderr)
        return 130
    print(
        "\n" + found.text("Nothing acknowledged was lost; refusals worth another try were all that was seen.")
    )
    return 0 if found.good else 1


def _rage(site: Site, exits: contextlib.ExitStack, away_s: float, seed: int) -> Verdict:
    print(
        f"seed {seed}: 2 servers; {CALLERS} callers of once, {PRODUCERS} producers and {WORKERS} workers by "
        f"the SDK, {PLAIN_CLIENTS} plain clients."
    )
    load = Load(site, exits, seed)
    load.until(lambda: bool(load.heard.at) and all(c.submitted for c in load.plain))
    victim = faults.Victim(site.postgres)
    accidents = [
        ("stands still", faults.frozen, away_s),
        ("is stopped", faults.stopped, away_s),
        ("is killed", faults.killed, 0.0),
    ]
    backs: list[float] = []
    for what, fault, for_s in accidents:
        load.listen(2.0)
        print(f"\nbefore: {load.counts()}\nPostgreSQL {what}" + (f" for {for_s:g} s" if for_s else ""))
        with fault(victim):
            load.listen(for_s)
            began_at = time.monotonic()
        returned_at = began_at if fault is faults.frozen else time.monotonic()
        plain_s, sdk_s = load.back_after(returned_at)
        backs += [plain_s, sdk_s]
        print(f"the first success came {plain_s:.2f} s after its return, to an SDK {sdk_s:.2f} s")
        print(f"after:  {load.counts()}", flush=True)
    load.listen(2.0)
    answered = load.finish()
    for replica in site.replicas:
        replica.wait_ready()
    print(f"\nat the end: {load.counts()}")
    return judge(load, all_answered=answered, backs=backs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos-database", description=__doc__)
    parser.add_argument("--away", type=float, default=10, help="seconds of an outage (default 10)")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="default: any")
    return parser


if __name__ == "__main__":
    sys.exit(main())
