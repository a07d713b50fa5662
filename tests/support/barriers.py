"""Calls of barriers, as values."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.builders import Call, ok


@dataclass(frozen=True)
class Barrier:
    """The calls about one barrier."""

    id: str

    def arrive(self, key: str = "worker-1") -> Call:
        return Call("POST", f"/barriers/{self.id}/arrive", {"arrivalKey": key})

    def reset(self) -> Call:
        return Call("POST", f"/barriers/{self.id}/reset")

    def view(self, wait_ms: int = 0) -> Call:
        return Call("GET", f"/barriers/{self.id}?waitMs={wait_ms}")


def made(scope: str, target: Any = 3) -> Call:
    """A new one without a name."""
    return Call("POST", "/barriers", {"scopeId": scope, "target": target})


def named(scope: str, name: str, target: Any = 3) -> Call:
    """The one of that name."""
    return Call("PUT", f"/barriers/by-name/{quote(name, safe='')}", {"scopeId": scope, "target": target})


def barrier(client: httpx.Client, scope: str, target: int = 3) -> Barrier:
    """A new barrier without a name."""
    return Barrier(ok(made(scope, target).send(client))["id"])
