"""What the server says of a storm, beside what its callers say."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support import database
from tests.support.site import Event, Site

NUMBERS = (
    "SELECT count(*) AS count, max(num) AS last, min(num) AS first FROM runstate.journal WHERE space_id = $1"
)


@dataclass
class Counts:
    """What was done and seen; the verdict adds what the server says."""

    owners_killed: int = 0
    servers_killed: int = 0
    owners_paused: int = 0
    executions: int = 0
    answers: list[tuple[str, Any]] = field(default_factory=list)  # key, report
    errors: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)


@dataclass
class Verdict:
    """The counts as lines, and what is wrong."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong

    def text(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        told = [f"{name:<{width}}  {value}" for name, value in self.lines]
        return "\n".join([*told, "", *(f"WRONG: {what}" for what in self.wrong)]) + (
            "exactly one recorded result per key, and every caller got it" if self.good else ""
        )


def judge(site: Site, run_id: str, counts: Counts, *, all_answered: bool) -> Verdict:
    """Read every key from the server (GET /once), its events from the journal, and compare."""
    views = {key: site.once(run_id, key) for key in sorted(counts.keys)}
    events = site.once_events()
    verdict = Verdict()
    completed = Counter(event.key for event in events if event.type == "once.completed")
    recorded = Counter(completed[key] if views[key]["state"] == "DONE" else 0 for key in views)
    took_over, acquired = _takeovers(events)
    apart = _disagreements(views, counts.answers)
    numbers = database.fetch(site.postgres.url, NUMBERS, site.space.id)[0]
    gapless = (numbers["first"], numbers["last"]) == (1, numbers["count"])
    verdict.lines = [
        ("keys asked for", str(len(views))),
        (
            "recorded results per key",
            ", ".join(f"{n} for {many} keys" for n, many in sorted(recorded.items())),
        ),
        ("answers to callers", f"{len(counts.answers)}, {apart} of them other than the recorded result"),
        (
            "executions",
            f"{counts.executions} by the callers' word, {acquired} leases granted by the journal's",
        ),
        ("takeovers", str(took_over)),
        ("owners killed, paused", f"{counts.owners_killed}, {counts.owners_paused}"),
        ("servers killed", str(counts.servers_killed)),
        ("client-visible errors", _errors(counts)),
        ("journal", f"{numbers['count']} events, {'1..N without a gap' if gapless else 'NOT 1..N'}"),
    ]
    verdict.wrong = _wrong(recorded, apart, all_answered=all_answered, gapless=gapless)
    if set(completed) - set(views):
        verdict.wrong.append("there are results of keys that nobody asked for")
    if counts.executions > acquired:
        verdict.wrong.append("the function ran more often than leases were granted")
    return verdict


def _errors(counts: Counts) -> str:
    told = ", ".join(f"{many} {error}" for error, many in sorted(counts.errors.items())) or "none"
    return f"{told} ({counts.owners_paused} owners were paused past their lease)"


def _wrong(recorded: Counter[int], apart: int, *, all_answered: bool, gapless: bool) -> list[str]:
    wrong = []
    if set(recorded) != {1}:
        wrong.append("a key has other than exactly one recorded result")
    if apart:
        wrong.append("callers of one key disagree")
    if not all_answered:
        wrong.append("a caller never got its answer")
    if not gapless:
        wrong.append("the journal has a gap")
    return wrong


def _takeovers(events: list[Event]) -> tuple[int, int]:
    """How often a key was acquired anew after a lapse, and how often at all. Nothing fails in this storm."""
    acquired = Counter(event.key for event in events if event.type == "once.acquired")
    return sum(times - 1 for times in acquired.values()), acquired.total()


def _disagreements(views: dict[str, dict[str, Any]], answers: list[tuple[str, Any]]) -> int:
    return sum("result" not in views[key] or report != views[key]["result"] for key, report in answers)
