"""The rows of claims, mailboxes, messages and tasks for the table; what its members are is said there."""

import uuid
from typing import Any

import httpx

from tests.support.builders import Call, end, ok, scope
from tests.support.queues import (
    Claim,
    Delivery,
    Mailbox,
    cancel,
    dead,
    mailbox,
    redrive,
    sent,
    submitted,
    taken,
    view,
)


def _in_body(call: Call) -> str:
    return call.body["scopeId"]


def _claim(client: httpx.Client) -> Claim:
    return Claim(scope(client), "k")


def _box(client: httpx.Client, **settings: Any) -> Mailbox:
    return mailbox(client, scope(client), uuid.uuid4().hex, **settings)


def _ended(client: httpx.Client) -> Mailbox:
    box = _box(client)
    ok(end(box.scope).send(client))
    return box


def _full(client: httpx.Client) -> Mailbox:
    box = _box(client, backlogLimit=1)
    sent(client, box)
    return box


def _claimed(client: httpx.Client) -> tuple[Claim, str]:
    claim = _claim(client)
    return claim, ok(claim.acquire().send(client), 201)["token"]


def _renewing(client: httpx.Client, lease_s: float | None = None) -> Call:
    claim, token = _claimed(client)
    return claim.renew(token, lease_s)


def _releasing(client: httpx.Client, **more: Any) -> Call:
    claim, token = _claimed(client)
    return claim.release(token, **more)


def _sent_before(client: httpx.Client) -> Call:
    box = _box(client)
    sent(client, box, workKey="k")
    return box.send(workKey="k")


def _held(client: httpx.Client, **settings: Any) -> Delivery:
    box = _box(client, **settings)
    sent(client, box)
    return taken(client, box.recv())


def _settled(client: httpx.Client) -> Delivery:
    held = _held(client)
    ok(held.complete().send(client))
    return held


def _waiting(client: httpx.Client) -> Mailbox:
    box = _box(client)
    submitted(client, box, "k", input={"n": 1})
    return box


def _stocked(client: httpx.Client) -> Mailbox:
    box = _box(client)
    for key in "abc":
        submitted(client, box, key)
    return box


def _dead(client: httpx.Client) -> str:
    return dead(client, _box(client)).id


def _cancelled(client: httpx.Client) -> str:
    task_id = submitted(client, _box(client))
    ok(cancel(task_id).send(client))
    return task_id


def _joining(client: httpx.Client) -> Call:
    box = _box(client)
    join = {"subscriberId": "ann", "scopeId": box.scope}
    return Call("POST", f"/tasks/{submitted(client, box)}/join", join)


def _detaching(client: httpx.Client) -> Call:
    task_id = submitted(client, _box(client), subscriberId="ann")
    return Call("POST", f"/tasks/{task_id}/detach", {"subscriberId": "ann"})


def _taken_name(client: httpx.Client) -> Call:
    _box(client)
    name = ok(client.get("/mailboxes"))["mailboxes"][-1]["name"]
    return Call("POST", "/mailboxes", {"name": name})


def _by_name(client: httpx.Client, **settings: Any) -> Call:
    name = uuid.uuid4().hex
    ok(client.put(f"/mailboxes/by-name/{name}", json={}))
    return Call("PUT", f"/mailboxes/by-name/{name}", settings)


def _batch(box: Mailbox) -> Call:
    return Call("POST", "/tasks/batch", {"tasks": [box.task("k", input={"n": 1})]})


def _new_name(_: Any) -> Call:
    return Call("POST", "/mailboxes", {"name": uuid.uuid4().hex, "maxAttempts": 3, "backlogLimit": 5})


