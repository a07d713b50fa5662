"""The scene of the queue: workers, producers of the same pages, a worker killed, a page that cannot be
fetched, and a deploy in the middle."""

import contextlib
import queue
import signal
import time
from pathlib import Path
from typing import Any

from examples.demo.account import Claim, Teller
from examples.demo.stage import LEASE_S, GaveUp, Stage
from tests.support import database
from tests.support.crowd import Caller, Telling

HERE = Path(__file__).parent
PAGES = [f"page-{number}" for number in range(1, 13)]
BROKEN = "broken"
ATTEMPTS = 3
WORK_S = 0.6
ENDS = """
SELECT j.aggregate_id AS task, count(*) AS ends FROM runstate.journal j
 WHERE j.space_id = $1 AND j.type IN ('task.succeeded', 'task.failed') GROUP BY j.aggregate_id
"""


class Crew:
    """The processes of this scene and what they have told."""

    def __init__(self, on: Stage, exits: contextlib.ExitStack) -> None:
        self._on = on
        self._exits = exits
        self._ear: queue.SimpleQueue[Telling] = queue.SimpleQueue()
        self.told: list[Telling] = []

    def start(self, name: str, program: str) -> Caller:
        variables = self._on.site.variables
        process = Caller(
            name, lease_s=LEASE_S, variables=variables, ear=self._ear, program=HERE / f"{program}.py"
        )
        self._exits.callback(process.end)
        return process

    def until(self, enough: Any, patience_s: float = 40.0) -> None:
        """Listen until `enough` of what was told is true."""
        ends_at = time.monotonic() + patience_s
        while not enough(self.told):
            try:
                self.told.append(self._ear.get(timeout=max(0.0, ends_at - time.monotonic())))
            except queue.Empty:
                raise GaveUp("the crew of the queue took too long") from None

    def all(self, what: str) -> list[Telling]:
        return [t for t in self.told if t.what == what]

    def under_way(self, who: str) -> list[str]:
        """The pages that this worker has started and not finished."""
        started = [t.facts["page"] for t in self.all("starts") if t.who == who]
        done = [t.facts["page"] for t in self.all("worked") if t.who == who]
        return [page for page in started if page not in done and page != BROKEN]


def shared_pages(on: Stage, teller: Teller) -> None:
    teller.title(
        "A queue, with a worker killed and a deploy in the middle",
        f"3 workers; 4 producers each want the same {len(PAGES)} pages, and one that cannot be fetched.",
    )
    with contextlib.ExitStack() as exits:
        crew = Crew(on, exits)
        workers = {name: crew.start(name, "worker") for name in ("worker-1", "worker-2", "worker-3")}
        producers = [crew.start(f"producer-{number}", "producer") for number in range(1, 5)]
        crew.until(lambda told: sum(t.what == "ready" for t in told) == len(workers) + len(producers))
        for producer in producers:
            producer.ask([*PAGES, BROKEN], WORK_S)
        acts = _accidents(crew, workers)
        crew.until(lambda told: sum(t.what == "collected" for t in told) == len(producers))
        ends = _recorded(on)
        tasks = on.site.answer("GET", "/tasks", {"scopeId": on.run_id, "limit": 500})["tasks"]
        _tell(teller, crew, acts)
        teller.claims(_claims(crew, [p.name for p in producers], workers["worker-2"], tasks, ends))


def _accidents(crew: Crew, workers: dict[str, Caller]) -> list[tuple[float, str, str]]:
    """Kill one worker in the middle of a page, then replace another by SIGTERM."""
    crew.until(lambda _: crew.under_way("worker-1"))
    lost = crew.under_way("worker-1")
    acts = [
        (workers["worker-1"].send(signal.SIGKILL), "worker-1", f"SIGKILL, in the middle of {', '.join(lost)}")
    ]
    crew.until(lambda _: crew.under_way("worker-2"))
    acts.append(
        (workers["worker-2"].send(signal.SIGTERM), "worker-2", "SIGTERM: no new pages, finish, leave")
    )
    crew.start("worker-4", "worker")
    acts.append((time.time(), "worker-4", "is started in its place"))
    crew.until(lambda told: any(t.who == "worker-2" and t.what == "ended" for t in told))
    workers["worker-2"].process.wait(timeout=40)
    return acts


