"""The rules of one budget in pure Python: the oracle of its histories. Times are numbers; amounts are minor
units."""

from dataclasses import dataclass, field
from typing import Any


class RefusedError(Exception):
    """The code of a refusal."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Reservation:
    """`claim`: what may still be settled of it; `held`: what of that the budget keeps for it."""

    claim: int
    held: int
    settle_by: float | None
    state: str = "ACTIVE"

    @property
    def ended(self) -> bool:
        return self.state in {"SETTLED", "VOIDED"}


@dataclass
class Books:
    """A budget, its reservations by name, what its keys have done, and the lines of its ledger."""

    limit: int
    hold_stale: bool
    settled: int = 0
    overrun: int = 0
    reservations: dict[str, Reservation] = field(default_factory=dict)
    done: dict[tuple[str, str], tuple[str, int | None, dict[str, Any]]] = field(default_factory=dict)
    lines: list[tuple[str, int]] = field(default_factory=list)

    @property
    def reserved(self) -> int:
        return sum(each.held for each in self.reservations.values())

    @property
    def left(self) -> int:
        return self.limit - self.reserved - self.settled

    def view(self) -> dict[str, str]:
        """The balances of GET /budgets/{id}."""
        return {
            "limitMinor": str(self.limit),
            "reservedMinor": str(self.reserved),
            "settledMinor": str(self.settled),
            "availableMinor": str(self.left),
            "overrunMinor": str(self.overrun),
        }

    def time(self, now: float) -> None:
        """What is past its time becomes stale, before anything else is looked at."""
        due = [r for r in self.reservations.values() if r.state == "ACTIVE" and r.settle_by is not None]
        for each in sorted((r for r in due if r.settle_by <= now), key=lambda r: r.settle_by):
            freed = 0 if self.hold_stale else each.held
            each.state, each.held = "STALE", each.held - freed
            self.lines.append(("stale", freed))

    def reserve(self, name: str, amount: int, settle_by: float | None) -> dict[str, Any]:
        if amount > self.left:
            raise RefusedError("INSUFFICIENT_BUDGET")
        self.reservations[name] = Reservation(amount, amount, settle_by)
        self.lines.append(("reserve", amount))
        return {"reservationId": name, "reservedMinor": str(amount), "state": "ACTIVE"}

    def settle(self, name: str, amount: int, key: str, *, allow_overrun: bool) -> dict[str, Any]:
        before = self._before("settle", key, name, amount)
        if before is not None:
            return before
        it = self._open(name)
        if amount > it.claim and not allow_overrun:
            raise RefusedError("CONFLICT")
        kept = it.state == "ACTIVE" or self.hold_stale
        own = min(amount, it.held)  # nothing is held for a stale one whose money went back
        charged = own + min(amount - own, self.left)
        if charged < amount and not allow_overrun:
            raise RefusedError("INSUFFICIENT_BUDGET")
        rest = max(it.claim - amount, 0)
        if it.state == "STALE":
            it.settle_by = None
        it.held = 0
        self.settled += charged
        it.held = it.claim = rest if kept else min(rest, self.left)
        it.state = "ACTIVE" if rest else "SETTLED"
        self.overrun += amount - charged
        self.lines.append(("settle", charged))
        if amount > charged:
            self.lines.append(("overrun", amount - charged))
        return self._keep("settle", key, name, amount, it, charged)

    def void(self, name: str, key: str) -> dict[str, Any]:
        before = self._before("void", key, name, None)
        if before is not None:
            return before
        it = self._open(name)
        self.lines.append(("void", it.held))
        it.claim = it.held = 0
        it.state = "VOIDED"
        return self._keep("void", key, name, None, it, 0)

    def change(self, limit: int) -> dict[str, Any]:
        if limit < self.settled + self.reserved:
            raise RefusedError("CONFLICT")
        self.limit = limit
        return self.view()

    def _open(self, name: str) -> Reservation:
        it = self.reservations[name]
        if it.ended:
            raise RefusedError("CONFLICT")
        return it

    def _before(self, kind: str, key: str, name: str, amount: int | None) -> dict[str, Any] | None:
        if (kind, key) not in self.done:
            return None
        whose, asked, answer = self.done[kind, key]
        if (whose, asked) != (name, amount):
            raise RefusedError("CONFLICT")
        return answer | {"replay": True}

    def _keep(
        self, kind: str, key: str, name: str, asked: int | None, it: Reservation, charged: int
    ) -> dict[str, Any]:
        answer = {
            "reservedMinor": str(it.held),
            "state": it.state,
            "replay": False,
            "chargedMinor": str(charged),
            "overrunMinor": str((asked or 0) - charged),
        }
        self.done[kind, key] = (name, asked, answer)
        return answer
