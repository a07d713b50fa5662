"""The rules of task groups in pure Python: the oracle of the state machine. Times as in the model of scopes.

Tasks are as much of tasks as groups see: they wait, or are over. What is stored and what is true may differ:
a member that has ended elsewhere, or a deadline that has passed, is noticed by whoever looks first.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.primitives.scopes.model import ACTIVE, EXPIRED, Refused, Scope, Scopes

REASONS = {"CANCELLED": "scope_cancelled", "COMPLETED": "scope_completed", EXPIRED: "deadline"}


@dataclass(eq=False)
class Task:
    """One task."""

    id: str
    key: str
    scope: Scope
    state: str = "QUEUED"

    def seen(self, now: float) -> str:
        """Its state: the scope is the truth while it waits."""
        over = self.scope.effective(now)
        if self.state != "QUEUED" or over == ACTIVE:
            return self.state
        return "EXPIRED" if over == EXPIRED else "CANCELLED"


@dataclass(eq=False)
class Group:
    """One group as it is stored; `verdicts` by task, in the order of joining."""

    id: str
    scope: Scope
    condition: str
    threshold: int | None
    expected: int | None
    deadline: float | None
    created: float
    state: str = "OPEN"
    outcome: str | None = None
    reason: str | None = None
    finalized: float | None = None
    noticed: bool = False
    verdicts: dict[Task, str | None] = field(default_factory=dict)

    def stands(self, now: float) -> tuple[str, str | None, str | None]:
        """(state, outcome, reason): finalized by the end of its scope, whoever writes that."""
        over = self.scope.effective(now)
        if over == ACTIVE or self.state == "FINALIZED":
            return self.state, self.outcome, self.reason
        return "FINALIZED", "FAILURE", REASONS[over]

    def closed(self, now: float) -> dict[str, Any]:
        """What close answers."""
        return dict(zip(("state", "outcome", "outcomeReason"), self.stands(now), strict=True))

    def judged(self, now: float, verdict: str, *, late: bool) -> dict[str, Any]:
        """What a verdict answers."""
        state, outcome, reason = self.stands(now)
        told = {"groupState": state, "outcome": outcome, "outcomeReason": reason}
        return {"verdict": verdict, "late": late} | told

    def counts(self, verdict: str) -> int:
        """How many members have that verdict."""
        return list(self.verdicts.values()).count(verdict)


@dataclass
class Groups:
    """All groups and tasks of one space, and the events their changes write: (type, id)."""

    scopes: Scopes = field(init=False)
    all: list[Group] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.scopes = Scopes(end_contents=self._end)

    def create(self, now: float, parent: Scope, **more: Any) -> Group:
        """POST /task-groups."""
        self.scopes.refuse_ended(now, parent)
        scope = self.scopes._add(Scope(None, None, parent, None, 1000))
        self.all.append(Group("", scope, created=now, **more))
        return self.all[-1]

    def submitted(self, now: float, scope: Scope, key: str) -> tuple[Task, bool]:
        """POST /tasks; the task, and whether it was there."""
        self.scopes.refuse_ended(now, scope)
        known = next((t for t in self.tasks if (t.scope, t.key) == (scope, key)), None)
        if known is not None:
            return known, True
        self.tasks.append(Task("", key, scope))
        return self.tasks[-1], False

    def submit(self, now: float, group: Group, key: str) -> tuple[Task, bool]:
        """POST /task-groups/{id}/tasks."""
        self.scopes.refuse_ended(now, group.scope)
        known = next((t for t in group.verdicts if (t.scope, t.key) == (group.scope, key)), None)
        if known is not None:
            return known, True
        self._refuse_closed(now, group)
        task, replay = self.submitted(now, group.scope, key)
        self._enlist(now, group, task)
        return task, replay

    def join(self, now: float, group: Group, task: Task) -> dict[str, Any]:
        """POST /task-groups/{id}/join-task."""
        self.scopes.refuse_ended(now, group.scope)
        if task not in group.verdicts:
            self._refuse_closed(now, group)
            self._enlist(now, group, task)
        return {"taskId": task.id}

    def end_task(self, now: float, task: Task, state: str) -> None:
        """A task that waits ends; the groups that watch it are decided by the same call."""
        if task.seen(now) == "QUEUED":
            self._over(task, state)
            for group in self.all:
                if task in group.verdicts:
                    self.decide(now, group)

    def judge(self, now: float, group: Group, task: Task, verdict: str) -> dict[str, Any]:
        """accept and reject."""
        if task not in group.verdicts:
            raise Refused("NOT_FOUND")
        given = group.verdicts[task]
        if given == verdict:
            return group.judged(now, verdict, late=False)
        if given is not None:
            raise Refused("CONFLICT")
        if group.stands(now)[0] != "FINALIZED":
            if verdict == "ACCEPTED" and task.seen(now) != "SUCCEEDED":
                raise Refused("CONFLICT")
            if not self._due(now, group):
                group.verdicts[task] = verdict
                self.events.append((f"group.{verdict.lower()}", group.id))
                self.decide(now, group)
                return group.judged(now, verdict, late=False)
            self.decide(now, group)
        return group.judged(now, verdict, late=True)

    def close(self, now: float, group: Group, *, strict: bool) -> dict[str, Any]:
        """close and seal."""
        if group.stands(now)[0] == "FINALIZED" and strict:
            raise Refused("CONFLICT")
        if group.stands(now)[0] == "OPEN":
            self._seal(group)
        self.decide(now, group)
        return group.closed(now)

    def look(self, now: float, group: Group) -> dict[str, Any]:
        """GET /task-groups/{id}."""
        if group.noticed or self._due(now, group):
            self.decide(now, group)
        members = [
            {"taskId": t.id, "taskKey": t.key, "state": t.seen(now), "verdict": verdict}
            for t, verdict in group.verdicts.items()
        ]
        return {
            "id": group.id,
            "condition": group.condition,
            "threshold": group.threshold,
            "expectedMembers": group.expected,
            "members": members,
            "accepted": group.counts("ACCEPTED"),
            "rejected": group.counts("REJECTED"),
            "deadline": group.deadline,
            "createdAt": group.created,
            "finalizedAt": group.finalized,
        } | group.closed(now)

    def sweep(self, now: float) -> None:
        """The sweep of notices and deadlines."""
        for group in self.all:
            if group.noticed or self._due(now, group):
                self.decide(now, group)

    def decide(self, now: float, group: Group) -> None:
        """The outcome, if there is one by now; those of its own that wait are cancelled."""
        group.noticed = False
        outcome = self._reached(now, group)
        if group.stands(now)[0] == "FINALIZED" or outcome is None:
            return
        group.state, (group.outcome, group.reason), group.finalized = "FINALIZED", outcome, now
        self.events.append(("group.finalized", group.id))
        for task in group.verdicts:
            if task.scope is group.scope and task.seen(now) == "QUEUED":
                self._over(task, "CANCELLED")

    def _reached(self, now: float, group: Group) -> tuple[str, str | None] | None:
        states = {task: task.seen(now) for task in group.verdicts}
        possible = [
            t for t, s in states.items() if group.verdicts[t] is None and s in {"QUEUED", "SUCCEEDED"}
        ]
        accepted = group.counts("ACCEPTED")
        sealed = group.state == "SEALED"
        if group.deadline is not None and group.deadline <= now:
            return "FAILURE", "deadline"
        if group.threshold is None:
            return ("SUCCESS", None) if sealed and "QUEUED" not in states.values() else None
        if accepted >= group.threshold:
            return "SUCCESS", None
        if sealed and accepted + len(possible) < group.threshold:
            return "FAILURE", "threshold_unreachable"
        return None

    def _due(self, now: float, group: Group) -> bool:
        return group.state != "FINALIZED" and group.deadline is not None and group.deadline <= now

    def _refuse_closed(self, now: float, group: Group) -> None:
        if group.state == "OPEN" and self._due(now, group):
            self.decide(now, group)
            raise Refused("CONFLICT")
        if group.state != "OPEN":
            raise Refused("CONFLICT")

    def _enlist(self, now: float, group: Group, task: Task) -> None:
        group.verdicts[task] = None
        if len(group.verdicts) == group.expected:
            self._seal(group)
            self.decide(now, group)

    def _seal(self, group: Group) -> None:
        group.state = "SEALED"
        self.events.append(("group.sealed", group.id))

    def _over(self, task: Task, state: str) -> None:
        task.state = state
        self.events.append((f"task.{state.lower()}", task.id))
        for group in self.all:
            group.noticed |= task in group.verdicts and group.state != "FINALIZED"

    def _end(self, scopes: list[Scope], reason: str) -> None:
        expired = reason == "scope_expired"
        for group in self.all:
            if group.scope in scopes and group.state != "FINALIZED":
                due = expired or self._due(self.now, group)
                group.state, group.outcome, group.finalized = "FINALIZED", "FAILURE", self.now
                group.reason = "deadline" if due else reason
                self.events.append(("group.finalized", group.id))
        for task in self.tasks:
            if task.scope in scopes and task.state == "QUEUED":
                self._over(task, "EXPIRED" if expired else "CANCELLED")
