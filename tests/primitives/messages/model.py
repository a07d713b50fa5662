"""The rules of mailboxes, messages and tasks in pure Python: the oracle of the state machine.

Times as in the model of scopes. What is stored and what is true differ as there: a lease that has lapsed
and a deadline that has passed are true at once, and stored by whoever notices first.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.primitives.scopes.model import ACTIVE, EXPIRED, Refused, Scope, Scopes

TASK_STATES = {"READY": "QUEUED", "LEASED": "RUNNING", "ACKED": "SUCCEEDED", "DEAD": "FAILED"}
REASONS = {"CANCELLED": "scope_cancelled", "COMPLETED": "scope_completed", EXPIRED: "deadline"}


@dataclass(eq=False)
class Box:
    """One mailbox."""

    name: str
    inbox: bool
    max_attempts: int
    backlog_limit: int | None
    id: str = ""


@dataclass(eq=False)
class Message:
    """One message or task; `stored` is READY or LEASED while it is unsettled. Delivered is what is
    deliverable: of a line of an INBOX only the head."""

    number: int
    box: Box
    scope: Scope
    payload: Any
    task_key: str | None
    work_key: str | None
    priority: int
    deadline: float | None
    available_at: float
    stored: str = "READY"
    deliverable: bool = True
    attempt: int = 0
    holder: str = ""
    token: str = ""
    lease_s: float = 0
    expires_at: float = 0
    outcome: Any = None
    reason: str | None = None
    last_error: str | None = None
    subscribers: set[str] = field(default_factory=set)
    id: str = ""

    @property
    def rank(self) -> int:
        """Lower comes first."""
        return 0 if self.box.inbox else -self.priority

    @property
    def unsettled(self) -> bool:
        """Whether anything may still become of it by itself."""
        return self.stored in {"READY", "LEASED"}

    def end_at(self, now: float) -> str | None:
        """The reason that ends it, if its scope or its deadline does."""
        state = self.scope.effective(now)
        if state != ACTIVE:
            return REASONS[state]
        return "deadline" if self.deadline is not None and self.deadline <= now else None

    def state(self, now: float) -> str:
        """What is true at that instant."""
        if not self.unsettled:
            return self.stored
        reason = self.end_at(now)
        if reason == "deadline" or (self.deadline is not None and self.deadline <= now):
            return EXPIRED
        if reason is not None:
            return "CANCELLED"
        return "LEASED" if self.stored == "LEASED" and self.expires_at > now else "READY"

    def task_state(self, now: float) -> str:
        """The same in the words of tasks."""
        state = self.state(now)
        return TASK_STATES.get(state, state)

    def view(self, now: float) -> dict[str, Any]:
        """GET /tasks/{id}, without its times."""
        reason = self.reason
        if self.unsettled:
            reason = {EXPIRED: "deadline", "CANCELLED": self.end_at(now)}.get(self.state(now))
        return {
            "id": self.id,
            "state": self.task_state(now),
            "attempt": self.attempt,
            "maxAttempts": self.box.max_attempts,
            "input": self.payload,
            "outcome": self.outcome,
            "outcomeReason": reason,
            "priority": self.priority,
            "subscribers": len(self.subscribers),
        }


@dataclass
class Queues:
    """All mailboxes and messages of one space, and the events their changes write: (type, id)."""

    scopes: Scopes = field(init=False)
    all: list[Message] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    now: float = 0
    ticks: int = 0

    def __post_init__(self) -> None:
        self.scopes = Scopes(end_contents=self._end_contents)

    def at(self, now: float) -> "Queues":
        """Calls come one after another, also within what the model calls one instant."""
        self.now = now
        self.ticks += 1
        return self

    @property
    def _moment(self) -> float:
        return self.now + self.ticks / 1000

    # Send and submit

    def send(self, box: Box, scope: Scope, *, message_id: str, work_key: str | None, **more: Any) -> Message:
        """The new message, or the first with that key."""
        self.scopes.refuse_ended(self.now, scope)
        found = [m for m in self._of(box, scope) if work_key is not None and m.work_key == work_key]
        return found[0] if found else self._add(box, scope, message_id, work_key=work_key, **more)

    def submit(self, box: Box, scope: Scope, *, message_id: str, task_key: str, **more: Any) -> Message:
        """The new task, or the first with that key."""
        self.scopes.refuse_ended(self.now, scope)
        found = [m for m in self._of(box, scope) if m.task_key == task_key]
        return found[0] if found else self._add(box, scope, message_id, task_key=task_key, **more)

    def _add(
        self,
        box: Box,
        scope: Scope,
        message_id: str,
        *,
        payload: Any,
        priority: int,
        delay_s: float,
        deadline: float | None,
        task_key: str | None = None,
        work_key: str | None = None,
    ) -> Message:
        waiting = sum(m.box is box and m.stored == "READY" for m in self.all)
        if box.backlog_limit is not None and waiting >= box.backlog_limit:
            raise Refused("BACKLOG_FULL")
        made = Message(
            len(self.all),
            box,
            scope,
            payload,
            task_key,
            work_key,
            priority,
            deadline,
            self._moment + delay_s,
            id=message_id,
        )
        made.deliverable = not box.inbox or self._head(made) is None
        self.all.append(made)
        self._tell(made, "message.sent", "task.submitted")
        return made

    # Take

    def take(
        self, box: Box, scope: Scope, *, below: bool, tasks_only: bool, count: int, lease_s: float
    ) -> list[Message]:
        """What is delivered; holder and token are the caller's to note."""
        self.scopes.refuse_ended(self.now, scope)
        for m in [m for m in self.all if m.box is box and m.scope.root is scope.root]:
            self._review(m)
        taken: list[Message] = []
        while len(taken) < count and (m := self._next(box, scope, below=below, tasks_only=tasks_only)):
            reason = m.end_at(self.now)
            if reason is not None:
                self._settle(m, EXPIRED if reason == "deadline" else "CANCELLED", reason=reason)
                continue
            m.stored, m.attempt, m.lease_s = "LEASED", m.attempt + 1, lease_s
            m.expires_at = self.now + lease_s
            self._tell(m, "message.delivered", "task.started")
            taken.append(m)
        return taken

    def _next(self, box: Box, scope: Scope, *, below: bool, tasks_only: bool) -> Message | None:
        waiting = [
            m
            for m in self.all
            if m.box is box
            and m.stored == "READY"
            and m.deliverable
            and m.available_at <= self._moment
            and (m.scope is scope or (below and scope in m.scope.chain))
            and (m.task_key is not None or not tasks_only)
        ]
        return min(waiting, key=lambda m: (m.rank, m.available_at, m.number), default=None)

    def _review(self, m: Message) -> None:
        """What becomes of a delivery whose time may be over."""
        if m.stored != "LEASED":
            return
        reason = m.end_at(self.now)
        if reason is not None:
            self._settle(m, EXPIRED if reason == "deadline" else "CANCELLED", reason=reason)
        elif m.expires_at <= self.now:
            if m.attempt >= m.box.max_attempts:
                self._settle(m, "DEAD", reason="lease_expired")
            else:
                self._put_back(m, "message.lapsed", self._moment)

    # Settle

    def renew(self, m: Message, token: str, lease_s: float | None) -> dict[str, Any]:
        """POST /messages/{id}/renew."""
        self._owned(m, token)
        m.expires_at = max(m.expires_at, self.now + (lease_s or m.lease_s))
        return {"leaseExpiresAt": float(m.expires_at)}

    def complete(self, m: Message, token: str, outcome: Any) -> dict[str, Any]:
        """POST /messages/{id}/complete."""
        self._owned(m, token)
        if m.task_key is not None:
            m.outcome = outcome
        self._settle(m, "ACKED")
        return {"state": "ACKED"}

    def nack(
        self, m: Message, token: str, *, retry: bool, error: str | None, delay_s: float, hand_back: bool
    ) -> dict[str, Any]:
        """POST /messages/{id}/nack, always with a delay."""
        self._owned(m, token)
        if hand_back:
            m.attempt -= 1
            self._put_back(m, "message.retried", self._moment)
        elif retry and m.attempt < m.box.max_attempts:
            m.last_error = error or m.last_error
            self._put_back(m, "message.retried", self._moment + delay_s)
        else:
            m.last_error = error or m.last_error
            why = "attempts_exhausted" if retry else "rejected"
            self._settle(m, "DEAD", reason=why if error is None else f"handler_error: {error}")
            return {"state": "DEAD", "attempt": m.attempt}
        return {"state": "READY", "attempt": m.attempt, "availableAt": m.available_at}

    def redrive(self, m: Message) -> dict[str, Any]:
        """POST /messages/{id}/redrive."""
        self.scopes.refuse_ended(self.now, m.scope)
        if m.stored != "DEAD":
            raise Refused("CONFLICT")
        m.attempt, m.reason = 0, None
        self._put_back(m, "message.retried", self._moment)
        return {"state": "READY"}

    def cancel(self, m: Message, reason: str | None) -> dict[str, Any]:
        """POST /tasks/{id}/cancel."""
        if m.task_state(self.now) in {"QUEUED", "RUNNING"}:
            self._settle(m, "CANCELLED", reason=reason or "cancelled")
        return m.view(self.now)

    def sweep(self, now: float) -> None:
        """The sweep of lapses and deadlines."""
        self.at(now)
        for m in self.all:
            self._review(m)
        for m in self.all:
            passed = [s.deadline for s in m.scope.chain] + [m.deadline]
            if m.stored == "READY" and any(d is not None and d <= now for d in passed):
                reason = m.end_at(now) or "deadline"
                self._settle(m, EXPIRED if reason == "deadline" else "CANCELLED", reason=reason)

    def _owned(self, m: Message, token: str) -> None:
        self.scopes.refuse_ended(self.now, m.scope.root)
        alive = m.stored == "LEASED" and m.token == token and m.expires_at > self.now
        if not alive or m.end_at(self.now) is not None:
            raise Refused("STALE_CLAIM")

    # The line of a scope in an INBOX

    def _of(self, box: Box, scope: Scope) -> list[Message]:
        return [m for m in self.all if m.box is box and m.scope is scope]

    def _head(self, m: Message) -> Message | None:
        """Who stands at the head of its line, if anybody does."""
        line = [o for o in self._of(m.box, m.scope) if o is not m and o.unsettled and o.deliverable]
        return line[0] if line else None

    def _put_back(self, m: Message, event: str, available_at: float) -> None:
        m.stored, m.available_at = "READY", available_at
        m.deliverable = not m.box.inbox or self._head(m) is None
        self._tell(m, event, "task.retried")

    def _settle(self, m: Message, state: str, *, reason: str | None = None) -> None:
        m.stored = state
        if m.task_key is not None:
            m.reason = reason
        waiting = [o for o in self._of(m.box, m.scope) if o.stored == "READY"]
        if m.box.inbox and m.scope.written == ACTIVE and self._head(m) is None and waiting:
            waiting[0].deliverable = True
        word = {"ACKED": "acked", "DEAD": "dead", EXPIRED: "expired"}.get(state)
        task = {"ACKED": "succeeded", "DEAD": "failed", EXPIRED: "expired"}.get(state, "cancelled")
        self._tell(m, word and f"message.{word}", f"task.{task}")

    def _end_contents(self, scopes: list[Scope], reason: str) -> None:
        for m in self.all:
            if m.scope in scopes and m.unsettled:
                expired = reason == "scope_expired" or (m.deadline is not None and m.deadline <= self.now)
                state = EXPIRED if expired else "CANCELLED"
                self._settle(m, state, reason="deadline" if expired else reason)

    def _tell(self, m: Message, message: str | None, task: str) -> None:
        event = task if m.task_key is not None else message
        if event is not None:
            self.events.append((event, m.id))
