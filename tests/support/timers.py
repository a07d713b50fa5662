"""Calls of timers."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.builders import Call, ok

HOUR = 3600


@dataclass(frozen=True)
class Timers:
    """The timers of one scope."""

    scope: str

    def create(self, after_s: float | None = None, *, at: str | None = None) -> Call:
        return Call("POST", "/timers", {"scopeId": self.scope} | _when(after_s, at))

    def named(self, name: str, after_s: float | None = None, *, at: str | None = None) -> Call:
        return Call(
            "PUT", f"/timers/by-name/{quote(name, safe='')}", {"scopeId": self.scope} | _when(after_s, at)
        )

    def poll(self, wait_ms: int = 0) -> Call:
        return Call("POST", "/timers/poll", {"scopeId": self.scope, "waitMs": wait_ms})

    def pending(self, client: httpx.Client, after_s: float = HOUR) -> str:
        """The id of a new one."""
        timer = ok(self.create(after_s).send(client))
        assert timer["state"] == "PENDING"
        return str(timer["id"])

    def fired(self, client: httpx.Client) -> tuple[str, str]:
        """Id and token of a new one that has fired."""
        timer = ok(self.create(0).send(client))
        return timer["id"], timer["token"]


def _when(after_s: float | None, at: str | None) -> dict[str, Any]:
    return {"afterSeconds": after_s} if at is None else {"at": at}


def look(timer_id: str, wait_ms: int = 0) -> Call:
    return Call("GET", f"/timers/{timer_id}" + (f"?waitMs={wait_ms}" if wait_ms else ""))


def ack(timer_id: str, token: str) -> Call:
    return Call("POST", f"/timers/{timer_id}/ack", {"token": token})


def cancel(timer_id: str) -> Call:
    return Call("POST", f"/timers/{timer_id}/cancel", {})
