"""The rules of barriers in pure Python: the oracle of the state machine. Times as in the model of scopes."""

from dataclasses import dataclass, field
from typing import Any

from tests.primitives.scopes.model import ACTIVE, Refused, Scope, Scopes


@dataclass(eq=False)
class Barrier:
    """One barrier as it is stored."""

    scope: Scope
    name: str | None
    target: int
    id: str
    state: str = "WAITING"
    epoch: int = 1
    keys: set[str] = field(default_factory=set)

    def seen(self, now: float) -> dict[str, Any]:
        """GET /barriers/{id}."""
        over = self.state == "WAITING" and self.scope.effective(now) != ACTIVE
        return {
            "id": self.id,
            "name": self.name,
            "scopeId": self.scope.id,
            "state": "CANCELLED" if over else self.state,
            "epoch": self.epoch,
            "arrivals": len(self.keys),
            "target": self.target,
        }


@dataclass
class Barriers:
    """All barriers of one space, and the events their changes write: (type, id)."""

    scopes: Scopes = field(init=False)
    all: list[Barrier] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scopes = Scopes(end_contents=self._end)

    def make(self, now: float, scope: Scope, name: str | None, target: int, told_id: str) -> Barrier:
        """POST /barriers and PUT /barriers/by-name; `told_id` is the one the server gave."""
        self.scopes.refuse_ended(now, scope)
        for found in self.all:
            if name is not None and (found.scope, found.name) == (scope, name):
                if found.target != target:
                    raise Refused("CONFLICT")
                return found
        self.all.append(Barrier(scope, name, target, told_id))
        return self.all[-1]

    def arrive(self, now: float, barrier: Barrier, key: str) -> dict[str, Any]:
        """POST /barriers/{id}/arrive."""
        self.scopes.refuse_ended(now, barrier.scope)
        if key not in barrier.keys:
            if barrier.state == "RELEASED":
                raise Refused("BARRIER_RELEASED")
            barrier.keys.add(key)
            self.events.append(("barrier.arrived", barrier.id))
            if len(barrier.keys) == barrier.target:
                barrier.state = "RELEASED"
                self.events.append(("barrier.released", barrier.id))
        return {"state": barrier.state, "arrivals": len(barrier.keys), "epoch": barrier.epoch}

    def reset(self, now: float, barrier: Barrier) -> dict[str, Any]:
        """POST /barriers/{id}/reset."""
        try:
            self.scopes.refuse_ended(now, barrier.scope)
        except Refused:
            if barrier.state != "RELEASED":
                raise Refused("BARRIER_CANCELLED") from None
            raise
        barrier.state, barrier.epoch, barrier.keys = "WAITING", barrier.epoch + 1, set()
        return barrier.seen(now)

    def _end(self, scopes: list[Scope], _reason: str) -> None:
        for barrier in self.all:
            if barrier.scope in scopes and barrier.state == "WAITING":
                barrier.state = "CANCELLED"
                self.events.append(("barrier.cancelled", barrier.id))
