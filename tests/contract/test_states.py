"""States are named once: in the enum of the schemas, the CHECK of the table, the arrows above the SQL."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from runstate_server.primitives.once.schemas import State as OnceState
from runstate_server.primitives.scopes.schemas import State as ScopeState
from tests.support import database, sources

# Room → (enum, its CHECKs as table.constraint)
ROOMS: dict[str, tuple[type[StrEnum], list[str]]] = {
    "once": (OnceState, ["once.state_known"]),
    "scopes": (ScopeState, ["scopes.stored_known", "scopes.effective_known"]),
}
CHECK = """
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::text::regclass AND conname = $2
"""


def arrows(room: Path) -> set[str]:
    """The states in the lines at the head of the room's SQL, up to the first function."""
    head = (room / "kernel.sql").read_text().partition("CREATE FUNCTION")[0]
    drawn = [line for line in head.splitlines() if "->" in line]
    assert drawn, f"{room.name} draws no arrows"
    return set(re.findall(r"\b[A-Z]{3,}\b", " ".join(drawn)))


@pytest.mark.parametrize("name", ROOMS)
def test_enum_check_and_arrows_name_the_same_states(name, database_url):
    states, constraints = ROOMS[name]
    wanted = {state.value for state in states}
    for table, constraint in (place.split(".") for place in constraints):
        definition = database.fetchval(database_url, CHECK, f"runstate.{table}", constraint)
        assert set(re.findall(r"'([A-Z]+)'", definition)) == wanted
    assert arrows(sources.ROOMS / name) == wanted


def test_every_check_of_states_is_compared(database_url):
    rows = database.fetch(
        database_url,
        "SELECT conrelid::regclass::text || '.' || conname AS place FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = 'runstate'::regnamespace AND conname LIKE '%known'"
        " AND pg_get_constraintdef(oid) ~ '''[A-Z]+'''",
    )
    found = {row["place"].removeprefix("runstate.") for row in rows}
    assert found == {place for _, constraints in ROOMS.values() for place in constraints}
