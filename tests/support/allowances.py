"""Calls of allowances."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.builders import Call, ok

HOUR = 3600
DAY = 86_400


@dataclass(frozen=True)
class Allowance:
    """An allowance, as one scope uses it."""

    id: str
    scope: str
    name: str = "search-api"

    def view(self) -> Call:
        return Call("GET", f"/allowances/{self.id}")

    def resize(self, **sizes: int) -> Call:
        return Call("PATCH", f"/allowances/{self.id}", sizes)

    def consume(self, units: int = 1, *, holder: str = "ann") -> Call:
        body = {"scopeId": self.scope, "units": units, "holder": holder}
        return Call("POST", f"/allowances/{self.id}/consume", body)

    def wait(self, units: int = 1, *, holder: str = "bob", **more: Any) -> Call:
        body = {"scopeId": self.scope, "units": units, "holder": holder}
        return Call("POST", f"/allowances/{self.id}/wait", body | more)

    def cool(self, seconds: float, **more: Any) -> Call:
        return Call("POST", f"/allowances/{self.id}/cooldown", {"seconds": seconds} | more)


def allowance(
    client: httpx.Client, scope: str, units: int = 3, window_s: int = DAY, name: str = "search-api"
) -> Allowance:
    """A new allowance."""
    made = {"name": name, "unitsLimit": units, "windowSeconds": window_s}
    return Allowance(ok(Call("POST", "/allowances", made).send(client), 201)["id"], scope, name)


def look(waiter_id: str, wait_ms: int = 0) -> Call:
    return Call("GET", f"/allowance-waiters/{waiter_id}" + (f"?waitMs={wait_ms}" if wait_ms else ""))


def leave(waiter_id: str) -> Call:
    return Call("POST", f"/allowance-waiters/{waiter_id}/cancel", {})
