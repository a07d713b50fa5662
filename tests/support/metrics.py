"""What a replica says of itself on /metrics."""

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support import races
from tests.support.processes import Replica


@dataclass(frozen=True)
class Metrics:
    """Every sample of one scrape."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    @classmethod
    def of(cls, replica: Replica) -> "Metrics":
        """Scrape that replica now."""
        text = httpx.get(f"{replica.url}/metrics", timeout=10, trust_env=False).text
        families = text_string_to_metric_families(text)
        return cls({(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples})

    def value(self, name: str, **labels: str) -> float:
        """One sample; nothing counted yet is 0."""
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def woken(self, by: str) -> float:
        """Long polls woken by this cause since the process began."""
        return self.value("runstate_wakeups_total", by=by)

    @property
    def open_polls(self) -> float:
        """Long polls that have subscribed; they may still be looking."""
        return self.value("runstate_open_polls")

    @property
    def looking(self) -> bool:
        """Whether any call is in the database."""
        return self.value("runstate_pool_idle") < self.value("runstate_pool_connections")


def crashed(replica: Replica) -> str:
    """The log from the first crash on, if any call of that replica ended in a 500."""
    log = replica.log()
    fives = any(n and ("status", "500") in labels for (_, labels), n in Metrics.of(replica).samples.items())
    return log[log.find("a request crashed") :][:4000] or "no log of it" if fives else ""


def until_polls(replica: Replica, count: int) -> Metrics:
    """Wait until exactly that many long polls are open in that replica, all of them asleep.
    Two looks: a poll that had just subscribed at the first is in the database, or asleep, by the second."""

    def look() -> Metrics | None:
        once, again = Metrics.of(replica), Metrics.of(replica)
        asleep = once.open_polls == again.open_polls == count and not again.looking
        return again if asleep else None

    return races.until_blocking(look, what=f"{count} long polls asleep")
