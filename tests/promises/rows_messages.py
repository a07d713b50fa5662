"""Messages, and what goes through a mailbox."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.support.builders import Call, end, ok, scope
from tests.support.queues import Delivery, Mailbox, dead, mailbox, redrive, sent, taken

PAYLOAD = {"n": 1, "words": ["a", None, 2.5]}


def box(client: httpx.Client, **settings: object) -> Mailbox:
    """A mailbox of its own, looked at from a run of its own."""
    root = scope(client)
    return mailbox(client, root, f"box-{root}", **settings)


def _full(client: httpx.Client) -> Mailbox:
    full = box(client, backlogLimit=1)
    sent(client, full)
    return full


def _ended(client: httpx.Client) -> Mailbox:
    it = box(client)
    ok(end(it.scope).send(client))
    return it


def _sent_before(client: httpx.Client) -> Call:
    it = box(client)
    sent(client, it, workKey="w")
    return it.send("again", workKey="w")


def _filled(client: httpx.Client) -> Mailbox:
    filled = box(client)
    sent(client, filled, PAYLOAD)
    return filled


def _held(client: httpx.Client) -> Delivery:
    return taken(client, _filled(client).recv())


def _settled(client: httpx.Client) -> Delivery:
    held = _held(client)
    ok(held.complete().send(client))
    return held


def _sent_on(client: httpx.Client) -> Call:
    there = box(client)
    sent(client, there, PAYLOAD)
    return taken(client, there.recv()).complete({"n": 2}, mailboxId=there.id, scopeId=there.scope)


def _renewal(_: Call, told: dict) -> Call:
    return Delivery(told["message"]["id"], told["token"], 1, None).renew()


def _delivery(name: str, verb: Callable[[Delivery], Call], *tells: str) -> Mutation:
    """A verb of whoever holds a message."""
    return Mutation(
        f"POST /messages/{{message_id}}/{name}",
        lambda c: verb(_held(c)),
        tells,
        refused=lambda c: verb(_settled(c)),
        after_end="SCOPE_CANCELLED",
    )


MUTATIONS = [
    Mutation(
        "POST /mailboxes/{mailbox_id}/messages",
        lambda c: box(c).send(PAYLOAD, workKey="w", priority=5, delaySeconds=0.5),
        ("message.sent",),
        refused=lambda c: _full(c).send(),
        idle=_sent_before,
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /mailboxes/{mailbox_id}/recv",
        lambda c: _filled(c).recv(),
        ("message.delivered",),
        refused=lambda c: _ended(c).recv(),
        idle=lambda c: box(c).recv(),
        after_end="SCOPE_CANCELLED",
        renewal=_renewal,
    ),
    _delivery("renew", lambda held: held.renew(600)),
    _delivery("complete", lambda held: held.complete({"n": 1}), "message.acked"),
    Mutation(
        "POST /messages/{message_id}/complete that sends on",
        _sent_on,
        ("message.sent", "message.acked"),  # two changes, of two messages
        after_end="SCOPE_CANCELLED",
    ),
    _delivery("nack", lambda held: held.nack(error="boom", delaySeconds=5), "message.retried"),
    _delivery("nack with handBack", lambda held: held.nack(handBack=True), "message.retried"),
    _delivery("nack that gives up", lambda held: held.nack(retry=False, error="boom"), "message.dead"),
    Mutation(
        "POST /messages/{message_id}/redrive",
        lambda c: redrive(dead(c, box(c)).id),
        ("message.retried",),
        refused=lambda c: redrive(_settled(c).id),
        after_end="SCOPE_CANCELLED",
    ),
]

TAKING = {
    "scopeId": "id",
    "holder": "name",
    "holderSession": "name",
    "leaseSeconds": "lease",
    "waitMs": "0..30000",
    "includeDescendants": "boolean",
}
TAKING_REQUIRED = frozenset({"scopeId", "holder", "holderSession"})


def _message(name: str, verb: Callable[[Delivery], Call], **fields: str) -> Shape:
    required = frozenset({"token", "retry"}) & ({"token"} | fields.keys())
    path = f"POST /messages/{{message_id}}/{name}"
    return Shape(path, lambda c: verb(_held(c)), {"token": "token"} | fields, required)


def _letter(call: Call, _: Any) -> Call:
    """The next delivery of the mailbox that was sent to."""
    return Mailbox(call.path.split("/")[2], call.body["scopeId"]).recv()


def _reply(call: Call, _: Any) -> Call:
    result = call.body["result"]
    return Mailbox(result["mailboxId"], result["scopeId"]).recv()


SHAPES = [
    Shape("GET /mailboxes/{mailbox_id}", lambda c: _filled(c).view()),
    Shape(
        "POST /mailboxes/{mailbox_id}/messages",
        lambda c: box(c).send(PAYLOAD),
        {
            "scopeId": "id",
            "payload": "json",
            "workKey": "key",
            "deadline": "instant",
            "priority": "-100..100",
            "delaySeconds": "delay",
        },
        frozenset({"scopeId"}),
        shows=_letter,
    ),
    Shape(
        "GET /mailboxes/{mailbox_id}/messages",
        lambda c: _filled(c).messages(),
        query={"state": "state", "scopeId": "id", "cursor": "cursor", "limit": "1..500"},
        needs=("observe",),
    ),
    Shape("POST /mailboxes/{mailbox_id}/recv", lambda c: _filled(c).recv(), TAKING, TAKING_REQUIRED),
    _message("renew", lambda held: held.renew(60), leaseSeconds="lease"),
    Shape(
        "POST /messages/{message_id}/complete",
        _sent_on,
        {"token": "token", "result": "result"},
        frozenset({"token"}),
        shows=_reply,
    ),
    _message(
        "nack",
        lambda held: held.nack(),
        retry="boolean",
        error="text",
        delaySeconds="delay",
        handBack="boolean",
    ),
    Shape("POST /messages/{message_id}/redrive", lambda c: redrive(dead(c, box(c)).id)),
]
