"""Who stands in the lines of pools and allowances, and which tasks workers would take but for what they lack.

A waiter is told of while it is one: not once nobody has looked for its time to live, or its scope has ended.
The blocked head of a lane is told of while an admit call waits to take it, and for a moment after one has
found it and could not.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol

from runstate_server.foundation import bounds
from runstate_server.primitives.ops.reads.circles import Holder, Wait

Look = Callable[..., Awaitable[list[Any]]]  # (statement, **parameters) -> rows

# What waits in a line now, and what is there to be taken still that an admit call could not afford lately.
_IN_LINE: Final = """{of}.state IN ('WAITING', 'SIGNALED')
     AND {of}.seen_at + make_interval(secs => {of}.ttl_s) > :now"""
# As the index waiters_in_space has it, for what is asked of a whole space alone.
_IN_SPACE: Final = "CASE WHEN {of}.state IN ('WAITING', 'SIGNALED') THEN {of}.space_id END = :space"
_SEEN_LATELY: Final = "x.seen_until > CAST(:now AS timestamptz) - interval '5 seconds'"
# Index: the primary keys of queue_ready and of scopes.
_STILL_LACKS: Final = """
  CROSS JOIN LATERAL (
    SELECT r.message_id FROM runstate.queue_ready r
     WHERE r.space_id = :space AND r.seq = w.seq AND (r.deadline IS NULL OR r.deadline > :now) OFFSET 0) q
  CROSS JOIN LATERAL (
    SELECT 1 WHERE true = ANY ({build}.needs_lacking(:space, ARRAY[w.kind], ARRAY[w.resource_id],
      ARRAY[w.units], w.since, :now)) OFFSET 0) l"""
_ACTIVE: Final = """
  CROSS JOIN LATERAL (
    SELECT {build}.effective_at(s.effective, s.effective_deadline, :now) AS effective FROM runstate.scopes s
     WHERE s.space_id = :space AND s.id = w.scope_id OFFSET 0) s"""

# Index: waiters_in_space. The longest come first, and all who stand before one of them are among them.
_LINES: Final = """
WITH line AS MATERIALIZED (
  SELECT x.kind, x.resource_id, x.ticket, x.since, x.hold_until, x.units, x.scope_id, x.holder
    FROM runstate.line_waiters x
   WHERE {in_space_of_x} AND {line_of_x}
   ORDER BY x.since LIMIT :looked_at
)
SELECT w.kind, w.resource_id, w.units, w.holder, w.scope_id::text, {build}.wire_time(w.since),
       {build}.wire_time(w.hold_until), w.place
  FROM (SELECT l.kind, l.resource_id, l.units, l.holder, l.scope_id, l.since, l.hold_until, l.ticket,
               row_number() OVER (PARTITION BY l.resource_id ORDER BY l.ticket) AS place FROM line l) w
  {active}
 WHERE s.effective = 'ACTIVE' ORDER BY w.since, w.ticket
"""
# Primary key of lane_waits, by its space.
_HEADS: Final = """
SELECT w.kind, w.resource_id, w.units, w.holder, w.scope_id::text, {build}.wire_time(w.blocked_at),
       m.task_key, b.name
  FROM (SELECT x.kind, x.resource_id, x.units, x.holder, x.scope_id, x.blocked_at, x.seq, x.since,
               x.mailbox_id FROM runstate.lane_waits x
         WHERE x.space_id = :space AND {seen_lately} ORDER BY x.blocked_at LIMIT :heads) w
  {active} {still_lacks}
  CROSS JOIN LATERAL (SELECT y.task_key FROM runstate.messages y
                       WHERE y.space_id = :space AND y.id = q.message_id OFFSET 0) m
  CROSS JOIN LATERAL (SELECT y.name FROM runstate.mailboxes y
                       WHERE y.space_id = :space AND y.id = w.mailbox_id OFFSET 0) b
 WHERE s.effective = 'ACTIVE' ORDER BY w.blocked_at, w.seq, w.kind, w.resource_id
"""

# Primary key of pools.
_POOLS: Final = """
SELECT p.id, p.name, p.units_total FROM unnest(CAST(:ids AS uuid[])) i (id)
  CROSS JOIN LATERAL (SELECT y.id, y.name, y.units_total FROM runstate.pools y
                       WHERE y.space_id = :space AND y.id = i.id OFFSET 0) p
"""
# Index: grants_of_pool. A grant is its holder's to the end of its lease, also when its scope has ended.
_HOLDERS: Final = """
SELECT h.pool_id, h.holder, h.session, {build}.wire_time(h.until) FROM (
    SELECT g.pool_id, g.holder, g.session, min(g.expires_at) AS until,
           row_number() OVER (PARTITION BY g.pool_id ORDER BY min(g.expires_at), g.holder, g.session) AS n
      FROM (SELECT y.pool_id, y.holder, y.session, y.expires_at FROM runstate.grants y
             WHERE y.pool_id = ANY (CAST(:ids AS uuid[])) AND y.space_id = :space AND y.ended IS NULL
               AND y.expires_at > :now LIMIT :counted) g
     GROUP BY g.pool_id, g.holder, g.session) h
 WHERE h.n <= :blockers ORDER BY h.pool_id, h.n
"""
_QUOTAS: Final = """
SELECT i.id, n.name, n.units_limit, n.consumed, {build}.wire_time(n.window_end),
       {build}.wire_time(n.cooldown_until)
  FROM unnest(CAST(:ids AS uuid[])) i (id) CROSS JOIN LATERAL {build}.allowance_now(:space, i.id, :now) n
