"""The types of the wire: names, keys, holders, leases, waits, instants. Every bound is in
foundation/bounds.py."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from runstate_server.foundation import bounds

_MINOR = re.compile(r"0|[1-9][0-9]{0,17}|10{18}")  # to bounds.minor_max, one way to write each
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_SPACE_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{bounds.space_id_chars_max}}}")
SPACE_ID = f"^{_SPACE_ID.pattern}$"  # as the document says it
NO_NUL = r"^[^\u0000]*$"
_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)

# The driver sends the very first and last instants as -infinity and infinity, which are no times of the wire.
_EARLIEST = datetime(1, 1, 1, 0, 0, 0, 1000, UTC)


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain NUL")
    return value


def _cut(value: str) -> str:
    """Error and reason texts are never refused for their content."""
    return value.replace("\0", "�")[: bounds.text_chars_max]


def parse_instant(value: Any) -> datetime:
    """RFC 3339 with any offset and precision, as UTC, cut to the wire's milliseconds; without an offset it is
    refused."""
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z")
    *_, fraction, offset = match.groups()
    millis = (fraction or "0")[:3].ljust(3, "0")
    zone = "+00:00" if offset in "Zz" else offset
    second = match.group(6)
    leap = second == "60"
    text = f"{value[:10]}T{value[11:17]}{'59' if leap else second}.{millis}{zone}"
    try:
        return max(datetime.fromisoformat(text).astimezone(UTC), _EARLIEST)
    except (ValueError, OverflowError):
        raise ValueError("is no instant of the calendar") from None


def _minor(value: str) -> str:
    if not _MINOR.fullmatch(value):
        raise ValueError(f"must be a whole number of minor units in decimal digits, 0 to {bounds.minor_max}")
    return value


def _positive_minor(value: str) -> str:
    if _minor(value) == "0":
        raise ValueError("must be at least 1 minor unit")
    return value


def _query_integer(value: Any) -> Any:
    """Query values are texts; only plain decimal digits are a number."""
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise ValueError("must be a whole number")
        return int(value)
    return value


def is_space_id(text: str) -> bool:
    """Whether this can be the id of a space."""
    return _SPACE_ID.fullmatch(text) is not None


def _space_id(value: str) -> str:
    if not is_space_id(value):
        raise ValueError("must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
    return value


def _text(chars_max: int) -> Any:
    """At least one character, none of them NUL; the document says so, too."""
    return Field(min_length=1, max_length=chars_max, json_schema_extra={"pattern": NO_NUL})


SpaceId = Annotated[str, Field(json_schema_extra={"pattern": SPACE_ID}), AfterValidator(_space_id)]
Name = Annotated[str, _text(bounds.name_chars_max), AfterValidator(_no_nul)]
Key = Annotated[str, _text(bounds.key_chars_max), AfterValidator(_no_nul)]
Holder = Annotated[str, _text(bounds.holder_chars_max), AfterValidator(_no_nul)]
Id = Annotated[str, Field(max_length=1_000)]
Token = Annotated[str, _text(bounds.token_chars_max), AfterValidator(_no_nul)]
Text = Annotated[str, AfterValidator(_cut)]
LeaseSeconds = Annotated[float, Field(ge=bounds.lease_s_min, le=bounds.lease_s_max, allow_inf_nan=False)]
TtlSeconds = Annotated[float, Field(ge=1, le=bounds.ttl_s_max, allow_inf_nan=False)]
Units = Annotated[int, Field(ge=1, le=bounds.units_max)]
Minor = Annotated[str, Field(json_schema_extra={"pattern": f"^({_MINOR.pattern})$"}), AfterValidator(_minor)]
PositiveMinor = Annotated[
    str, Field(json_schema_extra={"pattern": "^([1-9][0-9]{0,17}|10{18})$"}), AfterValidator(_positive_minor)
]
WindowSeconds = Annotated[int, Field(ge=1, le=bounds.window_s_max)]
CooldownSeconds = Annotated[float, Field(ge=1, le=bounds.cooldown_s_max, allow_inf_nan=False)]
DelaySeconds = Annotated[float, Field(ge=0, le=bounds.delay_s_max, allow_inf_nan=False)]
Priority = Annotated[int, Field(ge=-bounds.priority_max, le=bounds.priority_max)]
BodyWaitMs = Annotated[int, Field(ge=0, le=bounds.wait_ms_max)]
WaitMs = Annotated[int, Field(ge=0, le=bounds.wait_ms_max), BeforeValidator(_query_integer)]
PageLimit = Annotated[int, Field(ge=1, le=bounds.page_max), BeforeValidator(_query_integer)]
Members = Annotated[int, Field(ge=0, le=bounds.group_members_max), BeforeValidator(_query_integer)]
Instant = Annotated[
    datetime, BeforeValidator(parse_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
