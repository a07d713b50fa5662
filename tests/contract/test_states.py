"""States are named once: in the enum of the schemas, the CHECK of the table, the arrows above the SQL."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from runstate_server.primitives.allowances.schemas import State as AllowanceState
from runstate_server.primitives.barriers.schemas import State as BarrierState
from runstate_server.primitives.budgets.schemas import Kind as EntryKind
from runstate_server.primitives.budgets.schemas import State as ReservationState
from runstate_server.primitives.claims.schemas import State as ClaimState
from runstate_server.primitives.groups.schemas import Condition, Outcome, Verdict
from runstate_server.primitives.groups.schemas import State as GroupState
from runstate_server.primitives.mailboxes.schemas import Mode
from runstate_server.primitives.messages.schemas import State as MessageState
from runstate_server.primitives.once.schemas import State as OnceState
from runstate_server.primitives.permits.schemas import State as PermitState
from runstate_server.primitives.scopes.schemas import State as ScopeState
from runstate_server.primitives.tasks.schemas import State as TaskState
from runstate_server.primitives.timers.schemas import State as TimerState
from tests.support import database, sources

# Room → (enum, its CHECKs as table.constraint). A claim is held or not: a boolean column, and no CHECK.
ROOMS: dict[str, tuple[type[StrEnum], list[str]]] = {
    "barriers": (BarrierState, ["barriers.state_known"]),
    "budgets": (ReservationState, ["budget_reservations.state_known"]),
    "claims": (ClaimState, []),
    "groups": (GroupState, ["task_groups.state_known"]),
    "once": (OnceState, ["once.state_known"]),
    "scopes": (ScopeState, ["scopes.stored_known", "scopes.effective_known"]),
    "timers": (TimerState, ["timers.state_known"]),
}
# A message is READY or LEASED by the narrow table that holds it; only what ended it for good is a column.
WAITING = {"READY", "LEASED"}
# Tasks have no arrows of their own: the head of messages' SQL says which state is which of a message.
TASKS = {"READY": "QUEUED", "LEASED": "RUNNING", "ACKED": "SUCCEEDED", "DEAD": "FAILED"}
MESSAGES = "messages.ended_known"
# A grant is live until its column says how it ended: the arrow's left side has no word on the wire.
GRANTS = "grants.ended_known"
WAITERS = "line_waiters.state_known"
MODES = "mailboxes.mode_known"  # a setting, no state: nothing leads from one to another
# What a group waits for, what became of it, and of its members.
WORDS = {
    "task_groups.condition_known": Condition,
    "task_groups.outcome_known": Outcome,
    "group_members.verdict_known": Verdict,
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


def checked(database_url: str, place: str) -> set[str]:
    """The values that a CHECK lets pass."""
    table, constraint = place.split(".")
    definition = database.fetchval(database_url, CHECK, f"runstate.{table}", constraint)
    return set(re.findall(r"'([A-Z_]+)'", definition))


@pytest.mark.parametrize("name", ROOMS)
def test_enum_check_and_arrows_name_the_same_states(name, database_url):
    states, constraints = ROOMS[name]
    for place in constraints:
        assert checked(database_url, place) == set(states)
    assert arrows(sources.ROOMS / name) == set(states)


def test_the_states_of_messages_are_those_that_wait_and_those_that_end(database_url):
    assert checked(database_url, MESSAGES) | WAITING == set(MessageState)
    assert not checked(database_url, MESSAGES) & WAITING
    assert arrows(sources.ROOMS / "messages") - set(TASKS.values()) == set(MessageState)


def test_the_states_of_tasks_are_those_of_messages_by_other_names():
    assert {TASKS.get(state, state) for state in MessageState} == set(TaskState)
    head = " ".join((sources.ROOMS / "messages/kernel.sql").read_text().replace("--", "").split())
    assert "READY, LEASED, ACKED and DEAD are its QUEUED, RUNNING, SUCCEEDED and FAILED" in head


def test_the_states_of_waiters_are_those_of_pools_and_of_allowances(database_url):
    head = (sources.ROOMS.parent / "kernel/waiters.sql").read_text().partition("CREATE FUNCTION")[0]
    assert checked(database_url, WAITERS) == set(PermitState) | set(AllowanceState)
    assert set(PermitState) - set(AllowanceState) == {"SIGNALED"}
    assert set(re.findall(r"\b[A-Z]{3,}\b", head)) == set(PermitState)


def test_the_ends_of_grants_are_those_of_the_arrows(database_url):
    assert arrows(sources.ROOMS / "permits") == checked(database_url, GRANTS)


def test_the_modes_of_mailboxes_are_those_of_the_table(database_url):
    assert checked(database_url, MODES) == set(Mode)


def test_the_kinds_of_lines_of_a_ledger_are_those_of_the_table(database_url):
    found = database.fetchval(database_url, CHECK, "runstate.budget_entries", "kind_known")
    assert set(re.findall(r"'([a-z]+)'", found)) == set(EntryKind)


@pytest.mark.parametrize("place", WORDS)
def test_the_words_of_groups_are_those_of_their_tables(place, database_url):
    assert checked(database_url, place) == set(WORDS[place])


def test_every_check_of_states_is_compared(database_url):
    rows = database.fetch(
        database_url,
        "SELECT conrelid::regclass::text || '.' || conname AS place FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = 'runstate'::regnamespace AND conname LIKE '%known'"
        " AND pg_get_constraintdef(oid) ~ '''[A-Z_]+'''",
    )
    found = {row["place"].removeprefix("runstate.") for row in rows}
    assert found == {place for _, places in ROOMS.values() for place in places} | {
        MESSAGES,
        MODES,
        GRANTS,
        WAITERS,
        *WORDS,
    }
