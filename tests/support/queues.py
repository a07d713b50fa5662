"""The calls about claims, mailboxes, messages and tasks, as values."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.builders import Call, ok


@dataclass(frozen=True)
class Claim:
    """The calls about one claim key."""

    scope: str
    key: str = "company:acme"

    def acquire(self, holder: str = "worker", session: str = "1", lease_s: float = 30, **more: Any) -> Call:
        asked = {"key": self.key, "scopeId": self.scope, "holder": holder, "holderSession": session}
        return Call("POST", "/claims", asked | {"leaseSeconds": lease_s} | more)

    def renew(self, token: str, lease_s: float | None = None) -> Call:
        return Call("POST", f"{self._path}/renew", {"token": token, "leaseSeconds": lease_s})

    def release(self, token: str, **more: Any) -> Call:
        return Call("POST", f"{self._path}/release", {"token": token} | more)

    def view(self) -> Call:
        return Call("GET", f"{self._path}?{httpx.QueryParams({'scopeId': self.scope})}")

    @property
    def _path(self) -> str:
        return f"/claims/{quote(self.key, safe='')}"


@dataclass(frozen=True)
class Mailbox:
    """The calls about one mailbox, in one scope."""

    id: str
    scope: str

    def within(self, scope: str) -> "Mailbox":
        """The same mailbox, in another scope."""
        return Mailbox(self.id, scope)

    def send(self, payload: Any = None, **more: Any) -> Call:
        return Call(
            "POST", f"/mailboxes/{self.id}/messages", {"scopeId": self.scope, "payload": payload} | more
        )

    def recv(self, holder: str = "worker", lease_s: float = 30, **more: Any) -> Call:
        return Call("POST", f"/mailboxes/{self.id}/recv", self._taking(holder, lease_s) | more)

    def recv_below(self, holder: str = "worker", lease_s: float = 30, **more: Any) -> Call:
        return self.recv(holder, lease_s, includeDescendants=True, **more)

    def submit(self, key: str = "research:acme", **more: Any) -> Call:
        return Call("POST", "/tasks", self.task(key, **more))

    def task(self, key: str, **more: Any) -> dict[str, Any]:
        """The body of a submit, also one of a batch."""
        return {"scopeId": self.scope, "mailboxId": self.id, "taskKey": key} | more

    def admit(self, holder: str = "worker", lease_s: float = 30, **more: Any) -> Call:
        asked = {"mailboxId": self.id} | self._taking(holder, lease_s)
        return Call("POST", "/tasks/admit", asked | more)

    def admit_below(self, holder: str = "worker", lease_s: float = 30, **more: Any) -> Call:
        return self.admit(holder, lease_s, includeDescendants=True, **more)

    def view(self) -> Call:
        return Call("GET", f"/mailboxes/{self.id}")

    def messages(self, **query: Any) -> Call:
        return Call("GET", f"/mailboxes/{self.id}/messages?{httpx.QueryParams(query)}")

    def _taking(self, holder: str, lease_s: float) -> dict[str, Any]:
        return {"scopeId": self.scope, "holder": holder, "holderSession": "1", "leaseSeconds": lease_s}


def batch(tasks: list[dict[str, Any]]) -> Call:
    """Submit them all or none."""
    return Call("POST", "/tasks/batch", {"tasks": tasks})


@dataclass(frozen=True)
class Delivery:
    """One delivery in a holder's hands."""

    id: str
    token: str
    attempt: int
    payload: Any

    def renew(self, lease_s: float | None = None) -> Call:
        return Call("POST", f"/messages/{self.id}/renew", {"token": self.token, "leaseSeconds": lease_s})

    def complete(self, payload: Any = None, **result: Any) -> Call:
        body = {"token": self.token, "result": {"payload": payload} | result}
        return Call("POST", f"/messages/{self.id}/complete", body)

    def nack(self, *, retry: bool = True, **more: Any) -> Call:
        return Call("POST", f"/messages/{self.id}/nack", {"token": self.token, "retry": retry} | more)


def redrive(message_id: str) -> Call:
    return Call("POST", f"/messages/{message_id}/redrive")


def view(task_id: str, wait_ms: int = 0) -> Call:
    """Look at a task."""
    return Call("GET", f"/tasks/{task_id}?{httpx.QueryParams({'waitMs': wait_ms})}")


def cancel(task_id: str, **more: Any) -> Call:
    return Call("POST", f"/tasks/{task_id}/cancel", more)


def mailbox(client: httpx.Client, scope: str, name: str = "research", **settings: Any) -> Mailbox:
    """A new mailbox, looked at from that scope."""
    made = ok(client.post("/mailboxes", json={"name": name} | settings), 201)
    return Mailbox(made["id"], scope)


def sent(client: httpx.Client, box: Mailbox, payload: Any = None, **more: Any) -> str:
    """Send a message that is new; returns its id."""
    answer = ok(box.send(payload, **more).send(client), 201)
    assert answer.keys() == {"id", "replay"}
    assert answer["replay"] is False
    return answer["id"]


def submitted(client: httpx.Client, box: Mailbox, key: str = "research:acme", **more: Any) -> str:
    """Submit a task that is new; returns its id."""
    answer = ok(box.submit(key, **more).send(client), 201)
    assert answer.keys() == {"taskId", "replay", "state"}
    assert answer["replay"] is False
    return answer["taskId"]


def taken(client: httpx.Client, call: Call) -> Delivery:
    """What a recv or an admit (of one) delivers; there must be something."""
    return delivery(ok(call.send(client)))


def delivery(answer: dict[str, Any]) -> Delivery:
    """The delivery in the answer of a recv or an admit of one."""
    told = answer.get("message", answer)
    return Delivery(told.get("id") or told["messageId"], answer["token"], told["attempt"], told["payload"])


def nothing(client: httpx.Client, call: Call) -> None:
    """A recv or an admit that finds nothing."""
    response = call.send(client)
    assert response.status_code == 204, response.text
    assert response.content == b""
    assert response.headers["x-request-id"]


def row(client: httpx.Client, box: Mailbox, message_id: str) -> dict[str, Any]:
    """One message as the mailbox's listing shows it."""
    page = ok(box.messages(limit=500).send(client))
    return next(m for m in page["messages"] if m["id"] == message_id)


def task(client: httpx.Client, task_id: str) -> dict[str, Any]:
    """A task as it is now."""
    return ok(view(task_id).send(client))


def dead(client: httpx.Client, box: Mailbox, **more: Any) -> Delivery:
    """A message that was sent, taken and rejected."""
    sent(client, box, **more)
    held = taken(client, box.recv())
    assert ok(held.nack(retry=False).send(client)) == {"state": "DEAD", "attempt": 1}
    return held
