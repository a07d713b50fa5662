"""The timers of a run that are to fire, or have fired and wait to be acknowledged."""

from typing import Any, Final

# Indexes: timers_pending, timers_fired. In a scope that has ended nothing is to fire any more; what has fired
# can be acknowledged still.
TIMERS: Final = """
WITH open AS MATERIALIZED (
  SELECT t.id, t.name, t.scope_id, t.state, t.fire_at, t.fired_at FROM runstate.timers t
   WHERE t.space_id = :space AND t.root_id = :root AND t.state = 'FIRED' LIMIT :counted
), ahead AS MATERIALIZED (
  SELECT t.id, t.name, t.scope_id, t.state, t.fire_at, t.fired_at FROM runstate.timers t
   WHERE t.space_id = :space AND t.root_id = :root AND t.state = 'PENDING' LIMIT :counted
)
SELECT t.id::text, t.name, t.scope_id::text, t.state, {build}.wire_time(t.fire_at),
       {build}.wire_time(t.fired_at)
  FROM (SELECT o.id, o.name, o.scope_id, o.state, o.fire_at, o.fired_at FROM open o
        UNION ALL SELECT a.id, a.name, a.scope_id, a.state, a.fire_at, a.fired_at FROM ahead a) t
  {timers_within}
 WHERE t.state = 'FIRED' OR s.effective = 'ACTIVE'
 ORDER BY t.fire_at, t.id LIMIT :listed
"""


def timer(row: Any) -> dict[str, Any]:
    """One of the report."""
    return dict(zip(("id", "name", "scopeId", "state", "fireAt", "firedAt"), row, strict=True))