def _recorded(on: Stage) -> dict[str, int]:
    on.site.until_numbered()
    rows = database.fetch(on.site.postgres.url, ENDS, on.site.space.id)
    return {row["task"]: row["ends"] for row in rows}


def _tell(teller: Teller, crew: Crew, acts: list[tuple[float, str, str]]) -> None:
    again = [
        (t.at, t.who, f"takes {t.facts['page']} over, attempt {t.facts['attempt']}")
        for t in crew.all("starts")
        if t.facts["attempt"] > 1 and t.facts["page"] != BROKEN
    ]
    tries = [
        (t.at, t.who, f"tries {BROKEN}, attempt {t.facts['attempt']} of {ATTEMPTS}")
        for t in crew.all("starts")
        if t.facts["page"] == BROKEN
    ]
    left = [(t.at, t.who, "has left") for t in crew.all("left")]
    ready = [(t.at, t.who, "has everything") for t in crew.all("collected")]
    for at, who, what in sorted([*acts, *again, *tries, *left, *ready]):
        teller.say(f"   {at - teller.began_at:6.1f} s  {who:<10} {what}")
    teller.say("")


def _claims(
    crew: Crew, producers: list[str], deployed: Caller, tasks: list[dict[str, Any]], ends: dict[str, int]
) -> list[Claim]:
    outcome = {t["taskKey"]: t for t in tasks}
    submitted = [t.facts["jobs"] for t in crew.all("submitted")]
    ids = {job for jobs in submitted for job in jobs.values()}
    results: dict[str, list[Any]] = {}
    for telling in crew.all("got"):
        results.setdefault(telling.facts["page"], []).append(telling.facts["result"])
    by_id = {t["id"]: t for t in tasks}
    same = all(
        len(found) == len(producers) and all(f == found[0] for f in found) for found in results.values()
    )
    recorded = all(by_id[submitted[0][page]]["outcome"] == found[0] for page, found in results.items())
    killed_at = next(t.at for t in crew.told if t.who == "worker-1" and t.what == "ended")
    lost = [
        t.facts["page"]
        for t in crew.all("starts")
        if t.who == "worker-1" and t.facts["page"] in crew.under_way("worker-1") and t.at < killed_at
    ]
    retaken = {t.facts["page"] for t in crew.all("starts") if t.who != "worker-1" and t.facts["attempt"] > 1}
    failed = crew.all("failed")
    tries = [t.facts["attempt"] for t in crew.all("starts") if t.facts["page"] == BROKEN]
    asked = sum(map(len, submitted))
    return [
        Claim(
            f"{len(producers)} producers asked for {len(PAGES) + 1} pages each: {len(ids)} jobs, not {asked}",
            len(ids) == len(PAGES) + 1 == len(outcome),
        ),
        Claim("every page came to everybody, the same for all", len(results) == len(PAGES) and same),
        Claim("and it is what the server has recorded", recorded),
        Claim(
            "what worker-1 had under way was done by others, attempt 2", bool(lost) and set(lost) <= retaken
        ),
        Claim(
            f"{BROKEN} was tried {ATTEMPTS} times, and everybody was told why it failed",
            sorted(tries) == list(range(1, ATTEMPTS + 1))
            and len(failed) == len(producers)
            and all("no such page" in t.facts["message"] for t in failed),
        ),
        Claim("worker-2 left by itself, with exit status 0", deployed.process.returncode == 0),
        Claim(
            "submitted = succeeded + failed, and each has exactly one end in the journal",
            {t["state"] for t in tasks} == {"SUCCEEDED", "FAILED"}
            and set(ends) == ids
            and set(ends.values()) == {1},
        ),
    ]
