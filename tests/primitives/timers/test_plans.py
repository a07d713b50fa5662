"""Every call reads a handful of rows by the index made for it, however many timers there are.

Counted are the entries that its statements read from each index, in its own transaction.
"""

import uuid
from datetime import UTC, datetime

import pytest

from tests.support import database, spaces
from tests.support.entries import SMALL, read_by

MANY = 20_000
READ_MAX = 40
SCOPE, OTHER, TIMER, FIRED, DUE = (uuid.UUID(int=n) for n in range(1, 6))
FILL = """
INSERT INTO runstate.scopes (space_id, id, root_id, path, depth, stored, effective, child_limit, children,
  version, created_at)
SELECT '{space}', s, s, ARRAY[s], 0, 'ACTIVE', 'ACTIVE', 10, 0, 1, now()
  FROM unnest(ARRAY['{scope}'::uuid, '{other}'::uuid]) s;
INSERT INTO runstate.timers (space_id, id, scope_id, root_id, name, state, fire_at, fired_at, token,
  created_at)
SELECT '{space}', gen_random_uuid(), '{scope}', '{scope}', 'n' || i, CASE WHEN acked THEN 'ACKED' ELSE
       'CANCELLED' END, now() - interval '1 day', CASE WHEN acked THEN now() END, 't', now()
  FROM (SELECT n AS i, n % 2 = 0 AS acked FROM generate_series(1, {many}) n) made;
INSERT INTO runstate.timers (space_id, id, scope_id, root_id, state, fire_at, fired_at, token, created_at)
SELECT '{space}', gen_random_uuid(), '{other}', '{other}', CASE WHEN fired THEN 'FIRED' ELSE 'PENDING' END,
       now() + interval '1 day', CASE WHEN fired THEN now() + interval '1 day' END, 't', now()
  FROM generate_series(1, {many}) i, unnest(ARRAY[true, false]) fired;
INSERT INTO runstate.timers (space_id, id, scope_id, root_id, name, state, fire_at, fired_at, token,
  created_at)
SELECT '{space}', id, '{scope}', '{scope}', name, state, now() + day * interval '1 day',
       CASE WHEN state = 'FIRED' THEN now() END, 't', now()
  FROM (VALUES ('{timer}'::uuid, 'mine', 'PENDING', 1), ('{due}'::uuid, 'due', 'PENDING', -1),
               ('{fired}'::uuid, NULL, 'FIRED', -1)) made (id, name, state, day);
"""
IDLE = [None, None]
AHEAD_S = 366 * 86_400.0
PAST = datetime(2001, 1, 1, tzinfo=UTC)
CALLS = {
    "a new timer": ("timer_set", [uuid.uuid4(), SCOPE, None, 5.0, None, AHEAD_S, "t", *IDLE]),
    "a new one by name": ("timer_set", [uuid.uuid4(), SCOPE, "new", 5.0, None, AHEAD_S, "t", *IDLE]),
    "one that fires at once": ("timer_set", [uuid.uuid4(), SCOPE, None, None, PAST, AHEAD_S, "t", *IDLE]),
    "a find by name": ("timer_set", [uuid.uuid4(), SCOPE, "mine", 5.0, None, AHEAD_S, "t", *IDLE]),
    "a look": ("timer_view", [TIMER]),
    "a look at one that is due": ("timer_view", [DUE]),
    "a poll": ("timers_poll", [SCOPE, 500, *IDLE]),
    "an acknowledgement": ("timer_ack", [FIRED, "t", *IDLE]),
    "a cancel": ("timer_cancel", [TIMER, *IDLE]),
    "the end of a run with two pending": ("scope_end", [SCOPE, "CANCELLED", *IDLE]),
}


@pytest.fixture(scope="module")
def filled(template):
    with template.clone("timer_plans") as url:
        space = spaces.create(url)
        facts = {"scope": SCOPE, "other": OTHER, "timer": TIMER, "fired": FIRED, "due": DUE, "many": MANY}
        database.execute(url, FILL.format(space=space.id, **facts))
        yield url, space.id


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_reads_by_its_index_and_little(filled, kernel_schema, what):
    url, space_id = filled
    function, args = CALLS[what]
    async with database.connected(url) as connection:
        rows = await read_by(connection, kernel_schema, function, [space_id, *args])
    assert rows
    assert not [
        row["name"] for row in rows if row["is_table"] and row["name"] not in SMALL | {"scope_tidies"}
    ], "read whole"
    assert sum(row["entries"] for row in rows if not row["is_table"]) <= READ_MAX, [tuple(r) for r in rows]


async def test_a_sweep_and_the_look_for_what_is_due_next_read_what_is_due_alone(filled, kernel_schema):
    url, _ = filled
    async with database.connected(url) as connection:
        for function, args in (("timer_sweep", [200]), ("sweeps_due", [])):
            rows = await read_by(connection, kernel_schema, function, args)
            named = [row for row in rows if row["name"].startswith("timers")]
            assert named
            assert sum(row["entries"] for row in named) <= 10, [tuple(row) for row in named]
