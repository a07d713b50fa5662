"""Barriers."""

import uuid

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.support.barriers import Barrier, barrier, made, named
from tests.support.builders import Call, end, ok, scope

TARGET = "1..10000"


def _barrier(client: httpx.Client, target: int = 3) -> Barrier:
    return barrier(client, scope(client), target)


def _named(client: httpx.Client, target: int = 3) -> Call:
    """A look at one that is there, as if to have it with that target."""
    root, name = scope(client), f"start-{uuid.uuid4()}"
    ok(named(root, name).send(client))
    return named(root, name, target)


def _released(client: httpx.Client) -> Barrier:
    full = _barrier(client, 1)
    ok(full.arrive("first").send(client))
    return full


def _cancelled(client: httpx.Client) -> Barrier:
    root = scope(client)
    over = barrier(client, root)
    ok(end(root).send(client))
    return over


MUTATIONS = [
    Mutation(
        "POST /barriers",
        lambda c: made(scope(c)),
        ("resource.created",),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "PUT /barriers/by-name/{name}",
        lambda c: named(scope(c), "start"),
        ("resource.created",),
        refused=lambda c: _named(c, 4),
        idle=_named,
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /barriers/{barrier_id}/arrive",
        lambda c: _barrier(c, 2).arrive(),
        ("barrier.arrived",),
        refused=lambda c: _released(c).arrive("late"),
        idle=lambda c: _released(c).arrive("first"),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /barriers/{barrier_id}/reset",
        lambda c: _barrier(c).reset(),
        ("resource.updated",),
        refused=lambda c: _cancelled(c).reset(),
        after_end="BARRIER_CANCELLED",
    ),
]

SHAPES = [
    Shape(
        "POST /barriers",
        lambda c: made(scope(c)),
        {"scopeId": "id", "target": TARGET},
        frozenset({"scopeId", "target"}),
    ),
    Shape(
        "PUT /barriers/by-name/{name}",
        lambda c: named(scope(c), "start"),
        {"scopeId": "id", "target": TARGET},
        frozenset({"scopeId", "target"}),
    ),
    Shape("GET /barriers/{barrier_id}", lambda c: _barrier(c).view(), query={"waitMs": "0..30000"}),
    Shape(
        "POST /barriers/{barrier_id}/arrive",
        lambda c: _barrier(c).arrive(),
        {"arrivalKey": "key"},
        frozenset({"arrivalKey"}),
    ),
    Shape("POST /barriers/{barrier_id}/reset", lambda c: _barrier(c).reset()),
]
