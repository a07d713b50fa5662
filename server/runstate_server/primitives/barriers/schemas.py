"""Barriers on the wire."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import Id, Key
from runstate_server.web.schemas import View


class State(StrEnum):
    """CANCELLED: its scope ended before all had arrived."""

    WAITING = "WAITING"
    RELEASED = "RELEASED"
    CANCELLED = "CANCELLED"


class BarrierIn(Body):
    """target: how many have to arrive."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47", "target": 3}]}
    )

    scope_id: Id
    target: Annotated[int, Field(ge=1, le=bounds.barrier_target_max)]


class ArriveIn(Body):
    """arrivalKey: whoever arrives; the same one counts once."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"arrivalKey": "worker-1"}]})

    arrival_key: Key


class BarrierView(View):
    """name: null for one that was made without; epoch: from 1, one more with every reset; arrivals: of this
    epoch."""

    id: str
    name: str | None
    scope_id: str
    state: State
    epoch: int
    arrivals: int
    target: int


class ArriveOut(View):
    """arrivals keeps its value once the barrier is released."""

    state: State
    arrivals: int
    epoch: int
