"""A submit under a limit counts what is unfinished under it, by the index made for it, and nothing else."""

import uuid

import pytest

from tests.support import database, spaces
from tests.support.entries import SMALL, read_by

MANY = 20_000
LIMIT, SCOPE, BOX = (uuid.UUID(int=n) for n in (1, 2, 3))
OUTSTANDING = 20
FILL = """
INSERT INTO runstate.scopes (space_id, id, root_id, path, depth, stored, effective, child_limit, children,
  version, created_at)
VALUES ('{space}', '{scope}', '{scope}', ARRAY['{scope}'::uuid], 0, 'ACTIVE', 'ACTIVE', 10, 0, 1, now());
INSERT INTO runstate.mailboxes (space_id, id, name, mode, max_attempts, created_at)
VALUES ('{space}', '{box}', 'm', 'WORK', 5, now());
INSERT INTO runstate.work_limits (space_id, id, scope_id, name, max_outstanding, created_at)
SELECT '{space}', CASE WHEN i = 0 THEN '{limit}'::uuid ELSE gen_random_uuid() END,
       CASE WHEN i = 0 THEN '{scope}'::uuid ELSE gen_random_uuid() END, 'w', {most}, now()
  FROM generate_series(0, 2000) i;
INSERT INTO runstate.messages (space_id, id, mailbox_id, scope_id, root_id, task_key, payload, priority,
  ended, finished_at, attempt, created_at, work_limit_id)
SELECT '{space}', gen_random_uuid(), '{box}', '{scope}', '{scope}', 'k' || i, '1', 0,
       CASE WHEN i > {outstanding} THEN 'ACKED' END, CASE WHEN i > {outstanding} THEN now() END, 0, now(),
       CASE WHEN i % 2 = 0 OR i <= {outstanding} THEN '{limit}'::uuid END
  FROM generate_series(1, {many}) i;
"""


@pytest.mark.parametrize(("most", "fits"), [(100, True), (OUTSTANDING, False)])
async def test_a_submit_reads_what_is_unfinished_and_little_more(template, kernel_schema, most, fits):
    with template.clone("limit_plans") as url:
        space = spaces.create(url)
        facts = {"space": space.id, "scope": SCOPE, "limit": LIMIT, "box": BOX, "most": most}
        database.execute(url, FILL.format(**facts, many=MANY, outstanding=OUTSTANDING))
        args = [[uuid.uuid4()], [SCOPE], [BOX], ["new"], ["1"], [None], [0], [0.0], [None], ["w"], [None]]
        args.append(True)
        async with database.connected(url) as connection:
            rows = await read_by(connection, kernel_schema, "task_submit", [space.id, *args, None, None])
            places = ", ".join(f"${n}" for n in range(1, 16))
            call = f"SELECT code FROM {kernel_schema}.task_submit({places})"
            assert (await connection.fetchval(call, space.id, *args, None, None) is None) == fits
    assert not [row["name"] for row in rows if row["is_table"] and row["name"] not in SMALL], "read whole"
    read = sum(row["entries"] for row in rows if not row["is_table"])
    assert read <= 4 * OUTSTANDING + 40, [tuple(row) for row in rows]
