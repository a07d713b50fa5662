"""What the server says of a storm, beside what its callers say."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support import database
from tests.support.site import Event, Site

NUMBERS = "SELECT num FROM runstate.journal WHERE space_id = $1 ORDER BY num"


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

    def text(self, good: str = "Exactly one recorded result per key, and every caller got it.") -> str:
        width = max(len(name) for name, _ in self.lines)
        told = [f"{name:<{width}}  {value}" for name, value in self.lines]
        wrong = [f"WRONG: {what}" for what in self.wrong]
        return "\n".join([*told, "", *(wrong or [good])])


@dataclass(frozen=True)
class Record:
    """What the server has kept: GET /once of every key, the events of keys, the numbers of all events."""

    views: dict[str, dict[str, Any]]
    events: list[Event]
    numbers: list[int]


def read(site: Site, run_id: str, keys: set[str]) -> Record:
    """Ask the server for everything, key by key and from the journal's table."""
    views = {key: site.once(run_id, key) for key in sorted(keys)}
    events = site.once_events()
    numbers = [row["num"] for row in database.fetch(site.postgres.url, NUMBERS, site.space.id)]
    return Record(views, events, numbers)


def judge(record: Record, counts: Counts, *, all_answered: bool) -> Verdict:
    """Compare what the server has kept with what its callers say."""
    views = record.views
    completed = Counter(event.key for event in record.events if event.type == "once.completed")
    acquired = Counter(event.key for event in record.events if event.type == "once.acquired")
    recorded = Counter(completed[key] if views[key]["state"] == "DONE" else 0 for key in views)
    apart = _disagreements(views, counts.answers)
    gapless = record.numbers == list(range(1, len(record.numbers) + 1))
    per_key = ", ".join(f"{results} for {keys} keys" for results, keys in sorted(recorded.items()))
    ran, granted = counts.executions, acquired.total()
    return Verdict(
        lines=[
            ("keys asked for", str(len(views))),
            ("recorded results per key", per_key),
            ("answers to callers", f"{len(counts.answers)}, {apart} of them other than the recorded result"),
            ("executions", f"{ran} by the callers' word, {granted} leases granted by the journal's"),
            ("takeovers", str(sum(times - 1 for times in acquired.values()))),  # nothing fails here
            ("owners killed, paused", f"{counts.owners_killed}, {counts.owners_paused}"),
            ("servers killed", str(counts.servers_killed)),
            ("client-visible errors", _errors(counts)),
            ("journal", f"{len(record.numbers)} events, {'1..N without a gap' if gapless else 'NOT 1..N'}"),
        ],
        wrong=[
            what
            for what, is_so in {
                "a key has other than exactly one recorded result": set(recorded) != {1},
                "callers of one key disagree": apart > 0,
                "a caller never got its answer": not all_answered,
                "there are results of keys that nobody asked for": not set(completed) <= set(views),
                "the function ran more often than leases were granted": ran > granted,
                "the journal has a gap": not gapless,
            }.items()
            if is_so
        ],
    )


def _errors(counts: Counts) -> str:
    told = ", ".join(f"{many} {error}" for error, many in sorted(counts.errors.items())) or "none"
    return f"{told} ({counts.owners_paused} owners were paused past their lease)"


def _disagreements(views: dict[str, dict[str, Any]], answers: list[tuple[str, Any]]) -> int:
    return sum("result" not in views[key] or report != views[key]["result"] for key, report in answers)
