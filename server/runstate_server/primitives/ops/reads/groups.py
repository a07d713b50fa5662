"""The task groups of a run that have no outcome yet, and how far they are."""

from typing import Any, Final

# Indexes: groups_of_run, members_of_group. In a scope that has ended every group has its outcome.
GROUPS: Final = """
WITH open AS MATERIALIZED (
  SELECT j.id, j.scope_id, j.mailbox_id, j.condition, j.threshold, j.expected_members, j.members, j.state,
         j.deadline, j.created_at FROM runstate.task_groups j
   WHERE j.space_id = :space AND j.root_id = :root AND j.state <> 'FINALIZED' LIMIT :counted
), listed AS MATERIALIZED (
  SELECT j.id, j.scope_id, j.mailbox_id, j.condition, j.threshold, j.expected_members, j.members, j.state,
         j.deadline, j.created_at FROM open j {groups_within}
   WHERE s.effective = 'ACTIVE' ORDER BY j.created_at, j.id LIMIT :listed
)
SELECT j.id::text, j.scope_id::text, j.mailbox_id::text, j.condition, j.threshold, j.expected_members,
       j.state, j.members, v.accepted, v.rejected, {build}.wire_time(j.deadline),
       {build}.wire_time(j.created_at)
  FROM listed j CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.verdict = 'ACCEPTED')::int AS accepted,
           count(*) FILTER (WHERE m.verdict = 'REJECTED')::int AS rejected
      FROM runstate.group_members m WHERE m.space_id = :space AND m.group_id = j.id) v
 ORDER BY j.created_at, j.id
"""
_NAMES = (
    *("id", "scopeId", "mailboxId", "condition", "threshold", "expectedMembers", "state"),
    *("members", "accepted", "rejected", "deadline", "createdAt"),
)


def group(row: Any) -> dict[str, Any]:
    """One of the report."""
    return dict(zip(_NAMES, row, strict=True))