MUTATIONS: dict[str, dict[str, Any]] = {
    "POST /claims": {
        "changes": lambda c: _claim(c).acquire(),
        "refused": lambda c: _claimed(c)[0].acquire("another"),
        "scope_of": _in_body,
    },
    "POST /claims/{key}/renew": {
        "changes": lambda c: _renewing(c, 600),
        "refused": lambda c: _claim(c).renew("stale"),
    },
    "POST /claims/{key}/release": {
        "changes": lambda c: _releasing(c, observation={"n": 1}),
        "refused": lambda c: _claim(c).release("stale"),
    },
    "POST /mailboxes": {"changes": _new_name, "refused": _taken_name},
    "PUT /mailboxes/by-name/{name}": {
        "changes": lambda c: Call("PUT", f"/mailboxes/by-name/{uuid.uuid4().hex}", {"maxAttempts": 3}),
        "refused": lambda c: _by_name(c, mode="INBOX"),
        "idle": lambda c: _by_name(c, maxAttempts=5),
    },
    "PUT /mailboxes/by-name/{name} of one that is there": {"changes": lambda c: _by_name(c, maxAttempts=7)},
    "POST /mailboxes/{id}/messages": {
        "changes": lambda c: _box(c).send({"n": 1}, workKey="k"),
        "refused": lambda c: _full(c).send(),
        "idle": _sent_before,
        "scope_of": _in_body,
    },
    "POST /mailboxes/{id}/recv": {
        "changes": lambda c: _waiting(c).recv(),
        "refused": lambda c: _ended(c).recv(),
        "idle": lambda c: _box(c).recv(),
        "scope_of": _in_body,
    },
    "POST /messages/{id}/renew": {
        "changes": lambda c: _held(c).renew(600),
        "refused": lambda c: _settled(c).renew(),
    },
    "POST /messages/{id}/complete": {
        "changes": lambda c: _held(c).complete({"n": 1}),
        "refused": lambda c: _settled(c).complete(),
    },
    "POST /messages/{id}/nack": {
        "changes": lambda c: _held(c).nack(error="boom", delaySeconds=5),
        "refused": lambda c: _settled(c).nack(),
    },
    "POST /messages/{id}/nack for good": {"changes": lambda c: _held(c, maxAttempts=1).nack(error="boom")},
    "POST /messages/{id}/redrive": {
        "changes": lambda c: redrive(_dead(c)),
        "refused": lambda c: redrive(_settled(c).id),
    },
    "POST /tasks": {
        "changes": lambda c: _box(c).submit("k", input={"n": 1}, subscriberId="ann"),
        "refused": lambda c: _full(c).submit(),
        "idle": lambda c: _waiting(c).submit("k", input=2),
        "scope_of": _in_body,
    },
    "POST /tasks/batch": {
        "changes": lambda c: _batch(_box(c)),
        "refused": lambda c: _batch(_full(c)),
        "idle": lambda c: _batch(_waiting(c)),
        "scope_of": lambda call: call.body["tasks"][0]["scopeId"],
    },
    "POST /tasks/admit": {
        "changes": lambda c: _waiting(c).admit(),
        "refused": lambda c: _ended(c).admit(),
        "idle": lambda c: _box(c).admit(),
        "scope_of": _in_body,
    },
    "POST /tasks/{id}/cancel": {
        "changes": lambda c: cancel(submitted(c, _box(c)), reason="why"),
        "idle": lambda c: cancel(_cancelled(c)),
    },
    "POST /tasks/{id}/join": {"changes": _joining},
    "POST /tasks/{id}/detach": {"changes": _detaching},
}

_TAKEN = {
    "scopeId": "id",
    "holder": "name",
    "holderSession": "name",
    "leaseSeconds": "lease",
    "waitMs": "0..30000",
    "includeDescendants": "flag",
}
_TAKES = frozenset({"scopeId", "holder", "holderSession"})
_NEW = {"scopeId": "id", "deadline": "instant", "priority": "-100..100", "delaySeconds": "delay"}
_RENEWED = {"token": "token", "leaseSeconds": "lease"}
_TOKEN = frozenset({"token"})
_SETTINGS = {"mode": "mode", "maxAttempts": "1..100", "backlogLimit": "1.."}

