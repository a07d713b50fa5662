"""Every route that changes something, as one row. A new room adds rows here and joins the suites beside."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.promises import queue_rows
from tests.support.builders import Call, Once, end, held, ok, scope

Make = Callable[[httpx.Client], Call]


@dataclass(frozen=True)
class Mutation:
    """Each member makes what its call needs in the client's space, anew every time.

    `changes`: a call that changes something. `refused`: one of the same route that is refused. `idle`: one
    that is answered and changes nothing. `scope_of`: the scope that the call works in, if any.
    """

    name: str
    changes: Make
    refused: Make | None = None
    idle: Make | None = None
    scope_of: Callable[[Call], str] | None = None

    def __str__(self) -> str:
        return self.name


def _in_body(call: Call) -> str:
    return call.body["scopeId"]


def _once(client: httpx.Client) -> Once:
    return Once(scope(client))


def _with_token(verb: Callable[[Once, str], Call]) -> Make:
    def make(client: httpx.Client) -> Call:
        once = _once(client)
        return verb(once, held(client, once))

    return make


def _stale(verb: Callable[[Once, str], Call]) -> Make:
    return lambda client: verb(_once(client), "stale")


def _held_already(client: httpx.Client) -> Call:
    once = _once(client)
    held(client, once)
    return once.acquire("another")


def _in_ended_scope(client: httpx.Client) -> Call:
    once = _once(client)
    ok(end(once.scope).send(client))
    return once.acquire()


def _full(client: httpx.Client) -> Call:
    parent = scope(client, childLimit=1)
    scope(client, parentId=parent)
    return Call("POST", "/scopes", {"parentId": parent})


def _ended(before: str, verb: str) -> Make:
    def make(client: httpx.Client) -> Call:
        root = scope(client)
        ok(end(root, before).send(client))
        return end(root, verb)

    return make


def _joined(client: httpx.Client) -> Call:
    ok(client.put("/runs/joined", json={}))
    return Call("PUT", "/runs/joined", {})


def _new_run(client: httpx.Client) -> Call:
    name = f"run-{scope(client)}"
    return Call("PUT", f"/runs/{name}", {"deadline": "2999-01-01T00:00:00Z"})


MUTATIONS = [
    Mutation("POST /scopes", lambda _: Call("POST", "/scopes", {"name": "nightly"})),
    Mutation(
        "POST /scopes of a child",
        lambda c: Call("POST", "/scopes", {"parentId": scope(c)}),
        refused=_full,
        scope_of=lambda call: call.body["parentId"],
    ),
    Mutation(
        "POST /scopes/{id}/cancel",
        lambda c: end(scope(c)),
        refused=_ended("complete", "cancel"),
        idle=_ended("cancel", "cancel"),
    ),
    Mutation(
        "POST /scopes/{id}/complete",
        lambda c: end(scope(c), "complete"),
        refused=_ended("cancel", "complete"),
        idle=_ended("complete", "complete"),
    ),
    Mutation("PUT /runs/{name}", _new_run, idle=_joined),
    Mutation(
        "POST /once/acquire",
        lambda c: _once(c).acquire(),
        refused=_in_ended_scope,
        idle=_held_already,
        scope_of=_in_body,
    ),
    Mutation(
        "POST /once/renew",
        _with_token(lambda once, token: once.renew(token, 600)),
        refused=_stale(lambda once, token: once.renew(token)),
        scope_of=_in_body,
    ),
    Mutation(
        "POST /once/complete",
        _with_token(lambda once, token: once.complete(token, {"n": 1})),
        refused=_stale(lambda once, token: once.complete(token)),
        scope_of=_in_body,
    ),
    Mutation(
        "POST /once/fail",
        _with_token(lambda once, token: once.fail(token)),
        refused=_stale(lambda once, token: once.fail(token)),
        scope_of=_in_body,
    ),
]
MUTATIONS += [Mutation(name, **row) for name, row in queue_rows.MUTATIONS.items()]


@dataclass(frozen=True)
class Shape:
    """What a route takes: each field with its kind (see BAD in test_bounds.py), and which are required."""

    name: str
    call: Make
    fields: dict[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    query: dict[str, str] = field(default_factory=dict)
    required_query: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


_ONCE = {"scopeId": "id", "key": "key"}
_ONCE_OWNED = _ONCE | {"token": "token"}

SHAPES = [
    Shape(
        "POST /scopes",
        lambda c: Call("POST", "/scopes", {"name": "n", "parentId": scope(c)}),
        {"name": "name", "parentId": "id", "deadline": "instant", "childLimit": "1..10000"},
    ),
    Shape("PUT /runs/{name}", lambda _: Call("PUT", "/runs/r", {}), {"deadline": "instant"}),
    Shape("POST /scopes/{id}/cancel", lambda c: end(scope(c))),
    Shape("POST /scopes/{id}/complete", lambda c: end(scope(c), "complete")),
    Shape("GET /scopes/{id}", lambda c: Call("GET", f"/scopes/{scope(c)}")),
    Shape(
        "GET /scopes",
        lambda _: Call("GET", "/scopes"),
        query={"parentId": "id", "state": "state", "name": "name", "cursor": "cursor", "limit": "1..500"},
    ),
    Shape(
        "POST /once/acquire",
        lambda c: _once(c).acquire(),
        _ONCE | {"holder": "name", "holderSession": "name", "leaseSeconds": "lease"},
        frozenset({"scopeId", "key", "holder", "holderSession"}),
    ),
    Shape(
        "POST /once/renew",
        lambda c: _once(c).renew("t"),
        _ONCE_OWNED | {"leaseSeconds": "lease"},
        frozenset(_ONCE_OWNED),
    ),
    Shape(
        "POST /once/complete",
        lambda c: _once(c).complete("t", 1),
        _ONCE_OWNED | {"result": "json"},
        frozenset(_ONCE_OWNED),
    ),
    Shape(
        "POST /once/fail",
        lambda c: _once(c).fail("t"),
        _ONCE_OWNED | {"error": "text", "maxAttempts": "1..100"},
        frozenset(_ONCE_OWNED) | {"error", "maxAttempts"},
    ),
    Shape(
        "GET /once",
        lambda c: Call("GET", f"/once?scopeId={scope(c)}&key=k"),
        query=_ONCE | {"waitMs": "0..30000"},
        required_query=frozenset({"scopeId", "key"}),
    ),
]
SHAPES += [Shape(name, **row) for name, row in queue_rows.SHAPES.items()]


def raw(call: Call, **replaced: str) -> bytes:
    """The body with these fields set to JSON text that is put in as it is."""
    members = {name: json.dumps(value) for name, value in (call.body or {}).items()} | replaced
    return ("{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}").encode()


def post(client: httpx.Client, call: Call, content: Any, **headers: str) -> httpx.Response:
    """Send other bytes as the body of that call."""
    return client.request(call.method, call.path, content=content, headers=headers)
