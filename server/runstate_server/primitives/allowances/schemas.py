"""Allowances on the wire."""

from enum import StrEnum

from pydantic import ConfigDict

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import (
    CooldownSeconds,
    Holder,
    Id,
    Name,
    Text,
    TtlSeconds,
    Units,
    WindowSeconds,
)
from runstate_server.web.schemas import View


class State(StrEnum):
    """What a waiter in the line is."""

    WAITING = "WAITING"
    GRANTED = "GRANTED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class AllowanceIn(Body):
    """A new allowance: so many units in so many seconds."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "search-api", "unitsLimit": 60, "windowSeconds": 60}]}
    )

    name: Name
    units_limit: Units
    window_seconds: WindowSeconds


class SizeIn(Body):
    """Both: create the allowance with them. Those that are given are checked against what is there."""

    units_limit: Units | None = None
    window_seconds: WindowSeconds | None = None


class ResizeIn(Body):
    """The new sizes; what is left out stays."""

    units_limit: Units | None = None
    window_seconds: WindowSeconds | None = None


class ConsumeIn(Body):
    """Units of this window."""

    scope_id: Id
    units: Units
    holder: Holder


class WaitIn(Body):
    """ttlSeconds: the waiter expires when it is not looked after for so long."""

    scope_id: Id
    units: Units
    holder: Holder
    ttl_seconds: TtlSeconds = bounds.ttl_s_default


class CancelIn(Body):
    """Nothing is needed."""


class CooldownIn(Body):
    """reason: for people, kept in the journal."""

    seconds: CooldownSeconds
    reason: Text | None = None


class AllowanceView(View):
    """consumed and remaining are of the window that began at windowStart; waiting: the length of the line."""

    id: str
    name: str
    units_limit: int
    window_seconds: int
    window_start: str
    consumed: int
    remaining: int
    cooldown_until: str | None
    waiting: int


class AllowanceList(View):
    """nextCursor: null at the end."""

    allowances: list[AllowanceView]
    next_cursor: str | None


class ConsumedOut(View):
    """What was consumed, and what is left of the window."""

    consumption_id: str
    units: int
    window_start: str
    remaining: int


class WaitOut(View):
    """consumptionId: of one that was granted at once; position: from 1, null for one that has ended."""

    waiter_id: str
    state: State
    consumption_id: str | None
    position: int | None


class WaiterView(View):
    """A waiter that is GRANTED has consumed its units."""

    waiter_id: str
    state: State
    units: int
    consumption_id: str | None


class CooldownOut(View):
    """When the cooldown ends."""

    cooldown_until: str
