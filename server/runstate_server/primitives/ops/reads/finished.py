"""How many tasks of a run have finished, and how.

A task that has succeeded, was cancelled or has expired stays so. What was counted once is remembered by this
process, and a look counts what has finished since: a run with a million of them is looked at as fast as one
with ten. Failed ones can be redriven, so they are counted anew, up to a bound.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from runstate_server.primitives.tasks.schemas import State

# Index: messages_finished alone. How many rows were looked at and when the last of them finished; then, by
# state, how many had finished by :edge and how many since.
_FINISHED: Final = """
WITH groups AS MATERIALIZED (
  SELECT l.scope_id, l.ended, count(*) FILTER (WHERE l.finished_at <= :edge) AS settled, count(*) AS looked,
         max(l.finished_at) AS last_at
    FROM (SELECT m.scope_id, m.ended, m.finished_at FROM runstate.messages m
           WHERE m.root_id = :root AND m.finished_at > :after AND m.task_key IS NOT NULL AND m.ended <> 'DEAD'
             AND m.space_id = :space
           ORDER BY m.finished_at LIMIT :finished) l
   GROUP BY l.scope_id, l.ended
)
SELECT t.looked, t.last_at, c.ended, c.settled, c.recent
  FROM (SELECT sum(g.looked) AS looked, max(g.last_at) AS last_at FROM groups g) t
  LEFT JOIN (SELECT g.ended, sum(g.settled)::int AS settled, sum(g.looked - g.settled)::int AS recent
               FROM groups g {finished_within} GROUP BY g.ended) c ON true
"""
# Index: messages_failed alone.
_FAILED: Final = """
SELECT COALESCE(sum(g.count), 0)::int FROM (
  SELECT x.scope_id, count(*) AS count FROM (
    SELECT m.scope_id FROM runstate.messages m
     WHERE m.root_id = :root AND m.task_key IS NOT NULL AND m.ended = 'DEAD' AND m.space_id = :space
     LIMIT :counted) x
   GROUP BY x.scope_id) g {finished_within}
"""

LOOKED_AT_MAX: Final = 500_000
_RUNS_MAX: Final = 1_000
# Far more than a call may take from reading the clock to its commit.
_SETTLES_AFTER: Final = timedelta(seconds=20)
_ENDED: Final = {"ACKED": State.SUCCEEDED, "CANCELLED": State.CANCELLED, "EXPIRED": State.EXPIRED}


@dataclass(slots=True)
class _Tally:
    """Counts of what had finished by then."""

    until: datetime = datetime(1, 1, 2, tzinfo=UTC)
    counts: dict[State, int] = field(default_factory=dict)


_tallies: OrderedDict[tuple[str, uuid.UUID], _Tally] = OrderedDict()  # the longest unused first


async def finished(
    look: Callable[..., Any], space_id: str, scope_id: uuid.UUID, now: datetime
) -> dict[State, int]:
    """Counts of a scope and all below it, by `look(statement, **parameters)`. A look counts half a million at
    most, the next one goes on from there."""
    place = (space_id, scope_id)
    tally = _tallies.pop(place, _Tally())
    if tally.until > now:  # the database's clock was set back: what finishes now would be missed
        tally = _Tally()
    edge = max(tally.until, now - _SETTLES_AFTER)
    asked = {"after": tally.until, "finished": LOOKED_AT_MAX}
    rows = await look(_FINISHED, **asked, edge=edge)
    if (rows[0][0] or 0) >= LOOKED_AT_MAX:  # others may have finished with the last of them
        edge = max(tally.until, min(edge, rows[0][1] - timedelta(microseconds=1)))
        rows = await look(_FINISHED, **asked, edge=edge)
    # Made anew, not changed: another look at the same run may be under way.
    settled = _added(tally.counts, ((row[2], row[3]) for row in rows))
    _tallies[place] = _Tally(edge, settled)
    if len(_tallies) > _RUNS_MAX:
        _tallies.popitem(last=False)
    found = _added(settled, ((row[2], row[4]) for row in rows))
    found[State.FAILED] = (await look(_FAILED))[0][0]
    return found


def _added(counts: dict[State, int], more: Iterable[tuple[str | None, int]]) -> dict[State, int]:
    summed = dict(counts)
    for word, count in more:
        if word is not None:
            summed[_ENDED[word]] = summed.get(_ENDED[word], 0) + count
    return summed
