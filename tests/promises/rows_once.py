"""Once."""

from collections.abc import Callable

import httpx

from tests.promises.kinds import Make, Mutation, Shape
from tests.support.builders import Call, Once, end, held, ok, scope


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


MUTATIONS = [
    Mutation(
        "POST /once/acquire",
        lambda c: _once(c).acquire(),
        ("once.acquired",),
        refused=_in_ended_scope,
        idle=_held_already,
        after_end="SCOPE_CANCELLED",
        renewal=lambda call, told: Once(call.body["scopeId"], call.body["key"]).renew(told["token"]),
    ),
    Mutation(
        "POST /once/renew",
        _with_token(lambda once, token: once.renew(token, 600)),
        (),  # a renewal is no event: it would bind the journal for nothing
        refused=_stale(lambda once, token: once.renew(token)),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /once/complete",
        _with_token(lambda once, token: once.complete(token, {"n": 1})),
        ("once.completed",),
        refused=_stale(lambda once, token: once.complete(token)),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /once/fail",
        _with_token(lambda once, token: once.fail(token)),
        ("once.failed",),
        refused=_stale(lambda once, token: once.fail(token)),
        after_end="SCOPE_CANCELLED",
    ),
]

_ONCE = {"scopeId": "id", "key": "key"}
_OWNED = _ONCE | {"token": "token"}

SHAPES = [
    Shape(
        "POST /once/acquire",
        lambda c: _once(c).acquire(),
        _ONCE | {"holder": "name", "holderSession": "name", "leaseSeconds": "lease"},
        frozenset({"scopeId", "key", "holder", "holderSession"}),
    ),
    Shape(
        "POST /once/renew",
        _with_token(lambda once, token: once.renew(token)),
        _OWNED | {"leaseSeconds": "lease"},
        frozenset(_OWNED),
    ),
    Shape(
        "POST /once/complete",
        _with_token(lambda once, token: once.complete(token, 1)),
        _OWNED | {"result": "json"},
        frozenset(_OWNED),
        shows=lambda call, _: Once(call.body["scopeId"], call.body["key"]).view(),
    ),
    Shape(
        "POST /once/fail",
        _with_token(lambda once, token: once.fail(token)),
        _OWNED | {"error": "text", "maxAttempts": "1..100"},
        frozenset(_OWNED) | {"error", "maxAttempts"},
    ),
    Shape(
        "GET /once",
        lambda c: Call("GET", f"/once?scopeId={scope(c)}&key=k"),
        query=_ONCE | {"waitMs": "0..30000"},
        required_query=frozenset({"scopeId", "key"}),
    ),
]
