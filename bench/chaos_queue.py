"""`make chaos-queue`: a queue under kills. Two servers, 4 worker and 8 producer processes; a worker or a
server is killed every 5 s.

Ends 0 when, by the server's word, every job that was submitted has exactly one recorded end, nothing is left
in the queue, no job was tried more often than it may be, and every producer was told what is recorded. The
same --seed gives the same order of accidents.
"""

import argparse
import contextlib
import queue
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.verdict import Verdict
from tests.support import database, sources
from tests.support.crowd import Caller, Telling
from tests.support.site import Site, leave_on_signals

PROGRAMS = sources.ROOT / "examples/demo"
WORKERS = 4
PRODUCERS = 8
LANES = 4  # producers of one lane want the same pages
BATCH = 10
LEASE_S = 2.0
WORK_S = 0.2
ATTEMPTS = 3  # as examples/demo/pages.py defines its queue
KILL_EVERY_S = 5.0
LAST_ANSWERS_S_MAX = 60.0
ENDS = """
SELECT j.aggregate_id AS task, count(*) FILTER (WHERE j.type <> 'task.started') AS ends,
       count(*) FILTER (WHERE j.type = 'task.started') AS starts
  FROM runstate.journal j
 WHERE j.space_id = $1
   AND j.type IN ('task.started', 'task.succeeded', 'task.failed', 'task.cancelled', 'task.expired')
 GROUP BY j.aggregate_id
"""
LEFT = "SELECT (SELECT count(*) FROM runstate.queue_ready) + (SELECT count(*) FROM runstate.queue_leased)"


@dataclass
class Told:
    """What the processes said."""

    submitted: dict[str, str] = field(default_factory=dict)  # job → page
    asked: int = 0
    results: list[tuple[str, Any]] = field(default_factory=list)  # page, result
    failures: list[str] = field(default_factory=list)
    starts: int = 0
    refusals: int = 0
    workers_killed: int = 0
    workers_paused: int = 0
    servers_killed: int = 0


