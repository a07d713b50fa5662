"""Timers on the wire."""

from enum import StrEnum

from pydantic import ConfigDict, JsonValue

from runstate_server.web.bodies import Body
from runstate_server.web.fields import BodyWaitMs, DelaySeconds, Id, Instant, Token
from runstate_server.web.schemas import View


class State(StrEnum):
    """What a timer is; in a scope that has ended one that had not fired is CANCELLED or EXPIRED."""

    PENDING = "PENDING"
    FIRED = "FIRED"
    ACKED = "ACKED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


def _given(name: str, kind: str, *, but: str) -> dict[str, JsonValue]:
    """That one field is given, and another one is not, as the document says it."""
    return {"required": [name], "properties": {name: {"type": kind}, but: {"type": "null"}}}


class TimerIn(Body):
    """Exactly one of afterSeconds, from now, and at, an instant at most 366 days ahead; one that is past
    fires at once."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [_given("afterSeconds", "number", but="at"), _given("at", "string", but="afterSeconds")],
            "examples": [{"scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47", "afterSeconds": 3600}],
        }
    )

    scope_id: Id
    after_seconds: DelaySeconds | None = None
    at: Instant | None = None


class PollIn(Body):
    """waitMs: how long to wait until a timer fires."""

    scope_id: Id
    wait_ms: BodyWaitMs = 0


class AckIn(Body):
    """token: as POST, PUT and poll tell it of a timer that has fired."""

    token: Token


class TimerView(View):
    """firedAt: null unless it has fired; now: the database's clock at this answer."""

    id: str
    name: str | None
    scope_id: str
    state: State
    fire_at: str
    fired_at: str | None
    now: str


class TimerSet(TimerView):
    """token: there while the state is FIRED."""

    token: str | None = None


class FiredTimer(View):
    """One that waits to be acknowledged."""

    id: str
    name: str | None
    token: str
    fired_at: str


class PollOut(View):
    """The first fired first, 500 at most."""

    timers: list[FiredTimer]


class AckOut(View):
    """Always ACKED."""

    state: State
