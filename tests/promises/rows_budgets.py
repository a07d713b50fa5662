"""Budgets: definitions, reservations, the ledger."""

import uuid
from collections.abc import Callable
from typing import Any

import httpx

from tests.promises.kinds import Make, Mutation, Shape
from tests.support.budgets import Budget, budget, define, reserved
from tests.support.builders import Call, ok, scope


def _free_name() -> str:
    """Of one that is not there yet: rows make theirs anew each time, and many before any is sent."""
    return f"budget-{uuid.uuid4()}"


def _budget(client: httpx.Client, minor: int = 1000) -> Budget:
    return budget(client, scope(client), minor, _free_name())


def _new(client: httpx.Client) -> Call:
    return define(1000, _free_name())


def _by_name(name: str, **settings: Any) -> Call:
    return Call("PUT", f"/budgets/by-name/{name}", settings)


def _new_by_name(client: httpx.Client) -> Call:
    return _by_name(_free_name(), currency="USD", scale=2, limitMinor="1000")


def _named(**settings: Any) -> Make:
    return lambda client: _by_name(_budget(client).name, **settings)


def _reserved(verb: Callable[[Budget, str], Call], *before: Callable[[Budget, str], Call]) -> Make:
    def make(client: httpx.Client) -> Call:
        money = _budget(client)
        reservation = reserved(client, money)
        for each in before:
            ok(each(money, reservation).send(client))
        return verb(money, reservation)

    return make


def _settle(money: Budget, reservation: str) -> Call:
    return money.settle(reservation, 30)


def _void(money: Budget, reservation: str) -> Call:
    return money.void(reservation)


MUTATIONS = [
    Mutation(
        "POST /budgets",
        _new,
        ("resource.created",),
        refused=lambda c: define(1000, _budget(c).name),
    ),
    Mutation(
        "PUT /budgets/by-name/{name}",
        _new_by_name,
        ("resource.created",),
        refused=_named(limitMinor="7"),
        idle=_named(currency="USD", scale=2, limitMinor="1000", holdStale=False),
    ),
    Mutation(
        "PATCH /budgets/{budget_id}",
        lambda c: _budget(c).limit(2000),
        ("resource.updated",),
        refused=_reserved(lambda money, _: money.limit(99)),
        idle=lambda c: _budget(c).limit(1000),
    ),
    Mutation(
        "POST /budgets/{budget_id}/reserve",
        lambda c: _budget(c).reserve(),
        ("budget.reserved",),
        refused=lambda c: _budget(c).reserve(1001),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /budgets/{budget_id}/settle",
        _reserved(_settle),
        ("budget.settled",),
        refused=_reserved(lambda money, it: money.settle(it, 101)),
        idle=_reserved(_settle, _settle),
    ),
    Mutation(
        "POST /budgets/{budget_id}/settle of more than there is",
        _reserved(lambda money, it: money.overrun(it, 1001)),
        ("budget.settled", "budget.overrun"),
        idle=_reserved(lambda money, it: money.overrun(it, 1001), lambda money, it: money.overrun(it, 1001)),
    ),
    Mutation(
        "POST /budgets/{budget_id}/void",
        _reserved(_void),
        ("budget.voided",),
        refused=_reserved(_void, lambda money, it: money.settle(it, 100)),
        idle=_reserved(_void, _void),
    ),
]

_SETTINGS = {"currency": "currency", "scale": "0..9", "limitMinor": "minor"}

SHAPES = [
    Shape(
        "POST /budgets",
        _new,
        {"name": "name", "holdStale": "boolean"} | _SETTINGS,
        frozenset({"name", "currency", "scale", "limitMinor"}),
        needs=("resource_config",),
    ),
    Shape(
        "GET /budgets",
        lambda _: Call("GET", "/budgets"),
        query={"cursor": "cursor", "limit": "1..500"},
    ),
    Shape("GET /budgets/{budget_id}", lambda c: _budget(c).view()),
    Shape(
        "PUT /budgets/by-name/{name}",
        _named(currency="USD", scale=2, limitMinor="1000"),
        {"holdStale": "boolean"} | _SETTINGS,
        needs=("runtime", "resource_config"),
    ),
    Shape(
        "PATCH /budgets/{budget_id}",
        lambda c: _budget(c).limit(10**18),
        {"limitMinor": "minor"},
        frozenset({"limitMinor"}),
        needs=("resource_config",),
    ),
    Shape(
        "POST /budgets/{budget_id}/reserve",
        lambda c: _budget(c).reserve(),
        {"scopeId": "id", "holder": "name", "amountMinor": "positive minor", "settleBy": "instant"},
        frozenset({"scopeId", "holder", "amountMinor"}),
    ),
    Shape(
        "POST /budgets/{budget_id}/settle",
        _reserved(lambda money, it: money.overrun(it, 30)),
        {"reservationId": "id", "amountMinor": "minor", "workKey": "key", "allowOverrun": "boolean"},
        frozenset({"reservationId", "amountMinor", "workKey"}),
    ),
    Shape(
        "POST /budgets/{budget_id}/void",
        _reserved(_void),
        {"reservationId": "id", "workKey": "key"},
        frozenset({"reservationId", "workKey"}),
    ),
    Shape(
        "GET /budgets/{budget_id}/entries",
        lambda c: _budget(c).entries(),
        query={"cursor": "cursor", "limit": "1..500"},
        needs=("observe",),
    ),
]
