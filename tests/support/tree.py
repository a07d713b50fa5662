"""A run of many scopes with work in every one of them, made in bulk by the kernel's own functions."""

import uuid
from dataclasses import dataclass
from typing import Any

FAN = 50
_BATCH = 500
# What is done in each scope, under a token that ends with its id.
WORK = {
    "once": "once_acquire($1, s.id, 'report', 'ann', '1', 3600, 'once-' || s.id, NULL, NULL)",
    "claims": "claim_acquire($1, s.id, 'company', 'ann', '1', 3600, 'claim-' || s.id, NULL, NULL)",
    "messages": "message_send($1, gen_random_uuid(), $3, s.id, '1', NULL, NULL, 0, 0, NULL, NULL)",
    "tasks": "task_submit($1, ARRAY[s.id], ARRAY[s.id], ARRAY[$4::uuid], ARRAY['t'], ARRAY['1'],"
    " ARRAY[NULL::timestamptz], ARRAY[0], ARRAY[0::float8], ARRAY[NULL::text], ARRAY[NULL::text],"
    " ARRAY[NULL::text], true, NULL, NULL)",
    "timers": "timer_set($1, gen_random_uuid(), s.id, NULL, 3600, NULL, 1e9, 'timer-' || s.id, NULL, NULL)",
    "barriers": "barrier_create($1, gen_random_uuid(), s.id, NULL, 2, NULL, NULL)",
}
TAKE = (
    "message_take($1, $4, s.id, false, 'task', 'ann', '1', 3600, ARRAY['task-' || s.id], '{}', 0, NULL, NULL)"
)


@dataclass(frozen=True)
class Tree:
    """Its root first. A task has the id of its scope, and is in a worker's hands in every other one."""

    connection: Any
    schema: str
    space_id: str
    scopes: list[uuid.UUID]
    messages: uuid.UUID
    tasks: uuid.UUID

    @property
    def root(self) -> str:
        """The run."""
        return str(self.scopes[0])

    async def codes(self, call: str, scopes: list[uuid.UUID] | None = None) -> dict[str | None, int]:
        """How often each code is answered when that function is called in each scope; None for a success."""
        found: dict[str | None, int] = {}
        every = self.scopes if scopes is None else scopes
        for start in range(0, len(every), _BATCH):
            rows = await self.connection.fetch(
                "SELECT r.code, count(*) AS many FROM unnest($2::uuid[]) s (id),"
                f" LATERAL {self.schema}.{call} r WHERE $3::uuid IS NOT NULL AND $4::uuid IS NOT NULL"
                " GROUP BY r.code",
                self.space_id,
                every[start : start + _BATCH],
                self.messages,
                self.tasks,
            )
            for row in rows:
                found[row["code"]] = found.get(row["code"], 0) + row["many"]
        return found


async def plant(
    connection: Any, schema: str, space_id: str, count: int, *, below: uuid.UUID | None = None
) -> Tree:
    """A tree of so many scopes, three deep, with WORK in each; a run, or a branch below that scope."""
    boxes = [uuid.uuid4(), uuid.uuid4()]
    for name, box in zip(("messages", "tasks"), boxes, strict=True):
        told = await connection.fetchrow(
            f"SELECT code FROM {schema}.mailbox_create($1, $2, $3, NULL, NULL, NULL, NULL, NULL, NULL)",
            space_id,
            box,
            name,
        )
        assert told["code"] is None
    scopes = [uuid.uuid4() for _ in range(count)]
    parents = [below, *(scopes[max(0, (n - 1) // FAN)] for n in range(1, count))]
    await connection.executemany(
        f"SELECT code FROM {schema}.scope_create($1, $2, 'tree', $3, NULL, 10000, 32, NULL, NULL)",
        [(space_id, one, parent) for one, parent in zip(scopes, parents, strict=True)],
    )
    tree = Tree(connection, schema, space_id, scopes, *boxes)
    for call in WORK.values():
        assert await tree.codes(call) == {None: count}
    assert await tree.codes(TAKE, scopes[::2]) == {None: len(scopes[::2])}
    return tree
