"""Every route inside a space, as rows. A new room adds its rows in a file beside and joins all the suites."""

from tests.promises import (
    rows_allowances,
    rows_barriers,
    rows_budgets,
    rows_claims,
    rows_events,
    rows_groups,
    rows_mailboxes,
    rows_messages,
    rows_once,
    rows_ops,
    rows_permits,
    rows_scopes,
    rows_tasks,
    rows_timers,
    rows_work_limits,
)

ROOMS = [
    rows_scopes,
    rows_once,
    rows_claims,
    rows_mailboxes,
    rows_messages,
    rows_tasks,
    rows_groups,
    rows_permits,
    rows_budgets,
    rows_allowances,
    rows_work_limits,
    rows_barriers,
    rows_timers,
    rows_events,
    rows_ops,
]
MUTATIONS = [row for room in ROOMS for row in room.MUTATIONS]
SHAPES = [row for room in ROOMS for row in room.SHAPES]
