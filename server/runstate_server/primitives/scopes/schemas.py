"""Scopes on the wire."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import Id, Instant, Name
from runstate_server.web.schemas import View


class State(StrEnum):
    """Stored and effective states alike."""

    ACTIVE = "ACTIVE"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"


class ScopeIn(Body):
    """name: a label, neither unique nor looked up; childLimit: direct children ever created."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "nightly", "childLimit": 100}]})

    name: Name | None = None
    parent_id: Id | None = None
    deadline: Instant | None = None
    child_limit: Annotated[int, Field(ge=1, le=bounds.child_limit_max)] = bounds.child_limit_default


class RunIn(Body):
    """deadline: counts only when the run is created by this call."""

    deadline: Instant | None = None


class ScopeView(View):
    """effective: what the whole chain to the root says at this instant."""

    id: str
    name: str | None
    parent_id: str | None
    root_id: str
    depth: int
    stored_state: State
    effective: State
    deadline: str | None
    child_limit: int
    version: int
    created_at: str
    ended_at: str | None


class ScopePage(View):
    """One page, newest first."""

    scopes: list[ScopeView]
    next_cursor: str | None


class Ended(View):
    """How much of each the end of a scope has ended in its subtree."""

    scopes: int
    once: int
    claims: int
    groups: int
    messages: int
    tasks: int
    barriers: int
    timers: int
    waiters: int


class EndOut(View):
    """version: grows with every change of the scope itself; ended: absent if a scope above it was ended."""

    id: str
    state: State
    version: int
    ended: Ended | None = None
