"""The events of a space, once the sequencer has numbered all that is committed."""

import json
from dataclasses import dataclass
from typing import Any

from tests.support import database, races


@dataclass(frozen=True)
class Event:
    """One line of the journal."""

    num: int
    type: str
    aggregate: str
    scope_id: str | None
    payload: dict[str, Any]
    text: str


def events(database_url: str, space_id: str, *types: str) -> list[Event]:
    """The journal of the space in its order; only those types, if any are named. Numbers what no server
    has."""

    def numbered() -> bool:
        database.fetch(database_url, f"SELECT * FROM {database.kernel_schema()}.journal_step(1000, 0)")
        left = "SELECT count(*) FROM runstate.outbox WHERE space_id = $1"
        return not database.fetchval(database_url, left, space_id)

    races.until_blocking(numbered, what="the numbering of all events")
    rows = database.fetch(
        database_url,
        "SELECT num, type, aggregate_id, scope_id::text, payload FROM runstate.journal"
        " WHERE space_id = $1 ORDER BY num",
        space_id,
    )
    return [
        Event(
            row["num"],
            row["type"],
            row["aggregate_id"],
            row["scope_id"],
            json.loads(row["payload"]),
            row["payload"],
        )
        for row in rows
        if not types or row["type"] in types
    ]
