"""A queue filled in bulk, faster than by sends: rows as the kernel's functions leave them."""

import json
from dataclasses import dataclass
from typing import Any

_FILL = """
WITH given AS (
  SELECT s.id AS scope_id, s.path, s.effective_deadline, b.mode FROM runstate.scopes s, runstate.mailboxes b
   WHERE s.space_id = $1 AND s.id = $3::text::uuid AND b.space_id = $1 AND b.id = $2::text::uuid
), lane AS (
  INSERT INTO runstate.queue_lanes (space_id, a0, mailbox_id, lane, rank)
  SELECT $1, path[1], $2::text::uuid, $5, -$6::int FROM given
  ON CONFLICT (space_id, a0, mailbox_id, lane, rank) DO NOTHING
), new AS (
  INSERT INTO runstate.messages (space_id, id, mailbox_id, scope_id, root_id, task_key, payload, priority,
    deadline, attempt, created_at, ended, finished_at, lane, need)
  SELECT $1, gen_random_uuid(), $2::text::uuid, scope_id, path[1],
         CASE WHEN $5 >= 1 THEN gen_random_uuid()::text END, '{"n":1}', $6::int, $8::timestamptz, 0,
         kernel_now(), $9::text, CASE WHEN $9::text IS NOT NULL THEN kernel_now() END, $5, $10::bigint[]
    FROM given, generate_series(1, $4::int)
  RETURNING seq, id, deadline
)
INSERT INTO runstate.queue_ready (space_id, seq, mailbox_id, scope_id, a0, a1, a2, lane, rank, available_at,
  deadline, attempt, message_id, need, deliverable)
SELECT $1, n.seq, $2::text::uuid, g.scope_id, g.path[1], g.path[2], g.path[3], $5, -$6::int,
       kernel_now() + make_interval(secs => $7), LEAST(n.deadline, g.effective_deadline), 0, n.id,
       $10::bigint[], true
  FROM new n, given g WHERE $9::text IS NULL
"""


@dataclass(frozen=True)
class Backlog:
    """One WORK mailbox, seen by a connection to its database."""

    connection: Any
    schema: str
    space_id: str
    mailbox_id: str

    async def fill(
        self,
        scope_id: str,
        count: int,
        *,
        tasks: bool = False,
        priority: int = 0,
        delay_s: float = 0,
        deadline: Any = None,
        ended: str | None = None,
        needs: Any = None,
    ) -> None:
        """Add that many messages; `ended`: finished ones of that state; `needs`: of tasks, requirements as on
        the wire."""
        sql = _FILL.replace("kernel_now()", f"{self.schema}.kernel_now()")
        lane, need = 1 if tasks or needs else 0, None
        if needs:
            interned = f"SELECT lane, need FROM {self.schema}.lane_of($1, $2::text::json)"
            lane, need = await self.connection.fetchrow(interned, self.space_id, json.dumps(needs))
        await self.connection.execute(
            sql,
            self.space_id,
            self.mailbox_id,
            scope_id,
            count,
            lane,
            priority,
            float(delay_s),
            deadline,
            ended,
            need,
            timeout=1_800,
        )