"""
_BUDGETS: Final = """
SELECT b.id, b.name, b.currency, b.scale, b.limit_minor, {build}.budget_left(:space, b.id, :now)
  FROM unnest(CAST(:ids AS uuid[])) i (id)
  CROSS JOIN LATERAL (SELECT y.id, y.name, y.currency, y.scale, y.limit_minor FROM runstate.budgets y
                       WHERE y.space_id = :space AND y.id = i.id OFFSET 0) b
"""

KINDS: Final = {1: "permit", 2: "allowance", 3: "budget"}
_NAMED_MAX: Final = 5


class Resource(Protocol):
    """What is waited for, in words."""

    name: str
    holders: list[Holder]

    def amount(self, units: int) -> str:
        """So many of them."""

    @property
    def state(self) -> str:
        """Who has them, or when there will be more."""


@dataclass(slots=True)
class Pool:
    """Units that are held under leases."""

    name: str
    total: int
    holders: list[Holder] = field(default_factory=list)

    def amount(self, units: int) -> str:
        """So many of its units."""
        return f'{units} of the {self.total} units of permit pool "{self.name}"'

    @property
    def state(self) -> str:
        """Who holds them, a few by name."""
        if not self.holders:
            return "nobody holds any of them now"
        named = [f'"{h.holder}" until {h.lease_expires_at}' for h in self.holders[:_NAMED_MAX]]
        if len(self.holders) > _NAMED_MAX:
            named.append(f"{len(self.holders) - _NAMED_MAX} more")
        return f"held by {' and '.join(named)}"


@dataclass(slots=True)
class Quota:
    """Units per window."""

    name: str
    limit: int
    consumed: int
    window_end: str
    cooldown_until: str | None
    holders: list[Holder] = field(default_factory=list)

    def amount(self, units: int) -> str:
        """So many of a window's units."""
        return f'{units} of the {self.limit} units per window of allowance "{self.name}"'

    @property
    def state(self) -> str:
        """When there will be more."""
        said = f"{self.consumed} are consumed in the window that ends at {self.window_end}"
        return said if self.cooldown_until is None else f"{said}; cooldown until {self.cooldown_until}"


@dataclass(slots=True)
class Money:
    """What may be spent."""

    name: str
    currency: str
    scale: int
    limit: int
    left: int
    holders: list[Holder] = field(default_factory=list)

    def amount(self, units: int) -> str:
        """So many minor units, in major ones."""
        return f'{self._major(units)} of budget "{self.name}"'

    @property
    def state(self) -> str:
        """What is neither reserved nor spent."""
        return f"{self._major(self.left)} are left of {self._major(self.limit)}"

    def _major(self, minor: int) -> str:
        return f"{Decimal(minor).scaleb(-self.scale):f} {self.currency}"


def parts(*line_names: str) -> dict[str, str]:
    """What statements leave open as {seen_lately}, {still_lacks}, {line_of_X} and {in_space_of_X} of a line
    under a name."""
    lines = {
        f"{part}_of_{name}": text.replace("{of}", name)
        for name in line_names
        for part, text in (("line", _IN_LINE), ("in_space", _IN_SPACE))
    }
    return {"seen_lately": _SEEN_LATELY, "still_lacks": _STILL_LACKS, "active": _ACTIVE} | lines


async def waits(look: Look) -> list[Wait]:
    """Who waits in lines, and the blocked heads of lanes: one for each thing that one lacks."""
    lines = await look(_filled(_LINES))
    heads = await look(_filled(_HEADS), heads=bounds.heads_looked_at_max)
    known = await _resources(look, [(row[0], row[1]) for row in lines] + [(KINDS[h[0]], h[1]) for h in heads])
    return [_in_line(known[r[1]], r) for r in lines] + [_head(known[r[1]], r) for r in heads]


async def _resources(look: Look, named: Iterable[tuple[str, uuid.UUID]]) -> dict[uuid.UUID, Resource]:
    ids: dict[str, list[uuid.UUID]] = {kind: [] for kind in KINDS.values()}
    for kind, each in dict.fromkeys(named):
        ids[kind].append(each)
    pools = {row[0]: Pool(*row[1:]) for row in await look(_POOLS, ids=ids["permit"])}
    limits = {"counted": bounds.counted_max, "blockers": bounds.blockers_max}
    for pool_id, *held in await look(_HOLDERS, ids=ids["permit"], **limits) if pools else []:
        pools[pool_id].holders.append(Holder(*held))
    quotas = await look(_QUOTAS, ids=ids["allowance"])
    budgets = await look(_BUDGETS, ids=ids["budget"])
    return {**pools, **{r[0]: Quota(*r[1:]) for r in quotas}, **{r[0]: Money(*r[1:]) for r in budgets}}


def _filled(statement: str) -> str:
    for name, part in parts("x").items():
        statement = statement.replace(f"{{{name}}}", part)
    return statement


def _in_line(resource: Resource, row: Any) -> Wait:
    kind, _, units, holder, scope_id, since, kept_until, place = row
    verb = "is" if units == 1 else "are"
    if kept_until is not None:
        said = f"{resource.amount(units)} {verb} kept for the one who waits, until {kept_until}"
    else:
        said = f"{resource.amount(units)} {verb} wanted; {resource.state}; position {place} in its line"
    held = resource.holders if kept_until is None else []
    return Wait(kind, resource.name, units, (holder, None), scope_id, since, said, held)


def _head(resource: Resource, row: Any) -> Wait:
    kind, _, units, holder, scope_id, since, task_key, mailbox = row
    said = f'task "{task_key}" of mailbox "{mailbox}" needs {resource.amount(units)}; {resource.state}'
    wait = Wait(KINDS[kind], resource.name, units, (holder, None), scope_id, since, said, resource.holders)
    wait.stuck = False
    return wait
