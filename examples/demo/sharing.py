"""The scene of what is scarce: twenty workers share three browsers, sixty searches a minute, five dollars."""

import contextlib
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from examples.demo.account import Claim, Teller
from examples.demo.jobs import Crew
from examples.demo.stage import LEASE_S, GaveUp, Stage, instant
from tests.support.crowd import Telling
from tests.support.site import LOOK_S

PAGES = 28
WORK_S = 0.4
BROWSERS, SEARCHES, CENTS = 3, 60, 500
COST = 17
PATIENCE_S = 60.0
TOLD = "permit.granted,permit.released,permit.lapsed,allowance.consumed"


def scarce_things(on: Stage, teller: Teller) -> None:
    teller.title(
        "Twenty workers share three browsers, 60 searches a minute and 5.00 USD",
        f"5 processes with 4 workers each; {PAGES} pages at {COST} cents, of which 40 are reserved before."
        " One process is killed while it holds a browser.",
    )
    _resources(on)
    with contextlib.ExitStack() as exits:
        crew = Crew(on, exits)
        workers = {f"renderer-{n}": crew.start(f"renderer-{n}", "renderer") for n in range(1, 6)}
        crew.until(lambda told: sum(t.what == "ready" for t in told) == len(workers))
        mailbox = _submit(on)
        crew.until(lambda told: any(t.what == "opens" for t in told))
        victim = next(t.who for t in crew.told if t.what == "opens")
        killed_at = workers[victim].send(signal.SIGKILL)
        tasks = _until_rendered(on, crew, mailbox)
        money = _until_settled(on)
        events = on.site.answer("GET", "/events", {"types": TOLD, "limit": 500})["events"]
        seen = Seen(crew, tasks, money, events, victim, killed_at)
        _tell(teller, seen)
        teller.claims(_claims(seen))


@dataclass(frozen=True)
class Seen:
    """What the scene has recorded: the processes' word, and the server's."""

    crew: Crew
    tasks: list[dict[str, Any]]
    money: dict[str, Any]
    events: list[dict[str, Any]]
    victim: str
    killed_at: float

    @property
    def most_lent(self) -> int:
        """The most browsers that were lent at once, by the journal."""
        lent = most = 0
        for event in self.events:
            units = event["payload"].get("units", 0)
            lent += {"permit.granted": units, "permit.released": -units, "permit.lapsed": -units}.get(
                event["type"], 0
            )
            most = max(most, lent)
        return most

    @property
    def back_after_s(self) -> list[float]:
        """After how many seconds the browsers of the killed process were back."""
        return [
            instant(e["createdAt"]) - self.killed_at
            for e in self.events
            if e["type"] == "permit.lapsed" and e["payload"]["holder"] == self.victim
        ]

    @property
    def searches(self) -> Counter[str]:
        """How many in each window."""
        found: Counter[str] = Counter()
        for event in self.events:
            if event["type"] == "allowance.consumed":
                found[event["payload"]["windowStart"]] += event["payload"]["units"]
        return found

    @property
    def again(self) -> list[Telling]:
        """What was begun a second time."""
        return [t for t in self.crew.all("opens") if t.facts["attempt"] > 1]


def _resources(on: Stage) -> None:
    for path, body in (
        ("/permits", {"name": "browser", "units": BROWSERS}),
        ("/allowances", {"name": "search-api", "unitsLimit": SEARCHES, "windowSeconds": 60}),
        ("/budgets", {"name": "model-usd", "currency": "USD", "scale": 2, "limitMinor": str(CENTS)}),
    ):
        on.site.send("POST", path, body).raise_for_status()


def _submit(on: Stage) -> str:
    mailbox = str(on.site.send("PUT", "/mailboxes/by-name/render", {}).raise_for_status().json()["id"])
    place = {"scopeId": on.run_id, "mailboxId": mailbox}
    pages = [{"name": f"page-{n}", "work_s": WORK_S} for n in range(1, PAGES + 1)]
    tasks = [{**place, "taskKey": f"render:{page['name']}", "input": page} for page in pages]
    on.site.send("POST", "/tasks/batch", {"tasks": tasks}).raise_for_status()
    return mailbox


def _until_rendered(on: Stage, crew: Crew, mailbox: str) -> list[dict[str, Any]]:
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        found = on.site.answer("GET", "/tasks", {"mailboxId": mailbox, "limit": 500})["tasks"]
        if all(task["state"] not in {"QUEUED", "RUNNING"} for task in found):
            with contextlib.suppress(GaveUp):
                crew.until(lambda _: False, patience_s=LOOK_S)  # what they have told meanwhile
            return list(found)
        time.sleep(LOOK_S)
    raise GaveUp("the renderers took too long")


def _until_settled(on: Stage) -> dict[str, Any]:
    """The budget, once no money is reserved any more: workers settle after they have completed."""
    ends_at = time.monotonic() + 3 * LEASE_S
    budget = _budget(on)
    while budget["reservedMinor"] != "0" and time.monotonic() < ends_at:
        time.sleep(LOOK_S)
        budget = _budget(on)
    entries = on.site.answer("GET", f"/budgets/{budget['id']}/entries", {"limit": 500})["entries"]
    settled = sum(int(e["amountMinor"]) for e in entries if e["kind"] == "settle")
    return {**budget, "ledger": settled}


def _budget(on: Stage) -> dict[str, Any]:
    return dict(on.site.answer("GET", "/budgets")["budgets"][0])


def _tell(teller: Teller, seen: Seen) -> None:
    acts = [(seen.killed_at, seen.victim, "SIGKILL, with a browser open")]
    acts += [
        (seen.killed_at + s, "browser", f"of {seen.victim} is back after {s:.1f} s")
        for s in seen.back_after_s
    ]
    acts += [
        (t.at, t.who, f"renders {t.facts['page']} again, attempt {t.facts['attempt']}") for t in seen.again
    ]
    for at, who, what in sorted(acts):
        teller.say(f"   {at - teller.began_at:6.1f} s  {who:<10} {what}")
    teller.say("")


def _claims(seen: Seen) -> list[Claim]:
    spent = int(seen.money["settledMinor"])
    return [
        Claim(f"all {PAGES} pages were rendered", [t["state"] for t in seen.tasks] == ["SUCCEEDED"] * PAGES),
        Claim(
            f"never more than {BROWSERS} browsers were out, and at times all of them",
            seen.most_lent == BROWSERS,
        ),
        Claim(f"no minute had more than {SEARCHES} searches", 0 < max(seen.searches.values()) <= SEARCHES),
        Claim(
            f"{spent / 100:.2f} of {CENTS / 100:.2f} USD were spent: {PAGES} times {COST} cents, to the cent",
            spent == PAGES * COST == seen.money["ledger"] and seen.money["reservedMinor"] == "0",
        ),
        Claim(
            f"{seen.victim} was killed with a browser, which was back within its lease of {LEASE_S} s",
            bool(seen.back_after_s) and all(0 <= s <= LEASE_S + 1.5 for s in seen.back_after_s),
        ),
        Claim("what it had under way was rendered by others, attempt 2", bool(seen.again)),
    ]
