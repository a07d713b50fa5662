"""The rules of once in pure Python: the oracle of the state machine. Times as in the model of scopes."""

from dataclasses import dataclass, field
from typing import Any

from tests.primitives.scopes.model import ACTIVE, Refused, Scope, Scopes

OPEN, HELD, DONE, FAILED = "OPEN", "HELD", "DONE", "FAILED"


@dataclass
class Key:
    """One key as it is stored; a lease that has lapsed stays HELD until somebody notices."""

    state: str = OPEN
    attempts: int = 0
    holder: str | None = None
    token: str | None = None
    expires_at: float = 0
    result: Any = None
    last_error: str | None = None

    def is_held(self, now: float) -> bool:
        """Whether a lease is alive."""
        return self.state == HELD and self.expires_at > now

    def let_go(self) -> None:
        """The lease is over, however it ended."""
        self.holder = self.token = None


@dataclass
class OnceKeys:
    """All keys of one space, and the events their changes write: (type, key, reason or None)."""

    scopes: Scopes = field(init=False)
    all: dict[tuple[Scope, str], Key] = field(default_factory=dict)
    events: list[tuple[str, str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scopes = Scopes(end_contents=self._end)

    def acquire(
        self, now: float, scope: Scope, key: str, *, holder: str, lease_s: float, token: str | None
    ) -> dict[str, Any]:
        """`token` is the one the server would hand out."""
        self.scopes.refuse_ended(now, scope)
        row = self.all.setdefault((scope, key), Key())
        if row.state in {DONE, FAILED} or row.is_held(now):
            return self._answer(row)
        if row.state == HELD:
            self.events.append(("once.lapsed", key, "lease_expired"))
        row.state, row.holder, row.token, row.expires_at = HELD, holder, token, now + lease_s
        self.events.append(("once.acquired", key, None))
        answer = {"state": "ACQUIRED", "attempts": row.attempts, "token": token}
        return answer | {"leaseExpiresAt": row.expires_at}

    def view(self, now: float, scope: Scope, key: str) -> dict[str, Any]:
        """GET /once."""
        row = self.all.get((scope, key), Key())
        if row.state in {DONE, FAILED}:
            return self._answer(row)
        error = {} if row.last_error is None else {"lastError": row.last_error}
        if row.is_held(now) and scope.effective(now) == ACTIVE:
            return self._answer(row) | {"holder": row.holder} | error
        return {"state": OPEN, "attempts": row.attempts} | error

    def renew(self, now: float, scope: Scope, key: str, *, token: str, lease_s: float) -> dict[str, Any]:
        """POST /once/renew."""
        row = self._owned(now, scope, key, token)
        row.expires_at = max(row.expires_at, now + lease_s)
        return {"leaseExpiresAt": row.expires_at}

    def complete(self, now: float, scope: Scope, key: str, *, token: str, result: Any) -> dict[str, Any]:
        """POST /once/complete."""
        row = self._owned(now, scope, key, token)
        row.state, row.result, row.last_error = DONE, result, None
        row.let_go()
        self.events.append(("once.completed", key, None))
        return {"state": DONE}

    def fail(
        self, now: float, scope: Scope, key: str, *, token: str, error: str, max_attempts: int
    ) -> dict[str, Any]:
        """POST /once/fail."""
        row = self._owned(now, scope, key, token)
        row.attempts += 1
        row.state = FAILED if row.attempts >= max_attempts else OPEN
        row.last_error = error
        row.let_go()
        self.events.append(("once.failed", key, None))
        return {"state": row.state, "attempts": row.attempts}

    def sweep(self, now: float) -> None:
        """The sweep of lapsed leases."""
        for (_, key), row in self.all.items():
            if row.state == HELD and not row.is_held(now):
                self._lapse(key, row, "lease_expired")

    def _owned(self, now: float, scope: Scope, key: str, token: str) -> Key:
        self.scopes.refuse_ended(now, scope)
        row = self.all.get((scope, key))
        if row is None or row.token != token or not row.is_held(now):
            raise Refused("STALE_CLAIM")
        return row

    def _end(self, scopes: list[Scope], reason: str) -> None:
        for (scope, key), row in self.all.items():
            if scope in scopes and row.state == HELD:
                self._lapse(key, row, reason)

    def _lapse(self, key: str, row: Key, reason: str) -> None:
        row.state = OPEN
        row.let_go()
        self.events.append(("once.lapsed", key, reason))

    @staticmethod
    def _answer(row: Key) -> dict[str, Any]:
        answer: dict[str, Any] = {"state": row.state, "attempts": row.attempts}
        if row.state == DONE:
            answer["result"] = row.result
        elif row.state == FAILED:
            answer["lastError"] = row.last_error
        else:
            answer["leaseExpiresAt"] = row.expires_at
        return answer
