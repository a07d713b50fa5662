"""Calls of permit pools."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.builders import Call, ok


@dataclass(frozen=True)
class Pool:
    """A pool, as one scope uses it."""

    id: str
    scope: str
    name: str = "browsers"

    def within(self, scope: str) -> "Pool":
        """The same pool, used from another scope."""
        return Pool(self.id, scope, self.name)

    def view(self) -> Call:
        return Call("GET", f"/permits/{self.id}")

    def resize(self, units: int) -> Call:
        return Call("PATCH", f"/permits/{self.id}", {"units": units})

    def acquire(self, units: int = 1, *, holder: str = "ann", lease_s: float = 30, **more: Any) -> Call:
        body = {"scopeId": self.scope, "units": units, "holder": holder, "holderSession": "1"}
        return Call("POST", f"/permits/{self.id}/acquire", body | {"leaseSeconds": lease_s} | more)

    def wait(self, units: int = 1, *, holder: str = "bob", **more: Any) -> Call:
        return Call(
            "POST",
            f"/permits/{self.id}/wait",
            {"scopeId": self.scope, "units": units, "holder": holder} | more,
        )


def pool(client: httpx.Client, scope: str, units: int = 3, name: str = "browsers") -> Pool:
    """A new pool."""
    return Pool(
        ok(Call("POST", "/permits", {"name": name, "units": units}).send(client), 201)["id"], scope, name
    )


def look(waiter_id: str, wait_ms: int = 0) -> Call:
    return Call("GET", f"/permit-waiters/{waiter_id}" + (f"?waitMs={wait_ms}" if wait_ms else ""))


def leave(waiter_id: str) -> Call:
    return Call("POST", f"/permit-waiters/{waiter_id}/cancel", {})


def renew(grant: dict[str, Any], lease_s: float | None = None) -> Call:
    more = {} if lease_s is None else {"leaseSeconds": lease_s}
    return Call("POST", f"/grants/{grant['grantId']}/renew", {"token": grant["token"]} | more)


def release(grant: dict[str, Any], **more: Any) -> Call:
    return Call("POST", f"/grants/{grant['grantId']}/release", {"token": grant["token"]} | more)
