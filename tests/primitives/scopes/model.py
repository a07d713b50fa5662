"""The rules of scopes and runs in pure Python: the oracle of the state machine.

Time is a number of seconds that only the test moves. What the server stores and what is true may differ: a
deadline that has passed is true at once and stored by whoever notices it first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

ACTIVE, CANCELLED, COMPLETED, EXPIRED = "ACTIVE", "CANCELLED", "COMPLETED", "EXPIRED"
DEPTH_MAX = 32


class Refused(Exception):  # noqa: N818 (an answer, not an error)
    """A refusal with its code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False)
class Scope:
    """One scope. `written` is the effective state as stored."""

    name: str | None
    run_name: str | None
    parent: "Scope | None"
    deadline: float | None
    child_limit: int
    children: int = 0
    stored: str = ACTIVE
    written: str = ACTIVE
    version: int = 1
    id: str = ""

    @property
    def chain(self) -> list["Scope"]:
        """From the root to this scope."""
        return [*(self.parent.chain if self.parent else []), self]

    @property
    def root(self) -> "Scope":
        """The run."""
        return self.chain[0]

    @property
    def depth(self) -> int:
        """0 for a root."""
        return len(self.chain) - 1

    def effective(self, now: float) -> str:
        """What the whole chain says."""
        if self.written != ACTIVE:
            return self.written
        deadlines = [s.deadline for s in self.chain if s.deadline is not None]
        return EXPIRED if deadlines and min(deadlines) <= now else ACTIVE


@dataclass
class Scopes:
    """All scopes of one space, and the events their changes write."""

    end_contents: Callable[[list[Scope], str], None]
    all: list[Scope] = field(default_factory=list)
    events: list[tuple[str, Scope]] = field(default_factory=list)

    def create(self, now: float, *, parent: Scope | None, deadline: float | None, child_limit: int) -> Scope:
        """POST /scopes."""
        if parent is not None:
            self.refuse_ended(now, parent)
            if parent.depth >= DEPTH_MAX or parent.children >= parent.child_limit:
                raise Refused("CONFLICT")
            parent.children += 1
        return self._add(Scope(None, None, parent, deadline, child_limit))

    def ensure_run(self, now: float, name: str, deadline: float | None) -> Scope:
        """PUT /runs/{name}."""
        found = next((s for s in self.all if s.run_name == name and s.stored == ACTIVE), None)
        if found is not None:
            if found.effective(now) == ACTIVE:
                return found
            self._write_due(now, found)
        return self._add(Scope(name, name, None, deadline, 1000))

    def end(self, now: float, scope: Scope, state: str) -> dict[str, object]:
        """POST /scopes/{id}/cancel or complete."""
        self._write_due(now, scope.root)
        if scope.written == ACTIVE:
            self._mark(scope, state)
        elif scope.written != state:
            raise Refused("CONFLICT")
        return {"state": state, "version": scope.version}

    def refuse_ended(self, now: float, scope: Scope) -> None:
        """What a mutation in the scope is refused with; a deadline found passed is written."""
        state = scope.effective(now)
        if state == EXPIRED:
            if scope.written == ACTIVE:
                self._write_due(now, scope.root)
            raise Refused("DEADLINE_EXCEEDED")
        if state != ACTIVE:
            raise Refused("SCOPE_CANCELLED")

    def sweep(self, now: float) -> None:
        """The sweep of deadlines that have passed."""
        for scope in list(self.all):
            if scope.parent is None:
                self._write_due(now, scope)

    def _add(self, scope: Scope) -> Scope:
        self.all.append(scope)
        self.events.append(("scope.created", scope))
        return scope

    def _write_due(self, now: float, root: Scope) -> None:
        due = [s for s in self.all if s.root is root and s.deadline is not None and s.deadline <= now]
        for scope in sorted(due, key=lambda s: (s.deadline, s.depth)):
            if scope.written == ACTIVE:
                self._mark(scope, EXPIRED)

    def _mark(self, scope: Scope, state: str) -> None:
        scope.stored = scope.written = state
        scope.version += 1
        subtree = [s for s in self.all if scope in s.chain]
        for below in subtree:
            if below.written == ACTIVE:
                below.written = state
        self.end_contents(subtree, f"scope_{state.lower()}")
        self.events.append((f"scope.{state.lower()}", scope))
