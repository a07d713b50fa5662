"""Every call reads a handful of rows by the index made for it, however many have arrived elsewhere."""

import uuid

import pytest

from tests.support import database, spaces
from tests.support.entries import SMALL, read_by

MANY = 20_000
READ_MAX = 60
ARRIVED = 200
BARRIER, SCOPE = (uuid.UUID(int=n) for n in (1, 2))
FILL = """
INSERT INTO runstate.scopes (space_id, id, root_id, path, depth, stored, effective, child_limit, children,
  version, created_at)
VALUES ('{space}', '{scope}', '{scope}', ARRAY['{scope}'::uuid], 0, 'ACTIVE', 'ACTIVE', 10, 0, 1, now());
INSERT INTO runstate.barriers (space_id, id, scope_id, root_id, name, state, epoch, target, arrivals,
  created_at)
SELECT '{space}', gen_random_uuid(), s, s, 'b' || i, CASE WHEN i % 2 = 0 THEN 'WAITING' ELSE 'RELEASED' END,
       1, 2, CASE WHEN i % 2 = 0 THEN 1 ELSE 2 END, now()
  FROM (SELECT i, CASE WHEN i % 2 = 1 THEN '{scope}'::uuid ELSE gen_random_uuid() END AS s
          FROM generate_series(1, {many}) i) made;
INSERT INTO runstate.barriers (space_id, id, scope_id, root_id, name, state, epoch, target, arrivals,
  created_at)
VALUES ('{space}', '{barrier}', '{scope}', '{scope}', 'mine', 'WAITING', 1, 10000, {arrived}, now());
INSERT INTO runstate.barrier_arrivals (space_id, barrier_id, key, arrived_at)
SELECT '{space}', CASE WHEN i <= {arrived} THEN '{barrier}'::uuid ELSE gen_random_uuid() END, 'k' || i, now()
  FROM generate_series(1, {many}) i;
"""
IDLE = [None, None]
CALLS = {
    "a barrier without a name": ("barrier_create", [uuid.uuid4(), SCOPE, None, 2, *IDLE], 0),
    "a new name": ("barrier_create", [uuid.uuid4(), SCOPE, "new", 2, *IDLE], 0),
    "a name that is there": ("barrier_create", [uuid.uuid4(), SCOPE, "b77", 2, *IDLE], 0),
    "a look": ("barrier_view", [BARRIER], 0),
    "an arrival": ("barrier_arrive", [BARRIER, "new", *IDLE], 0),
    "an arrival that is known": ("barrier_arrive", [BARRIER, "k7", *IDLE], 0),
    "a reset": ("barrier_reset", [BARRIER, *IDLE], ARRIVED),
    "the end of the run": ("scope_end", [SCOPE, "CANCELLED", *IDLE], 0),
    "what is left to end": ("barriers_left", [[SCOPE]], 0),
}


@pytest.fixture(scope="module")
def filled(template):
    with template.clone("barrier_plans") as url:
        space = spaces.create(url)
        facts = {"space": space.id, "scope": SCOPE, "barrier": BARRIER, "many": MANY, "arrived": ARRIVED}
        database.execute(url, FILL.format(**facts))
        yield url, space.id


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_reads_its_barrier_and_no_other(filled, kernel_schema, what):
    url, space_id = filled
    function, args, more = CALLS[what]
    async with database.connected(url) as connection:
        rows = await read_by(connection, kernel_schema, function, [space_id, *args])
    assert not [row["name"] for row in rows if row["is_table"] and row["name"] not in SMALL], "read whole"
    read = sum(row["entries"] for row in rows if not row["is_table"])
    assert read <= READ_MAX + more, [tuple(row) for row in rows]
