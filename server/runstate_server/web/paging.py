"""Opaque cursors of listings: the sort key of the last row, encoded."""

import base64
import json
import uuid
from datetime import UTC, datetime

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
        if instant.tzinfo is not None:
            return instant.astimezone(UTC), last
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    raise Refusal(Code.VALIDATION_FAILED, "cursor is none that this server made")
