"""Mailboxes, as definitions."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.support.builders import Call, ok, scope
from tests.support.queues import mailbox

SETTINGS = {"mode": "INBOX", "backlogLimit": 10, "maxAttempts": 3}


def _name(client: httpx.Client) -> str:
    return f"box-{scope(client)}"


def _new(client: httpx.Client) -> Call:
    return Call("POST", "/mailboxes", {"name": _name(client)} | SETTINGS)


def _existing(client: httpx.Client) -> Call:
    name = _name(client)
    mailbox(client, "", name)
    return Call("POST", "/mailboxes", {"name": name})


def _by_name(name: str, **settings: object) -> Call:
    return Call("PUT", f"/mailboxes/by-name/{name}", settings)


def _made(client: httpx.Client) -> str:
    """The name of a mailbox that exists."""
    name = _name(client)
    ok(_by_name(name, **SETTINGS).send(client))
    return name


MUTATIONS = [
    Mutation("POST /mailboxes", _new, ("resource.created",), refused=_existing),
    Mutation(
        "PUT /mailboxes/by-name/{name}",
        lambda c: _by_name(_name(c), **SETTINGS),
        ("resource.created",),
        refused=lambda c: _by_name(_made(c), mode="WORK"),
        idle=lambda c: _by_name(_made(c), **SETTINGS),
    ),
    Mutation(
        "PUT /mailboxes/by-name/{name} of one that exists",
        lambda c: _by_name(_made(c), maxAttempts=7),
        ("resource.updated",),
        idle=lambda c: _by_name(_made(c)),
    ),
]

_SETTINGS = {
    "mode": "mode",
    "backlogLimit": "1..1000000000",
    "maxAttempts": "1..100",
    "requirements": "needs",
}

SHAPES = [
    Shape(
        "POST /mailboxes",
        _new,
        {"name": "name"} | _SETTINGS,
        frozenset({"name"}),
        needs=("resource_config",),
    ),
    Shape(
        "GET /mailboxes",
        lambda _: Call("GET", "/mailboxes"),
        query={"cursor": "cursor", "limit": "1..500"},
        needs=("runtime",),
    ),
    Shape(
        "PUT /mailboxes/by-name/{name}",
        lambda c: _by_name(_name(c)),
        _SETTINGS,
        needs=("runtime", "resource_config"),
    ),
]
