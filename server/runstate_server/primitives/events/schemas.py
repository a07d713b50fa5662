"""Events on the wire."""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from runstate_server.foundation import bounds
from runstate_server.web.fields import NO_NUL
from runstate_server.web.schemas import View


class Kind(StrEnum):
    """What an event can be about."""

    SCOPE = "scope"
    CLAIM = "claim"
    ONCE = "once"
    MAILBOX = "mailbox"
    MESSAGE = "message"
    TASK = "task"
    GROUP = "group"
    PERMIT = "permit"
    ALLOWANCE = "allowance"
    WORK_LIMIT = "work_limit"
    BUDGET = "budget"
    BARRIER = "barrier"
    TIMER = "timer"
    KEY = "key"


class Aggregate(View):
    """The thing that changed. id: its id, for claims and once keys the key."""

    type: Kind
    id: str


class Event(View):
    """One state change. cursor: to read on after it; payload: ids, names, holders and numbers."""

    event_id: str
    type: str
    created_at: str
    scope_id: str | None
    aggregate: Aggregate
    payload: dict[str, object]
    cursor: str


class EventsOut(View):
    """nextCursor: never empty, also when there are no events; it moves past those that a filter hid."""

    events: list[Event]
    next_cursor: str


def _whole(text: str) -> str:
    if not 1 <= len(text) <= bounds.types_chars_max:
        raise ValueError(f"must have 1 to {bounds.types_chars_max} characters")
    return text


def parse_types(text: str) -> list[str]:
    """The types of a comma list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_aggregate(text: str) -> tuple[str, str]:
    """The type and the id, parted at the first colon. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in list(Kind):
        raise ValueError(f"must be type:id with a type of {', '.join(Kind)}")
    return kind, name


def _seconds(value: object) -> object:
    """Plain decimals only: no 1e3, no infinity."""
    if isinstance(value, str):
        if not value.isascii() or not value.replace(".", "", 1).isdigit():
            raise ValueError("must be a number of seconds")
        return min(float(value), bounds.watch_s_max)
    return value


def _aggregate(text: str) -> str:
    parse_aggregate(text)
    return text


_TYPES: Final[dict[str, Any]] = {"minLength": 1, "maxLength": bounds.types_chars_max, "pattern": NO_NUL}
_AGGREGATE: Final[dict[str, Any]] = {"pattern": rf"^({'|'.join(Kind)}):[^\u0000]+$"}

Types = Annotated[str, Field(json_schema_extra=_TYPES), AfterValidator(_whole)]
AggregateText = Annotated[
    str, Field(max_length=1_100, json_schema_extra=_AGGREGATE), AfterValidator(_aggregate)
]
WaitSeconds = Annotated[float, Field(ge=0), BeforeValidator(_seconds)]
