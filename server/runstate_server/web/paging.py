"""Opaque cursors of listings: the sort key of the last row, encoded."""

import base64
import json
import uuid
from datetime import UTC, datetime
from typing import Any

from runstate_server.foundation.errors import Code, Refusal

_NUMBER_MAX = 2**63 - 1


def encode(at: datetime, row_id: uuid.UUID) -> str:
    """The cursor after the row (at, row_id)."""
    return _packed([at.isoformat(), str(row_id)])


def decode(cursor: str) -> tuple[datetime, uuid.UUID]:
    """The row a cursor stands after. Refuses: VALIDATION_FAILED for anything this server did not make."""
    try:
        at, row_id = _unpacked(cursor)
        instant, last = datetime.fromisoformat(at), uuid.UUID(row_id)
        if instant.tzinfo is not None:
            return instant.astimezone(UTC), last
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    raise foreign()


def encode_number(number: int) -> str:
    """The cursor after the row with this number."""
    return _packed([number])


def decode_number(cursor: str) -> int:
    """The number a cursor stands after. Refuses as decode."""
    try:
        (number,) = _unpacked(cursor)
        if type(number) is int and 0 <= number <= _NUMBER_MAX:
            return number
    except (ValueError, TypeError, RecursionError):
        pass
    raise foreign()


def encode_text(text: str) -> str:
    """The cursor after the row with this name."""
    return _packed([text])


def decode_text(cursor: str) -> str:
    """The name a cursor stands after. Refuses as decode."""
    try:
        (text,) = _unpacked(cursor)
        if isinstance(text, str) and "\0" not in text:
            return text
    except (ValueError, TypeError, RecursionError):
        pass
    raise foreign()


def encode_place(*numbers: int) -> str:
    """The cursor of a place that several numbers give."""
    return _packed(list(numbers))


def decode_place(cursor: str, count: int) -> list[int]:
    """The numbers of a place. Refuses as decode."""
    try:
        numbers = _unpacked(cursor)
        if len(numbers) == count and all(type(n) is int and 0 <= n <= _NUMBER_MAX for n in numbers):
            return list(numbers)
    except (ValueError, TypeError, RecursionError):
        pass
    raise foreign()


def _packed(key: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _unpacked(cursor: str) -> Any:
    padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
    return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))


def foreign() -> Refusal:
    """The refusal of a cursor that this server did not make."""
    return Refusal(Code.VALIDATION_FAILED, "cursor is none that this server made")
