"""Waits, who holds what is waited for, and who waits for each other in a circle."""

from collections import defaultdict
from dataclasses import dataclass, field

from runstate_server.foundation import bounds

Who = tuple[str, str | None]  # holder and session: one process, as far as is known here


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds what is waited for, and until when."""

    holder: str
    session: str
    lease_expires_at: str

    @property
    def who(self) -> Who:
        """As a waiter is known, too."""
        return self.holder, self.session


@dataclass(slots=True)
class Wait:
    """One wait with what blocks it. said: a sentence for people. stuck: false where the one who waits does
    other things meanwhile, as a worker that asks for more work does: such a wait is in no circle."""

    kind: str
    resource: str
    units: int | None
    who: Who | None
    scope_id: str
    since: str
    said: str
    blocked_by: list[Holder] = field(default_factory=list)
    stuck: bool = True
    cycle: list[str] | None = None

    @property
    def why(self) -> str:
        """The sentence, with the circle."""
        said = self.said
        if self.stuck and self.who in [h.who for h in self.blocked_by]:
            said += ", which is the one who waits" if len(self.blocked_by) == 1 else "; one is who waits"
        if self.cycle is not None:
            circle = ", who waits for ".join(f'"{name}"' for name in [*self.cycle, self.cycle[0]])
            said += "; a circle: " + circle.replace(", who waits", " waits", 1)
        return said


def know_sessions(found: list[Wait]) -> None:
    """Who stands in a line gives a name and no session. It is the one process of that name that is told of
    here; if there are several, nobody knows which, and it stays so."""
    sessions: dict[str, set[str]] = defaultdict(set)
    for wait in found:
        if wait.who is not None and wait.who[1] is not None:
            sessions[wait.who[0]].add(wait.who[1])
        for held in wait.blocked_by:
            sessions[held.holder].add(held.session)
    for wait in found:
        if wait.who is not None and wait.who[1] is None and len(sessions[wait.who[0]]) == 1:
            wait.who = (wait.who[0], next(iter(sessions[wait.who[0]])))


def find_cycles(found: list[Wait]) -> None:
    """Name in each wait the shortest circle of holders that it closes, beginning with its own, of 50 at most.
    One that waits for itself is no circle: holder and session are a process, which may do several
    things at a time."""
    ways: dict[Who, set[Who]] = defaultdict(set)
    for wait in found:
        if wait.who is not None and wait.stuck:
            ways[wait.who] |= {h.who for h in wait.blocked_by} - {wait.who}
    _take_away_what_leads_nowhere(ways)
    waited_for = set().union(*ways.values())
    for wait in found:
        if wait.stuck and wait.who in ways and wait.who in waited_for:
            circles = [_way(ways, h.who, wait.who) for h in wait.blocked_by if h.who != wait.who]
            known = [circle for circle in circles if circle is not None]
            if known:
                shortest = min(known, key=len)
                wait.cycle = [wait.who[0], *(holder for holder, _ in shortest[:-1])]


def _take_away_what_leads_nowhere(ways: dict[Who, set[Who]]) -> None:
    """Those who wait for somebody who waits for nobody, and so on: as a rule nothing is left."""
    waiting: dict[Who, set[Who]] = defaultdict(set)
    for who, targets in ways.items():
        for target in targets:
            waiting[target].add(who)
    ends = [who for who in {*ways, *waiting} if not ways.get(who)]
    while ends:
        end = ends.pop()
        ways.pop(end, None)
        for who in waiting[end]:
            ways[who].discard(end)
            if not ways[who]:
                ends.append(who)


def _way(ways: dict[Who, set[Who]], start: Who, end: Who) -> list[Who] | None:
    """The shortest way from one to the other, both included; None when there is none, or none so short."""
    came_from: dict[Who, Who | None] = {start: None}
    edge = [start] if start in ways else []
    for _ in range(bounds.circle_holders_max):
        if end in came_from:
            way = [end]
            while (before := came_from[way[-1]]) is not None:
                way.append(before)
            return way[::-1]
        steps = [(there, here) for here in edge for there in sorted(ways[here], key=str)]
        edge = []
        for there, here in steps:
            if there not in came_from:
                came_from[there] = here
                edge.append(there)
    return None
