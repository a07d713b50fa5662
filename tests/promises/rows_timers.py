"""Timers."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.support.builders import Call, end, ok, scope
from tests.support.timers import HOUR, Timers, ack, cancel, look

PAST = "2001-01-01T00:00:00.000Z"
WHEN = frozenset({"afterSeconds", "at"})
SET = {"scopeId": "id", "afterSeconds": "delay", "at": "instant ahead"}


def _timers(client: httpx.Client) -> Timers:
    return Timers(scope(client))


def _in_ended(client: httpx.Client) -> Timers:
    it = _timers(client)
    ok(end(it.scope).send(client))
    return it


def _named_before(client: httpx.Client) -> Call:
    it = _timers(client)
    ok(it.named("nightly", HOUR).send(client))
    return it.named("nightly", at=PAST)


def _acked(client: httpx.Client) -> Call:
    call = ack(*_timers(client).fired(client))
    ok(call.send(client))
    return call


def _cancelled(client: httpx.Client) -> Call:
    call = cancel(_timers(client).pending(client))
    ok(call.send(client))
    return call


MUTATIONS = [
    Mutation(
        "POST /timers",
        lambda c: _timers(c).create(HOUR),
        ("timer.created",),
        refused=lambda c: _in_ended(c).create(HOUR),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /timers that are due",
        lambda c: _timers(c).create(at=PAST),
        ("timer.created", "timer.fired"),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "PUT /timers/by-name/{name}",
        lambda c: _timers(c).named("nightly", HOUR),
        ("timer.created",),
        refused=lambda c: _in_ended(c).named("nightly", HOUR),
        idle=_named_before,
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /timers/{timer_id}/ack",
        lambda c: ack(*_timers(c).fired(c)),
        ("timer.acked",),
        refused=lambda c: ack(_timers(c).fired(c)[0], "another"),
        idle=_acked,
    ),
    Mutation(
        "POST /timers/{timer_id}/cancel",
        lambda c: cancel(_timers(c).pending(c)),
        ("timer.cancelled",),
        refused=lambda c: cancel(_timers(c).fired(c)[0]),
        idle=_cancelled,
    ),
]

SHAPES = [
    Shape(
        "POST /timers",
        lambda c: _timers(c).create(HOUR),
        SET,
        frozenset({"scopeId"}),
        one_of=WHEN,
    ),
    Shape(
        "PUT /timers/by-name/{name}",
        lambda c: _timers(c).named("nightly", HOUR),
        SET,
        frozenset({"scopeId"}),
        one_of=WHEN,
    ),
    Shape(
        "POST /timers/poll",
        lambda c: _timers(c).poll(),
        {"scopeId": "id", "waitMs": "0..30000"},
        frozenset({"scopeId"}),
    ),
    Shape("GET /timers/{timer_id}", lambda c: look(_timers(c).pending(c)), query={"waitMs": "0..30000"}),
    Shape(
        "POST /timers/{timer_id}/ack",
        lambda c: ack(*_timers(c).fired(c)),
        {"token": "token"},
        frozenset({"token"}),
    ),
    Shape("POST /timers/{timer_id}/cancel", lambda c: cancel(_timers(c).pending(c))),
]
