"""The rules of claims in pure Python: the oracle of the state machine. Times as in the model of scopes."""

from dataclasses import dataclass, field
from typing import Any

from tests.primitives.scopes.model import ACTIVE, Refused, Scope, Scopes


@dataclass
class Claim:
    """One key as it is stored; a lease that has lapsed stays held until somebody notices."""

    held: bool = False
    generation: int = 0
    holder: str = ""
    token: str = ""
    lease_s: float = 0
    expires_at: float = 0
    observation: Any = None


@dataclass
class Claims:
    """All claims of one space, and the events their changes write: (type, key)."""

    scopes: Scopes = field(init=False)
    all: dict[tuple[Scope, str], Claim] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scopes = Scopes(end_contents=self._end)

    def acquire(
        self, now: float, scope: Scope, key: str, *, holder: str, lease_s: float, token: str | None
    ) -> dict[str, Any]:
        """`token` is the one the server would hand out."""
        self.scopes.refuse_ended(now, scope)
        row = self.all.get((scope, key))
        if row is not None and row.held and row.expires_at > now:
            raise Refused("CLAIM_HELD")
        row = self.all.setdefault((scope, key), Claim())
        if row.held:
            self.events.append(("claim.lapsed", key))
        row.held, row.generation, row.holder, row.token = True, row.generation + 1, holder, token or ""
        row.lease_s, row.expires_at = lease_s, now + lease_s
        self.events.append(("claim.acquired", key))
        answer = {"key": key, "scopeId": scope.id, "generation": str(row.generation), "token": token}
        return answer | {"leaseExpiresAt": row.expires_at}

    def renew(self, now: float, key: str, *, token: str, lease_s: float | None) -> dict[str, Any]:
        """POST /claims/{key}/renew."""
        found = self._find(key, token)
        if found is not None:
            self.scopes.refuse_ended(now, found[0])
        row = self._owned(now, found)
        row.expires_at = max(row.expires_at, now + (lease_s or row.lease_s))
        return {"leaseExpiresAt": row.expires_at, "generation": str(row.generation)}

    def release(self, now: float, key: str, *, token: str, observation: Any) -> dict[str, Any]:
        """POST /claims/{key}/release; in a scope that has ended the token is stale."""
        row = self._owned(now, self._find(key, token))
        row.held = False
        if observation is not None:
            row.observation = observation
        self.events.append(("claim.released", key))
        return {"released": True}

    def view(self, now: float, scope: Scope, key: str) -> dict[str, Any]:
        """GET /claims/{key}."""
        row = self.all.get((scope, key))
        seen: dict[str, Any] = {"key": key, "scopeId": scope.id, "state": "FREE", "holder": None}
        seen |= {"generation": None, "leaseExpiresAt": None, "observation": None}
        if row is None:
            return seen
        seen |= {"generation": str(row.generation), "observation": row.observation}
        if row.held and row.expires_at > now and scope.effective(now) == ACTIVE:
            seen |= {"state": "HELD", "holder": row.holder, "leaseExpiresAt": row.expires_at}
        return seen

    def sweep(self, now: float) -> None:
        """The sweep of lapsed leases."""
        for (_, key), row in self.all.items():
            if row.held and row.expires_at <= now:
                self._lapse(key, row)

    def _find(self, key: str, token: str) -> tuple[Scope, Claim] | None:
        for (scope, other), row in self.all.items():
            if other == key and row.token == token:
                return scope, row
        return None

    @staticmethod
    def _owned(now: float, found: tuple[Scope, Claim] | None) -> Claim:
        if found is not None:
            scope, row = found
            if row.held and row.expires_at > now and scope.effective(now) == ACTIVE:
                return row
        raise Refused("STALE_CLAIM")

    def _end(self, scopes: list[Scope], _reason: str) -> None:
        for (scope, key), row in self.all.items():
            if scope in scopes and row.held:
                self._lapse(key, row)

    def _lapse(self, key: str, row: Claim) -> None:
        row.held = False
        self.events.append(("claim.lapsed", key))
