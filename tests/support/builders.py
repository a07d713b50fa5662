"""Requests as values, and what every answer of the server must look like."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx

from runstate_server.foundation.errors import TABLE, Code


@dataclass(frozen=True)
class Call:
    """One request inside a space; it may be sent many times, by any client."""

    method: str
    path: str
    body: Any = None

    def send(self, client: Any, key: str | None = None) -> Any:
        """Send it under that Idempotency-Key. With an async client: a coroutine of the response."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return client.request(self.method, self.path, json=self.body, headers=headers)


@dataclass(frozen=True)
class Once:
    """The calls about one once key."""

    scope: str
    key: str = "research:acme"

    def acquire(self, holder: str = "worker", session: str = "1", lease_s: float = 30) -> Call:
        asked = {"holder": holder, "holderSession": session, "leaseSeconds": lease_s}
        return Call("POST", "/once/acquire", self._named | asked)

    def renew(self, token: str, lease_s: float = 30) -> Call:
        return Call("POST", "/once/renew", self._named | {"token": token, "leaseSeconds": lease_s})

    def complete(self, token: str, result: Any = None) -> Call:
        return Call("POST", "/once/complete", self._named | {"token": token, "result": result})

    def fail(self, token: str, error: str = "boom", max_attempts: int = 3) -> Call:
        given = {"token": token, "error": error, "maxAttempts": max_attempts}
        return Call("POST", "/once/fail", self._named | given)

    def view(self, wait_ms: int = 0) -> Call:
        query = httpx.QueryParams(self._named | {"waitMs": wait_ms})
        return Call("GET", f"/once?{query}")

    @property
    def _named(self) -> dict[str, Any]:
        return {"scopeId": self.scope, "key": self.key}


async def at_once(clients: Sequence[Any], calls: Sequence[Call], key: str | None = None) -> list[Any]:
    """Send all calls at once, by turns through these async clients; returns the responses in order."""
    turns = zip(calls, itertools.cycle(clients), strict=False)
    return await asyncio.gather(*(call.send(client, key) for call, client in turns))


def scope(client: httpx.Client, **body: Any) -> str:
    """A new scope's id."""
    return ok(client.post("/scopes", json=body), 201)["id"]


def in_seconds(client: httpx.Client, seconds: float) -> str:
    """The instant that many seconds from the server's now."""
    now = datetime.fromisoformat(ok(client.post("/scopes", json={}), 201)["createdAt"])
    return (now + timedelta(seconds=seconds)).isoformat()


def end(scope_id: str, how: str = "cancel") -> Call:
    """The call that ends a scope."""
    return Call("POST", f"/scopes/{scope_id}/{how}")


CONTENTS = ("once", "claims", "barriers", "timers", "groups", "messages", "tasks", "waiters")


def contents(scopes: int = 1, **many: int) -> dict[str, int]:
    """What the end of a scope says it has ended: nothing but its scopes, apart from `many`."""
    return {"scopes": scopes} | dict.fromkeys(CONTENTS, 0) | many


def held(client: httpx.Client, once: Once, **how: Any) -> str:
    """Acquire the key; returns the token."""
    answer = ok(once.acquire(**how).send(client))
    assert answer["state"] == "ACQUIRED", answer
    return answer["token"]


def ok(response: httpx.Response, status: int = 200) -> Any:
    """The body of a success."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    return response.json()


def refused(response: httpx.Response, code: str, status: int | None = None) -> str:
    """The message of a refusal, whose envelope and status are as promised."""
    body = response.json()
    assert body.get("error", {}).get("code") == code, body
    assert response.status_code == (TABLE[Code(code)].status if status is None else status)
    assert response.headers["content-type"] == "application/json"
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "requestId"}
    assert body["error"]["requestId"] == response.headers["x-request-id"]
    assert body["error"]["message"]
    return body["error"]["message"]
