"""Every call reads its own group and members by the indexes made for them, however many others there are."""

import uuid

import pytest

from tests.support import database, spaces
from tests.support.entries import SMALL, read_by

MANY = 20_000
READ_MAX = 150
MEMBERS = 10
GROUP, SCOPE, BOX, TASK = (uuid.UUID(int=n) for n in (1, 2, 3, 4))
# Every second of the others' groups is open, all of them in runs of their own; members of ours have ended.
FILL = """
INSERT INTO runstate.scopes (space_id, id, root_id, path, depth, stored, effective, child_limit, children,
  version, created_at)
SELECT '{space}', u, u, ARRAY[u], 0, 'ACTIVE', 'ACTIVE', 10, 0, 1, now()
  FROM (SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0'))::uuid AS u
          FROM generate_series(2, {many}) i) made;
INSERT INTO runstate.mailboxes (space_id, id, name, mode, max_attempts, created_at)
VALUES ('{space}', '{box}', 'm', 'WORK', 5, now());
INSERT INTO runstate.messages (space_id, id, mailbox_id, scope_id, root_id, task_key, payload, priority,
  attempt, created_at, ended, finished_at, outcome, lane)
SELECT '{space}', u, '{box}', CASE WHEN i < 4 + {members} THEN '{scope}'::uuid ELSE u END,
       CASE WHEN i < 4 + {members} THEN '{scope}'::uuid ELSE u END, 'k' || i, '1', 0, 1, now(),
       'ACKED', now(),
       '1', 1
  FROM (SELECT i, ('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0'))::uuid AS u
          FROM generate_series(4, {many}) i) made;
INSERT INTO runstate.task_groups (space_id, id, scope_id, root_id, mailbox_id, condition, members, state,
  outcome, created_at, finalized_at, deadline)
SELECT '{space}', u, CASE WHEN i = 1 THEN '{scope}'::uuid ELSE u END,
       CASE WHEN i = 1 THEN '{scope}'::uuid ELSE u END, '{box}', 'ALL_TERMINAL', 1,
       CASE WHEN i % 2 = 1 THEN 'OPEN' ELSE 'FINALIZED' END, CASE WHEN i % 2 = 0 THEN 'SUCCESS' END, now(),
       CASE WHEN i % 2 = 0 THEN now() END, CASE WHEN i > 1 THEN now() + interval '1 hour' END
  FROM (SELECT i, ('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0'))::uuid AS u
          FROM generate_series(1, {many}) i) made;
INSERT INTO runstate.group_members (space_id, task_id, group_id, n, owned)
SELECT '{space}', u, CASE WHEN i < 4 + {members} THEN '{group}'::uuid ELSE u END, i, true
  FROM (SELECT i, ('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0'))::uuid AS u
          FROM generate_series(4, {many}) i) made;
INSERT INTO runstate.group_notices (space_id, group_id)
SELECT '{space}', ('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0'))::uuid
  FROM generate_series(2, {many}, 2) i;
"""
IDLE = [None, None]
NEW = uuid.uuid4
CALLS = {
    "a new group": (
        "group_create",
        [NEW(), NEW(), BOX, "N_ACCEPTED", 3, None, None, SCOPE, 1000, 32, *IDLE],
    ),
    "a look": ("group_view", [GROUP]),
    "a member": ("group_submit", [GROUP, NEW(), "new", "1", None, 0, None, 1000, *IDLE]),
    "a member that is known": ("group_submit", [GROUP, NEW(), "k5", "1", None, 0, None, 1000, *IDLE]),
    "a task that joins": ("group_join", [GROUP, uuid.UUID(int=MANY - 7), 1000, *IDLE]),
    "a verdict": ("group_judge", [GROUP, TASK, "ACCEPTED", *IDLE]),
    "a decision": ("group_decide", [GROUP]),
    "a close": ("group_close", [GROUP, False, *IDLE]),
    "the end of the run": ("scope_end", [SCOPE, "CANCELLED", *IDLE]),
    "what is left to end": ("groups_left", [[SCOPE]]),
}


@pytest.fixture(scope="module")
def filled(template):
    with template.clone("group_plans") as url:
        space = spaces.create(url)
        facts = {"space": space.id, "scope": SCOPE, "group": GROUP, "box": BOX, "many": MANY}
        database.execute(url, FILL.format(**facts, members=MEMBERS))
        yield url, space.id


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_reads_its_group_and_no_other(filled, kernel_schema, what):
    url, space_id = filled
    function, args = CALLS[what]
    async with database.connected(url) as connection:
        rows = await read_by(connection, kernel_schema, function, [space_id, *args])
    assert not [row["name"] for row in rows if row["is_table"] and row["name"] not in SMALL], "read whole"
    read = sum(row["entries"] for row in rows if not row["is_table"])
    assert read <= READ_MAX, [tuple(row) for row in rows]
