"""Permits: pools, their grants, their waiters."""

import uuid
from collections.abc import Callable
from typing import Any

import httpx

from tests.promises.kinds import Make, Mutation, Shape
from tests.support.builders import Call, ok, scope
from tests.support.permits import Pool, leave, look, pool, release, renew

UNITS = "1..1000000000"


def _free_name() -> str:
    """Of one that is not there yet: rows make theirs anew each time, and many before any is sent."""
    return f"pool-{uuid.uuid4()}"


def _pool(client: httpx.Client, units: int = 2) -> Pool:
    return pool(client, scope(client), units, _free_name())


def _vast(client: httpx.Client) -> Pool:
    return _pool(client, 1_000_000_000)


def _full(client: httpx.Client) -> Pool:
    made = _pool(client)
    ok(made.acquire(2).send(client))
    return made


def _grant(verb: Callable[[dict[str, Any]], Call], *, released: bool = False) -> Make:
    def make(client: httpx.Client) -> Call:
        grant = ok(_pool(client).acquire().send(client))
        if released:
            ok(release(grant).send(client))
        return verb(grant)

    return make


_OBSERVED: dict[str, str] = {}  # the pool of a release, whose call does not tell


def _observing(client: httpx.Client) -> Call:
    made = _pool(client)
    call = release(ok(made.acquire().send(client)), observation=1)
    _OBSERVED[call.path] = made.id
    return call


def _waiter(client: httpx.Client) -> str:
    return str(ok(_full(client).wait().send(client))["waiterId"])


def _left(client: httpx.Client) -> Call:
    waiter = _waiter(client)
    ok(leave(waiter).send(client))
    return leave(waiter)


def _named(units: int | None) -> Make:
    def make(client: httpx.Client) -> Call:
        made = _pool(client)
        return Call("PUT", f"/permits/by-name/{made.name}", {} if units is None else {"units": units})

    return make


def _new(client: httpx.Client) -> Call:
    return Call("POST", "/permits", {"name": _free_name(), "units": 2})


def _new_by_name(client: httpx.Client) -> Call:
    return Call("PUT", f"/permits/by-name/{_free_name()}", {"units": 2})


def _again(client: httpx.Client) -> Call:
    return Call("POST", "/permits", {"name": _pool(client).name, "units": 2})


MUTATIONS = [
    Mutation("POST /permits", _new, ("resource.created",), refused=_again),
    Mutation(
        "PUT /permits/by-name/{name}",
        _new_by_name,
        ("resource.created",),
        refused=_named(3),
        idle=_named(None),
    ),
    Mutation(
        "PATCH /permits/{pool_id}",
        lambda c: _pool(c).resize(5),
        ("permit.resized",),
        idle=lambda c: _pool(c).resize(2),
    ),
    Mutation(
        "POST /permits/{pool_id}/acquire",
        lambda c: _pool(c).acquire(),
        ("permit.granted",),
        refused=lambda c: _full(c).acquire(),
        after_end="SCOPE_CANCELLED",
        renewal=lambda _, told: renew(told),
    ),
    Mutation(
        "POST /permits/{pool_id}/wait",
        lambda c: _full(c).wait(),
        (),  # the contract has no word for it
        after_end="SCOPE_CANCELLED",
    ),
    Mutation("POST /permit-waiters/{permit_waiter_id}/cancel", lambda c: leave(_waiter(c)), (), idle=_left),
    Mutation(
        "POST /grants/{grant_id}/renew",
        _grant(lambda grant: renew(grant, 600)),
        (),  # a renewal is no event
        refused=_grant(renew, released=True),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /grants/{grant_id}/release",
        _grant(release),
        ("permit.released",),
        refused=_grant(release, released=True),
    ),
]

SHAPES = [
    Shape(
        "POST /permits",
        _new,
        {"name": "name", "units": UNITS},
        frozenset({"name", "units"}),
        needs=("resource_config",),
    ),
    Shape(
        "GET /permits",
        lambda c: Call("GET", "/permits?limit=1"),
        query={"cursor": "cursor", "limit": "1..500"},
    ),
    Shape("GET /permits/{pool_id}", lambda c: _pool(c).view()),
    Shape(
        "PUT /permits/by-name/{name}",
        _named(2),
        {"units": UNITS},
        needs=("runtime", "resource_config"),
    ),
    Shape(
        "PATCH /permits/{pool_id}",
        lambda c: _pool(c).resize(5),
        {"units": UNITS},
        frozenset({"units"}),
        needs=("resource_config",),
    ),
    Shape(
        "POST /permits/{pool_id}/acquire",
        lambda c: _vast(c).acquire(),
        {
            "scopeId": "id",
            "units": UNITS,
            "holder": "name",
            "holderSession": "name",
            "leaseSeconds": "lease",
            "waiterId": "id",
        },
        frozenset({"scopeId", "units", "holder", "holderSession"}),
    ),
    Shape(
        "POST /permits/{pool_id}/wait",
        lambda c: _vast(c).wait(),
        {"scopeId": "id", "units": UNITS, "holder": "name", "ttlSeconds": "lease"},
        frozenset({"scopeId", "units", "holder"}),
    ),
    Shape("GET /permit-waiters/{permit_waiter_id}", lambda c: look(_waiter(c)), query={"waitMs": "0..30000"}),
    Shape("POST /permit-waiters/{permit_waiter_id}/cancel", lambda c: leave(_waiter(c))),
    Shape(
        "POST /grants/{grant_id}/renew",
        _grant(renew),
        {"token": "token", "leaseSeconds": "lease"},
        frozenset({"token"}),
    ),
    Shape(
        "POST /grants/{grant_id}/release",
        _observing,
        {"token": "token", "observation": "json"},
        frozenset({"token"}),
        shows=lambda call, _: Call("GET", f"/permits/{_OBSERVED[call.path]}"),
    ),
]