SHAPES: dict[str, dict[str, Any]] = {
    "POST /claims": {
        "call": lambda c: _claim(c).acquire(),
        "fields": {k: v for k, v in _TAKEN.items() if k != "includeDescendants"} | {"key": "key"},
        "required": _TAKES | {"key"},
    },
    "POST /claims/{key}/renew": {
        "call": _renewing,
        "fields": _RENEWED,
        "required": _TOKEN,
    },
    "POST /claims/{key}/release": {
        "call": _releasing,
        "fields": {"token": "token", "observation": "json"},
        "required": _TOKEN,
    },
    "GET /claims/{key}": {
        "call": lambda c: _claim(c).view(),
        "query": {"scopeId": "id"},
        "required_query": frozenset({"scopeId"}),
    },
    "POST /mailboxes": {
        "call": _new_name,
        "fields": _SETTINGS | {"name": "name"},
        "required": frozenset({"name"}),
    },
    "GET /mailboxes": {
        "call": lambda _: Call("GET", "/mailboxes"),
        "query": {"cursor": "cursor", "limit": "1..500"},
    },
    "PUT /mailboxes/by-name/{name}": {"call": lambda c: _by_name(c, maxAttempts=5), "fields": _SETTINGS},
    "GET /mailboxes/{id}": {"call": lambda c: _box(c).view()},
    "POST /mailboxes/{id}/messages": {
        "call": lambda c: _box(c).send(1),
        "fields": _NEW | {"payload": "json", "workKey": "key"},
        "required": frozenset({"scopeId"}),
    },
    "GET /mailboxes/{id}/messages": {
        "call": lambda c: Call("GET", _box(c).messages().path.rstrip("?")),
        "query": {"state": "state", "scopeId": "id", "cursor": "cursor", "limit": "1..500"},
    },
    "POST /mailboxes/{id}/recv": {
        "call": lambda c: _stocked(c).recv(),
        "fields": _TAKEN,
        "required": _TAKES,
    },
    "POST /messages/{id}/renew": {
        "call": lambda c: _held(c).renew(60),
        "fields": _RENEWED,
        "required": _TOKEN,
    },
    "POST /messages/{id}/complete": {
        "call": lambda c: _held(c).complete(1),
        "fields": {"token": "token", "result": "result"},
        "required": _TOKEN,
    },
    "POST /messages/{id}/nack": {
        "call": lambda c: _held(c).nack(),
        "fields": {
            "token": "token",
            "retry": "flag",
            "error": "text",
            "delaySeconds": "delay",
            "handBack": "flag",
        },
        "required": _TOKEN | {"retry"},
    },
    "POST /messages/{id}/redrive": {"call": lambda c: redrive(_dead(c))},
    "POST /tasks": {
        "call": lambda c: _box(c).submit("k", input=1),
        "fields": _NEW | {"mailboxId": "id", "taskKey": "key", "input": "json", "subscriberId": "name"},
        "required": frozenset({"scopeId", "mailboxId", "taskKey"}),
    },
    "POST /tasks/admit": {
        "call": lambda c: _stocked(c).admit(),
        "fields": _TAKEN | {"mailboxId": "id", "max": "1..50"},
        "required": _TAKES | {"mailboxId"},
    },
    "GET /tasks": {
        "call": lambda _: Call("GET", "/tasks"),
        "query": {
            "scopeId": "id",
            "mailboxId": "id",
            "state": "state",
            "taskKey": "key",
            "cursor": "cursor",
            "limit": "1..500",
        },
    },
    "GET /tasks/{id}": {
        "call": lambda c: Call("GET", view(submitted(c, _box(c))).path.partition("?")[0]),
        "query": {"waitMs": "0..30000"},
    },
    "POST /tasks/{id}/cancel": {
        "call": lambda c: cancel(submitted(c, _box(c))),
        "fields": {"reason": "text"},
    },
    "POST /tasks/{id}/join": {
        "call": _joining,
        "fields": {"subscriberId": "name", "scopeId": "id"},
        "required": frozenset({"subscriberId", "scopeId"}),
    },
    "POST /tasks/{id}/detach": {
        "call": _detaching,
        "fields": {"subscriberId": "name"},
        "required": frozenset({"subscriberId"}),
    },
}
