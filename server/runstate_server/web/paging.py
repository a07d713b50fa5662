"""Opaque cursors of listings: the sort key of the last row, encoded."""

import base64
import binascii
import json
import uuid
from datetime import datetime

from runstate_server.foundation.errors import Code, Refusal


def encode(at: datetime, row_id: uuid.UUID) -> str:
    """The cursor after the row (at, row_id)."""
    raw = json.dumps([at.isoformat(), str(row_id)]).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(cursor: str) -> tuple[datetime, uuid.UUID]:
    """The row a cursor stands after. Refuses: VALIDATION_FAILED for anything this server did not make."""
    try:
        raw = base64.b64decode(
            cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        at, row_id = json.loads(raw)
        instant, last = datetime.fromisoformat(at), uuid.UUID(row_id)
    except (ValueError, TypeError, UnicodeError, binascii.Error):
        instant = None
    if instant is None or instant.tzinfo is None:
        raise Refusal(Code.VALIDATION_FAILED, "cursor is none that this server made")
    return instant, last


def encode_number(number: int) -> str:
    """The cursor after the row with this number."""
    return base64.urlsafe_b64encode(json.dumps([number]).encode()).decode().rstrip("=")


def decode_number(cursor: str) -> int:
    """The number a cursor stands after. Refuses as decode."""
    try:
        raw = base64.b64decode(
            cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        (number,) = json.loads(raw)
    except (ValueError, TypeError, UnicodeError, binascii.Error):
        number = None
    if not isinstance(number, int) or not 0 <= number < 2**63:
        raise Refusal(Code.VALIDATION_FAILED, "cursor is none that this server made")
    return number
