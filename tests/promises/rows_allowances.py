"""Allowances: their windows, and those who wait for the next one."""

import uuid

import httpx

from tests.promises.kinds import Make, Mutation, Shape
from tests.support.allowances import Allowance, allowance, leave, look
from tests.support.builders import Call, ok, scope

UNITS = "1..1000000000"
WINDOW = "1..86400"


def _free_name() -> str:
    """Of one that is not there yet: rows make theirs anew each time, and many before any is sent."""
    return f"allowance-{uuid.uuid4()}"


def _allowance(client: httpx.Client, units: int = 2) -> Allowance:
    return allowance(client, scope(client), units, name=_free_name())


def _vast(client: httpx.Client) -> Allowance:
    return _allowance(client, 1_000_000_000)


def _spent(client: httpx.Client) -> Allowance:
    made = _allowance(client)
    ok(made.consume(2).send(client))
    return made


def _waiter(client: httpx.Client) -> str:
    return str(ok(_spent(client).wait().send(client))["waiterId"])


def _left(client: httpx.Client) -> Call:
    waiter = _waiter(client)
    ok(leave(waiter).send(client))
    return leave(waiter)


def _named(units: int | None) -> Make:
    def make(client: httpx.Client) -> Call:
        made = _allowance(client)
        sizes = {} if units is None else {"unitsLimit": units, "windowSeconds": 86_400}
        return Call("PUT", f"/allowances/by-name/{made.name}", sizes)

    return make


def _new(client: httpx.Client) -> Call:
    made = {"name": _free_name(), "unitsLimit": 2, "windowSeconds": 60}
    return Call("POST", "/allowances", made)


def _new_by_name(client: httpx.Client) -> Call:
    sizes = {"unitsLimit": 2, "windowSeconds": 60}
    return Call("PUT", f"/allowances/by-name/{_free_name()}", sizes)


def _again(client: httpx.Client) -> Call:
    made = {"name": _allowance(client).name, "unitsLimit": 2, "windowSeconds": 60}
    return Call("POST", "/allowances", made)


def _cooling(client: httpx.Client) -> Call:
    made = _allowance(client)
    ok(made.cool(3600).send(client))
    return made.cool(60)


MUTATIONS = [
    Mutation("POST /allowances", _new, ("resource.created",), refused=_again),
    Mutation(
        "PUT /allowances/by-name/{name}",
        _new_by_name,
        ("resource.created",),
        refused=_named(3),
        idle=_named(None),
    ),
    Mutation(
        "PATCH /allowances/{allowance_id}",
        lambda c: _allowance(c).resize(unitsLimit=5, windowSeconds=60),
        ("resource.updated",),
        idle=lambda c: _allowance(c).resize(unitsLimit=2),
    ),
    Mutation(
        "POST /allowances/{allowance_id}/consume",
        lambda c: _allowance(c).consume(),
        ("allowance.consumed",),
        refused=lambda c: _spent(c).consume(),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /allowances/{allowance_id}/wait",
        lambda c: _spent(c).wait(),
        (),  # the contract has no word for it
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /allowance-waiters/{allowance_waiter_id}/cancel", lambda c: leave(_waiter(c)), (), idle=_left
    ),
    Mutation(
        "POST /allowances/{allowance_id}/cooldown",
        lambda c: _allowance(c).cool(60, reason="429"),
        ("allowance.cooldown",),
        idle=_cooling,
    ),
]

SHAPES = [
    Shape(
        "POST /allowances",
        _new,
        {"name": "name", "unitsLimit": UNITS, "windowSeconds": WINDOW},
        frozenset({"name", "unitsLimit", "windowSeconds"}),
        needs=("resource_config",),
    ),
    Shape(
        "GET /allowances",
        lambda c: Call("GET", "/allowances?limit=1"),
        query={"cursor": "cursor", "limit": "1..500"},
    ),
    Shape("GET /allowances/{allowance_id}", lambda c: _allowance(c).view()),
    Shape(
        "PUT /allowances/by-name/{name}",
        _named(2),
        {"unitsLimit": UNITS, "windowSeconds": WINDOW},
        needs=("runtime", "resource_config"),
    ),
    Shape(
        "PATCH /allowances/{allowance_id}",
        lambda c: _allowance(c).resize(unitsLimit=5, windowSeconds=60),
        {"unitsLimit": UNITS, "windowSeconds": WINDOW},
        needs=("resource_config",),
    ),
    Shape(
        "POST /allowances/{allowance_id}/consume",
        lambda c: _vast(c).consume(),
        {"scopeId": "id", "units": UNITS, "holder": "name"},
        frozenset({"scopeId", "units", "holder"}),
    ),
    Shape(
        "POST /allowances/{allowance_id}/wait",
        lambda c: _vast(c).wait(),
        {"scopeId": "id", "units": UNITS, "holder": "name", "ttlSeconds": "lease"},
        frozenset({"scopeId", "units", "holder"}),
    ),
    Shape(
        "GET /allowance-waiters/{allowance_waiter_id}",
        lambda c: look(_waiter(c)),
        query={"waitMs": "0..30000"},
    ),
    Shape("POST /allowance-waiters/{allowance_waiter_id}/cancel", lambda c: leave(_waiter(c))),
    Shape(
        "POST /allowances/{allowance_id}/cooldown",
        lambda c: _allowance(c).cool(60),
        {"seconds": "cooldown", "reason": "text"},
        frozenset({"seconds"}),
    ),
]