class Storm:
    """Drives producers and workers, and kills among them. One thread; what they tell arrives through the
    ear."""

    def __init__(
        self,
        site: Site,
        exits: contextlib.ExitStack,
        seed: int,
        *,
        workers: int = WORKERS,
        producers: int = PRODUCERS,
        lease_s: float = LEASE_S,
    ) -> None:
        self.site = site
        self.told = Told()
        self._exits = exits
        self._lease_s = lease_s
        self._chance = random.Random(seed)
        self._ear: queue.SimpleQueue[Telling] = queue.SimpleQueue()
        self._gone: set[str] = set()
        self._busy: Counter[str] = Counter()
        self._steps: dict[str, int] = {}
        self._collecting: set[str] = set()
        self._asking = True
        self._lives = 0
        self.workers = [self._start_worker() for _ in range(workers)]
        self.producers = {f"producer-{n}": self._start(f"producer-{n}", "producer") for n in range(producers)}

    def _start(self, name: str, program: str) -> Caller:
        path = Path(PROGRAMS, f"{program}.py")
        caller = Caller(
            name, lease_s=self._lease_s, variables=self.site.variables, ear=self._ear, program=path
        )
        self._exits.callback(caller.end)
        return caller

    def _start_worker(self) -> Caller:
        self._lives += 1
        return self._start(f"worker-{self._lives}", "worker")

    def listen(self, seconds: float) -> None:
        """Take in what is told for so long; a producer that has everything is asked for the next pages."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._heard(self._ear.get(timeout=left_s))

    def _heard(self, told: Telling) -> None:
        facts = told.facts
        match told.what:
            case "ready" | "collected" if told.who in self.producers:
                self._collecting.discard(told.who)
                self._ask(told.who)
            case "submitted":
                self.told.asked += len(facts["jobs"])
                self.told.submitted |= {job: page for page, job in facts["jobs"].items()}
            case "got":
                self.told.results.append((facts["page"], facts["result"]))
            case "failed":
                self.told.failures.append(facts["page"])
            case "refused":
                self.told.refusals += 1
            case "starts":
                self.told.starts += 1
                self._busy[told.who] += 1
            case "worked":
                self._busy[told.who] -= 1
            case "ended" if told.who not in self._gone:
                raise SystemExit(f"{told.who} ended by itself; its errors stand above")

    def _ask(self, producer: str) -> None:
        if not self._asking:
            return
        step = self._steps[producer] = self._steps.get(producer, -1) + 1
        lane = list(self.producers).index(producer) % LANES
        pages = [f"page-{lane}-{step}-{n}" for n in range(BATCH)]
        self._collecting.add(producer)
        self.producers[producer].ask(pages + (["broken"] if step == 0 else []), WORK_S)

    def kill_worker(self) -> str:
        """SIGKILL one that is at work; a new one takes its place."""
        busy = [w for w in self.workers if self._busy[w.name] > 0] or self.workers
        worker = self._chance.choice(busy)
        self._gone.add(worker.name)
        worker.end()
        self.told.workers_killed += 1
        self.workers[self.workers.index(worker)] = self._start_worker()
        return f"SIGKILL {worker.name}"

    def pause_worker(self) -> None:
        """SIGSTOP one for longer than its lease, so that it comes back after a takeover."""
        worker = self._chance.choice(self.workers)
        worker.send(signal.SIGSTOP)
        self.told.workers_paused += 1
        self.listen(LEASE_S + 0.5)
        worker.send(signal.SIGCONT)

    def kill_server(self) -> str:
        """SIGKILL, and a new start on the same port."""
        number = self._chance.randrange(len(self.site.replicas))
        self.site.replicas[number].kill()
        self.told.servers_killed += 1
        self.site.replicas[number].start(wait=False)
        return f"SIGKILL replica-{number + 1}"

    def finish(self) -> bool:
        """No new pages; wait for what is still due. Returns: whether all came."""
        self._asking = False
        ends_at = time.monotonic() + LAST_ANSWERS_S_MAX
        while self._collecting and time.monotonic() < ends_at:
            self.listen(0.1)
        return not self._collecting


def judge(storm: Storm, run_id: str, *, all_answered: bool) -> Verdict:
    """What the server has, beside what the producers were told."""
    site, told = storm.site, storm.told
    tasks = _tasks(site, run_id)
    site.until_numbered()
    rows = {r["task"]: r for r in database.fetch(site.postgres.url, ENDS, site.space.id)}
    states = Counter(task["state"] for task in tasks.values())
    twice = sum(row["ends"] > 1 for row in rows.values())
    outcome = {task["taskKey"]: task["outcome"] for task in tasks.values()}
    page_of = {told.submitted[i]: task["outcome"] for i, task in tasks.items() if i in told.submitted}
    other = sum(page_of.get(page) != result for page, result in told.results)
    most = max((row["starts"] for row in rows.values()), default=0)
    left = database.fetchval(site.postgres.url, LEFT)
    verdict = Verdict(
        [
            ("submits, by producers", str(told.asked)),
            ("jobs submitted", str(len(tasks))),
            ("recorded", str(states["SUCCEEDED"])),
            ("dead", str(states["FAILED"])),
            ("duplicates of recorded ends", str(twice)),
            ("executions, deliveries", f"{told.starts}, {sum(r['starts'] for r in rows.values())}"),
            ("deliveries of one job, at most", str(most)),
            ("results told to producers", f"{len(told.results)}, {other} of them other"),
            ("failures told to producers", str(len(told.failures))),
            ("refused submits, sent again", str(told.refusals)),
            ("workers killed, paused", f"{told.workers_killed}, {told.workers_paused}"),
            ("servers killed", str(told.servers_killed)),
        ]
    )
    wrong = {
        "a producer waits for ever": not all_answered,
        "submitted is not recorded + dead": len(tasks) != states["SUCCEEDED"] + states["FAILED"],
        "a job that was acknowledged is unknown": not told.submitted.keys() <= tasks.keys(),
        "a page has two jobs": len(outcome) != len(tasks),
        "a job has two ends, or none": twice > 0 or any(rows[i]["ends"] != 1 for i in tasks if i in rows),
        "a job was never tried": not tasks.keys() <= rows.keys(),
        f"a job was tried more than {ATTEMPTS} times": most > ATTEMPTS,
        "a producer was told something else than is recorded": other > 0,
        "something is left in the queue": left > 0,
    }
    verdict.wrong += [what for what, is_wrong in wrong.items() if is_wrong]
    return verdict


def _tasks(site: Site, run_id: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    cursor = None
    while True:
        query = {"scopeId": run_id, "limit": 500} | ({"cursor": cursor} if cursor else {})
        page = site.answer("GET", "/tasks", query)
        found |= {task["id"]: task for task in page["tasks"]}
        cursor = page["nextCursor"]
        if cursor is None:
            return found


def main() -> int:
    options = _parser().parse_args()
    leave_on_signals()
    try:
        with Site() as site, contextlib.ExitStack() as exits:
            verdict = _rage(site, exits, options.seconds, options.seed)
    except KeyboardInterrupt:
        print("\ninterrupted; everything it had started is gone", file=sys.stderr)
        return 130
    print("\n" + verdict.text("submitted = recorded + dead; no duplicates."))
    return 0 if verdict.good else 1


def _rage(site: Site, exits: contextlib.ExitStack, seconds: float, seed: int) -> Verdict:
    print(
        f"seed {seed}: 2 servers, {WORKERS} workers, {PRODUCERS} producers in {LANES} lanes.\n"
        f"For {seconds:g} s a worker or a server is killed every {KILL_EVERY_S:g} s, in between one paused."
    )
    run_id = site.run_id()
    storm = Storm(site, exits, seed)
    began_at = time.monotonic()
    kills = [("worker", "server")[n % 2] for n in range(round(seconds / KILL_EVERY_S))]
    random.Random(seed).shuffle(kills)
    for number, kill in enumerate(kills, 1):
        storm.listen(KILL_EVERY_S / 4)
        storm.pause_worker()
        storm.listen(began_at + number * KILL_EVERY_S - time.monotonic())
        said = storm.kill_worker() if kill == "worker" else storm.kill_server()
        print(f"{time.monotonic() - began_at:6.1f} s  {said}", flush=True)
    storm.listen(began_at + seconds - time.monotonic())
    answered = storm.finish()
    for replica in site.replicas:
        replica.wait_ready()
    return judge(storm, run_id, all_answered=answered)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos-queue", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the storm (default 60)")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="default: any")
    return parser


if __name__ == "__main__":
    sys.exit(main())
