"""Calls of budgets."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.builders import Call, ok


@dataclass(frozen=True)
class Budget:
    """A budget, as one scope uses it."""

    id: str
    scope: str
    name: str = "model-usd"

    def within(self, scope: str) -> "Budget":
        """The same budget, in another scope."""
        return Budget(self.id, scope, self.name)

    def view(self) -> Call:
        return Call("GET", f"/budgets/{self.id}")

    def limit(self, minor: Any) -> Call:
        return Call("PATCH", f"/budgets/{self.id}", {"limitMinor": str(minor)})

    def reserve(self, minor: Any = 100, *, holder: str = "ann", **more: Any) -> Call:
        body = {"scopeId": self.scope, "holder": holder, "amountMinor": str(minor)}
        return Call("POST", f"/budgets/{self.id}/reserve", body | more)

    def settle(self, reservation: str, minor: Any, key: str = "used", **more: Any) -> Call:
        body = {"reservationId": reservation, "amountMinor": str(minor), "workKey": key}
        return Call("POST", f"/budgets/{self.id}/settle", body | more)

    def overrun(self, reservation: str, minor: Any, key: str = "used") -> Call:
        return self.settle(reservation, minor, key, allowOverrun=True)

    def void(self, reservation: str, key: str = "unused") -> Call:
        return Call("POST", f"/budgets/{self.id}/void", {"reservationId": reservation, "workKey": key})

    def entries(self, **query: Any) -> Call:
        return Call("GET", f"/budgets/{self.id}/entries?{httpx.QueryParams(query)}")


def define(minor: Any = 1000, name: str = "model-usd", **more: Any) -> Call:
    """A new budget of US dollars and cents."""
    body = {"name": name, "currency": "USD", "scale": 2, "limitMinor": str(minor)}
    return Call("POST", "/budgets", body | more)


def budget(
    client: httpx.Client, scope: str, minor: Any = 1000, name: str = "model-usd", **more: Any
) -> Budget:
    """A new budget that is there."""
    return Budget(ok(define(minor, name, **more).send(client), 201)["id"], scope, name)


def reserved(client: httpx.Client, money: Budget, minor: Any = 100, **more: Any) -> str:
    """The id of a new reservation."""
    answer = ok(money.reserve(minor, **more).send(client))
    assert answer == {
        "reservationId": answer["reservationId"],
        "reservedMinor": str(minor),
        "state": "ACTIVE",
    }
    return str(answer["reservationId"])
