"""The scene of the sleep: the sleeper is killed, then every server; what is left is slept by another."""

import contextlib
import signal
import time
from dataclasses import dataclass
from typing import Any

from examples.demo.account import Claim, Teller
from examples.demo.jobs import Crew
from examples.demo.stage import Stage, instant
from tests.support import database
from tests.support.crowd import Telling
from tests.support.site import LOOK_S

SLEEP_S = 12
PROMPT_S = 5.0  # on a machine that is busy with all of this; as a rule it is milliseconds
RETRY_S_MAX = 10.0  # between two attempts of the SDK to reach a server
EVENTS = """
SELECT j.type, j.created_at FROM runstate.journal j
 WHERE j.space_id = $1 AND j.aggregate_type = 'timer' AND j.aggregate_id = $2 ORDER BY j.num
"""


@dataclass(frozen=True)
class Seen:
    """What was seen of one sleep; instants in seconds since the epoch."""

    due_at: float
    back_at: float
    awake: list[Telling]
    events: list[tuple[str, float]]

    @property
    def fired_at(self) -> list[float]:
        return [at for kind, at in self.events if kind == "timer.fired"]


def durable_sleep(on: Stage, teller: Teller) -> None:
    teller.title(
        "A durable sleep through the death of the sleeper and of every server",
        f'A process calls runstate.sleep("cool down", {SLEEP_S}). It is killed, and so are both servers.',
    )
    acts: list[tuple[float, str, str]] = []
    with contextlib.ExitStack() as exits:
        crew = Crew(on, exits)
        first = crew.start("sleeper-1", "sleeper")
        crew.until(lambda told: any(t.what == "sleeps" for t in told))
        acts.append((crew.all("sleeps")[0].at, "sleeper-1", f"sleeps, for {SLEEP_S} s"))
        timer = _until_set(on)
        acts.append((first.send(signal.SIGKILL), "sleeper-1", "SIGKILL, in its sleep"))
        back_at = _restarted(on, crew, acts)
        crew.until(lambda told: any(t.what == "awake" for t in told))
        crew.start("sleeper-3", "sleeper")
        crew.until(lambda told: sum(t.what == "awake" for t in told) == 2)
        seen = Seen(instant(timer["fireAt"]), back_at, crew.all("awake"), _journal(on, timer["id"]))
    acts += [
        (t.at, t.who, f"is awake, after {t.facts['slept_s']:.1f} s of its own sleep") for t in seen.awake
    ]
    acts += [(at, "the timer", "fires") for at in seen.fired_at]
    for at, who, what in sorted(acts):
        teller.say(f"   {at - teller.began_at:6.1f} s  {who:<10} {what}")
    teller.say("")
    teller.claims(_claims(seen))


def _until_set(on: Stage) -> dict[str, Any]:
    """The timer, once the sleeper has set it."""
    while True:
        timers = on.site.answer("GET", f"/ops/runs/{on.run_id}")["timers"]
        if timers:
            return dict(timers[0])
        time.sleep(LOOK_S)


def _restarted(on: Stage, crew: Crew, acts: list[tuple[float, str, str]]) -> float:
    """Kill both servers, and start them again once another sleeper has called. Returns: when they are
    back."""
    for replica in on.site.replicas:
        replica.kill()
    acts.append((time.time(), "the servers", "SIGKILL, both: nobody is left who knows of the sleep"))
    crew.start("sleeper-2", "sleeper")
    crew.until(lambda told: any(t.who == "sleeper-2" and t.what == "sleeps" for t in told))
    acts.append((time.time(), "sleeper-2", "makes the same call, and waits for a server"))
    for replica in on.site.replicas:
        replica.start(wait=False)
    for replica in on.site.replicas:
        replica.wait_ready()
    acts.append((time.time(), "the servers", "are back"))
    return time.time()


def _journal(on: Stage, timer_id: str) -> list[tuple[str, float]]:
    on.site.until_numbered()
    rows = database.fetch(on.site.postgres.url, EVENTS, on.site.space.id, timer_id)
    return [(row["type"], row["created_at"].timestamp()) for row in rows]


def _claims(seen: Seen) -> list[Claim]:
    second, third = seen.awake
    due_or_back = max(seen.due_at, seen.back_at)
    late_ms = 1000 * (seen.fired_at[0] - seen.due_at) if seen.fired_at else float("nan")
    return [
        Claim(
            "the timer was set once, fired once, and was acknowledged once",
            [kind for kind, _ in seen.events] == ["timer.created", "timer.fired", "timer.acked"],
        ),
        Claim(
            f"it fired {late_ms:.0f} ms after its time, never before",
            len(seen.fired_at) == 1 and seen.due_at <= seen.fired_at[0] <= due_or_back + PROMPT_S,
        ),
        Claim("nobody was awake before", min(t.at for t in seen.awake) >= seen.due_at),
        Claim(
            f"sleeper-2 woke {_when(seen)}: after {second.facts['slept_s']:.1f} s of its own sleep",
            second.who == "sleeper-2"
            and second.at <= due_or_back + RETRY_S_MAX + PROMPT_S
            and (second.facts["slept_s"] < SLEEP_S or seen.back_at > seen.due_at),
        ),
        Claim(
            f"sleeper-3, started after that, did not sleep again: {third.facts['slept_s']:.1f} s",
            third.who == "sleeper-3" and third.facts["slept_s"] < PROMPT_S,
        ),
    ]


def _when(seen: Seen) -> str:
    """On a machine that is busy the servers may be back too late for the time itself."""
    if seen.back_at > seen.due_at:
        return "once a server was back"
    return "when it was time, having slept only for what was left"
