"""Scopes and runs."""

import httpx

from tests.promises.kinds import Make, Mutation, Shape
from tests.support.builders import Call, end, ok, scope


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
    Mutation("POST /scopes", lambda _: Call("POST", "/scopes", {"name": "nightly"}), ("scope.created",)),
    Mutation(
        "POST /scopes of a child",
        lambda c: Call("POST", "/scopes", {"parentId": scope(c)}),
        ("scope.created",),
        refused=_full,
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /scopes/{scope_id}/cancel",
        lambda c: end(scope(c)),
        ("scope.cancelled",),
        refused=_ended("complete", "cancel"),
        idle=_ended("cancel", "cancel"),
    ),
    Mutation(
        "POST /scopes/{scope_id}/complete",
        lambda c: end(scope(c), "complete"),
        ("scope.completed",),
        refused=_ended("cancel", "complete"),
        idle=_ended("complete", "complete"),
    ),
    Mutation("PUT /runs/{name}", _new_run, ("scope.created",), idle=_joined),
]

SHAPES = [
    Shape(
        "POST /scopes",
        lambda c: Call("POST", "/scopes", {"name": "n", "parentId": scope(c)}),
        {"name": "name", "parentId": "id", "deadline": "instant", "childLimit": "1..10000"},
    ),
    Shape("PUT /runs/{name}", lambda _: Call("PUT", "/runs/r", {}), {"deadline": "instant"}),
    Shape("POST /scopes/{scope_id}/cancel", lambda c: end(scope(c))),
    Shape("POST /scopes/{scope_id}/complete", lambda c: end(scope(c), "complete")),
    Shape("GET /scopes/{scope_id}", lambda c: Call("GET", f"/scopes/{scope(c)}")),
    Shape(
        "GET /scopes",
        lambda _: Call("GET", "/scopes"),
        query={"parentId": "id", "state": "state", "name": "name", "cursor": "cursor", "limit": "1..500"},
        needs=("observe",),
    ),
]
