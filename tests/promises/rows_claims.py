"""Claims."""

from collections.abc import Callable

import httpx

from tests.promises.kinds import Make, Mutation, Shape
from tests.support.builders import Call, ok, scope
from tests.support.queues import Claim


def _claim(client: httpx.Client) -> Claim:
    return Claim(scope(client))


def _token(client: httpx.Client, claim: Claim) -> str:
    return ok(claim.acquire().send(client), 201)["token"]


def _with_token(verb: Callable[[Claim, str], Call]) -> Make:
    def make(client: httpx.Client) -> Call:
        claim = _claim(client)
        return verb(claim, _token(client, claim))

    return make


def _observing(client: httpx.Client) -> Call:
    """The release of a claim whose key is the id of its scope, so that the call tells both."""
    root = scope(client)
    claim = Claim(root, root)
    return claim.release(_token(client, claim), observation=1)


def _held_already(client: httpx.Client) -> Call:
    claim = _claim(client)
    _token(client, claim)
    return claim.acquire("another")


def _released(verb: Callable[[Claim, str], Call]) -> Make:
    def make(client: httpx.Client) -> Call:
        claim = _claim(client)
        token = _token(client, claim)
        ok(claim.release(token).send(client))
        return verb(claim, token)

    return make


MUTATIONS = [
    Mutation(
        "POST /claims",
        lambda c: _claim(c).acquire(),
        ("claim.acquired",),
        refused=_held_already,
        after_end="SCOPE_CANCELLED",
        renewal=lambda call, told: Claim(told["scopeId"], told["key"]).renew(told["token"]),
    ),
    Mutation(
        "POST /claims/{key}/renew",
        _with_token(lambda claim, token: claim.renew(token, 600)),
        (),  # a renewal is no event
        refused=_released(lambda claim, token: claim.renew(token)),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /claims/{key}/release",
        _with_token(lambda claim, token: claim.release(token, observation={"seen": 1})),
        ("claim.released",),
        refused=_released(lambda claim, token: claim.release(token)),
        after_end="STALE_CLAIM",
    ),
]

SHAPES = [
    Shape(
        "POST /claims",
        lambda c: _claim(c).acquire(),
        {
            "key": "key",
            "scopeId": "id",
            "holder": "name",
            "holderSession": "name",
            "leaseSeconds": "lease",
            "waitMs": "0..30000",
        },
        frozenset({"key", "scopeId", "holder", "holderSession"}),
    ),
    Shape(
        "POST /claims/{key}/renew",
        _with_token(lambda claim, token: claim.renew(token, 60)),
        {"token": "token", "leaseSeconds": "lease"},
        frozenset({"token"}),
    ),
    Shape(
        "POST /claims/{key}/release",
        _observing,
        {"token": "token", "observation": "json"},
        frozenset({"token"}),
        shows=lambda call, _: Claim(call.path.split("/")[2], call.path.split("/")[2]).view(),
    ),
    Shape(
        "GET /claims/{key}",
        lambda c: _claim(c).view(),
        query={"scopeId": "id"},
        required_query=frozenset({"scopeId"}),
    ),
]
