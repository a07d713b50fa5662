"""Every call reads a handful of rows by the index made for it, however much a budget has behind it.

Counted are the entries that its statements read from each index, in its own transaction.
"""

import uuid

import pytest

from tests.support import database, spaces
from tests.support.entries import SMALL, read_by

MANY = 20_000
READ_MAX = 60
RESERVATION, BUDGET, SCOPE = (uuid.UUID(int=n) for n in (1, 2, 3))
FILL = """
INSERT INTO runstate.scopes (space_id, id, root_id, path, depth, stored, effective, child_limit, children,
  version, created_at)
VALUES ('{space}', '{scope}', '{scope}', ARRAY['{scope}'::uuid], 0, 'ACTIVE', 'ACTIVE', 10, 0, 1, now());
INSERT INTO runstate.budgets (space_id, id, name, currency, scale, limit_minor, reserved_minor, settled_minor,
  overrun_minor, hold_stale, created_at)
SELECT '{space}', CASE WHEN i = 0 THEN '{budget}'::uuid ELSE gen_random_uuid() END, 'b' || i, 'USD', 2,
       1000000000, CASE WHEN i = 0 THEN 100 ELSE 0 END, 0, 0, false, now()
  FROM generate_series(0, 2000) i;
INSERT INTO runstate.budget_reservations (space_id, id, budget_id, scope_id, message_id, holder,
  reserved_minor, held, state, settle_by, created_at, ended_at)
SELECT '{space}', gen_random_uuid(), '{budget}', '{scope}', gen_random_uuid(), 'h', 0, true, 'SETTLED',
       now() - interval '2 days', now() - interval '2 days', now() - interval '2 days'
  FROM generate_series(1, {many}) i;
INSERT INTO runstate.budget_reservations (space_id, id, budget_id, scope_id, message_id, holder,
  reserved_minor, held, state, settle_by, created_at)
SELECT '{space}', gen_random_uuid(), gen_random_uuid(), '{scope}', gen_random_uuid(), 'h', 1, true, 'ACTIVE',
       now() + interval '1 day', now() FROM generate_series(1, {many}) i;
INSERT INTO runstate.budget_reservations (space_id, id, budget_id, scope_id, message_id, holder,
  reserved_minor, held, state, created_at)
VALUES ('{space}', '{reservation}', '{budget}', '{scope}', '{reservation}', 'h', 100, true, 'ACTIVE', now());
INSERT INTO runstate.budget_entries (space_id, budget_id, id, reservation_id, scope_id, kind, work_key,
  amount_minor, asked_minor, left_minor, state, reserved_change, settled_change, overrun_change, created_at)
SELECT '{space}', '{budget}', gen_random_uuid(), gen_random_uuid(), '{scope}', 'settle', 'k' || i, 0, 0, 0,
       'SETTLED', 0, 0, 0, now() FROM generate_series(1, {many}) i;
"""
IDLE = [None, None]
CALLS = {
    "a reserve": ("budget_reserve", [BUDGET, uuid.uuid4(), SCOPE, "ann", 5, None, *IDLE]),
    "a reserve that is refused": (
        "budget_reserve",
        [BUDGET, uuid.uuid4(), SCOPE, "ann", 10**18, None, *IDLE],
    ),
    "a settle": ("budget_settle", [BUDGET, RESERVATION, 5, "new", False, *IDLE]),
    "a settle of more than there is": ("budget_settle", [BUDGET, RESERVATION, 10**10, "new", True, *IDLE]),
    "a void": ("budget_void", [BUDGET, RESERVATION, "new", *IDLE]),
    "a new limit": ("budget_limit", [BUDGET, 2 * 10**9, *IDLE]),
    "a look": ("budget_view", [BUDGET]),
    "a find by name": ("budget_ensure", [uuid.uuid4(), "b77", None, None, None, None, True, *IDLE]),
    "a void for a delivery": ("budget_void_of", [RESERVATION]),
    "time to settle for a delivery": ("budget_settle_by", [RESERVATION, None]),
}


@pytest.fixture(scope="module")
def filled(template):
    with template.clone("budget_plans") as url:
        space = spaces.create(url)
        facts = {
            "space": space.id,
            "scope": SCOPE,
            "budget": BUDGET,
            "reservation": RESERVATION,
            "many": MANY,
        }
        database.execute(url, FILL.format(**facts))
        yield url, space.id


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_reads_by_its_index_and_little(filled, kernel_schema, what):
    url, space_id = filled
    function, args = CALLS[what]
    async with database.connected(url) as connection:
        rows = await read_by(connection, kernel_schema, function, [space_id, *args])
    assert rows
    assert not [row["name"] for row in rows if row["is_table"] and row["name"] not in SMALL], "read whole"
    assert sum(row["entries"] for row in rows if not row["is_table"]) <= READ_MAX, [tuple(r) for r in rows]


async def test_a_sweep_that_finds_nothing_reads_nothing(filled, kernel_schema):
    url, _ = filled
    async with database.connected(url) as connection:
        for function, args in (("budget_sweep", [200]), ("sweeps_due", [])):
            rows = await read_by(connection, kernel_schema, function, args)
            named = [row for row in rows if row["name"].startswith(("budget", "reservations"))]
            assert sum(row["entries"] for row in named) <= 2, [tuple(row) for row in named]
