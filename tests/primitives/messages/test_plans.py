"""A fetch reads a handful of rows by the index made for it, whatever waits, is delayed, or is over.

Counted are the entries that its statements read from each index, in its own transaction, however busy the
machine is. The times are printed by bench/fetch_depth.py.
"""

import json
import random
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from runstate_server.kernel.call import Reply
from tests.primitives.messages.storm import Storm, World, kernel
from tests.support import database, spaces
from tests.support.backlog import Backlog
from tests.support.clock import Clock
from tests.support.needs import needs

MANY = 20_000
HEADS = {-1: "ready_scope", 0: "ready_run", 1: "ready_a1", 2: "ready_a2", 3: "ready_scope"}
READ = """
SELECT c.relname AS name, i.indexrelid IS NULL AS is_table, pg_stat_get_xact_numscans(c.oid) AS scans,
       pg_stat_get_xact_tuples_returned(c.oid) AS entries
  FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
 WHERE c.relnamespace = 'runstate'::regnamespace AND pg_stat_get_xact_numscans(c.oid) > 0
"""
AUTO_EXPLAIN = (
    "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;"
    " SET auto_explain.log_format = json; SET auto_explain.log_level = notice;"
    " SET client_min_messages = notice"
)
SPACE_ALONE = re.compile(r"\(*space_id = [^=]*")
TINY = {"epoch", "test_clock", "sequencer", "outbox", "scope_tidies", None}
PAST = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Read:
    """How often a table or an index was scanned, and how many rows or entries that returned."""

    is_table: bool = False
    scans: int = 0
    entries: int = 0

    def __sub__(self, before):
        return Read(self.is_table, self.scans - before.scans, self.entries - before.entries)


class Queue:
    """A mailbox, and a chain of scopes from a run (depth 0) down to depth 3 with a sibling at each."""

    def __init__(self, connection, schema, space_id):
        self._connection, self._schema, self._space = connection, schema, space_id

    async def make(self):
        made = await self._call("mailbox_create", uuid.uuid4(), "m", None, None, None, None, None, None)
        self.box = made["id"]
        self.chain, self.siblings = [], []
        for _ in range(4):
            parent = self.chain[-1] if self.chain else None
            self.chain.append(await self._scope(parent))
            self.siblings.append(await self._scope(parent))
        self.backlog = Backlog(self._connection, self._schema, self._space, self.box)

    async def _scope(self, parent):
        made = await self._call("scope_create", uuid.uuid4(), None, parent, None, 100, 32, None, None)
        return made["id"]

    async def _call(self, function, *args):
        places = ", ".join(f"${i + 2}" for i in range(len(args)))
        sql = f"SELECT status, code, facts, again_s FROM {self._schema}.{function}($1, {places})"
        row = await self._connection.fetchrow(sql, self._space, *args)
        assert row["code"] is None, row
        return json.loads(row["facts"])

    async def pool(self, name):
        """The id of a pool."""
        return await self._connection.fetchval("SELECT id FROM runstate.pools WHERE name = $1", name)

    async def lend(self, pool):
        """Take the one unit that a pool has."""
        run = self.chain[0]
        await self._call(
            "permit_acquire", pool, run, uuid.uuid4(), 1, "h", "s", 3600.0, None, "t", None, None
        )

    async def take(self, level, *, form="message", count=1, lease_s=60.0):
        """Fetch from the scope at that depth of the chain with its descendants; -1: from the deepest alone.
        Returns what was delivered and what was read: {index or table: (scans, entries)}."""
        where = self.chain[level if level >= 0 else 3]
        tokens = [uuid.uuid4().hex for _ in range(count)]
        async with self._connection.transaction():
            before = await self._counters()
            facts = await self._call(
                "message_take",
                self.box,
                where,
                level >= 0,
                form,
                "h",
                "s",
                lease_s,
                tokens,
                [uuid.uuid4().hex for _ in range(4 * count)],
                0.0,
                None,
                None,
            )
            after = await self._counters()
        return facts, {name: now - before.get(name, Read()) for name, now in after.items()}

    async def _counters(self):
        rows = await self._connection.fetch(READ)
        return {r["name"]: Read(r["is_table"], r["scans"], r["entries"]) for r in rows}


@pytest.fixture
async def queue(fresh_database, kernel_schema):
    async with database.connected(fresh_database) as connection:
        await connection.execute("SET statement_timeout = 0; SET track_counts = on")
        queue = Queue(connection, kernel_schema, spaces.create(fresh_database).id)
        await queue.make()
        yield queue


def entries(read, prefix="ready_"):
    """Index entries read of the waiting rows, by index."""
    return {name: r.entries for name, r in read.items() if name.startswith(prefix) and r.entries}


def nothing_was_read_whole(read):
    """Neither a table nor an index: no statement read more than a handful."""
    assert not {name: r for name, r in read.items() if r.entries > 120}
    assert {name for name, r in read.items() if r.is_table and r.scans} <= {"epoch", "test_clock"}


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
@pytest.mark.parametrize("level", HEADS)
async def test_a_fetch_reads_the_head_of_its_own_index(queue, level, analysed):
    await queue.take(0)  # plans are made while the tables are empty
    await queue.backlog.fill(queue.chain[3], MANY)
    await queue.backlog.fill(queue.chain[3], 10, tasks=True, priority=1)
    if analysed:
        await queue._connection.execute("VACUUM ANALYZE runstate.queue_ready, runstate.messages")
    for _ in range(7):
        facts, read = await queue.take(level)
        assert facts["message"]["attempt"] == 1
        nothing_was_read_whole(read)
        assert sum(entries(read).values()) <= 30
        assert HEADS[level] in entries(read)


@pytest.mark.parametrize("level", HEADS)
async def test_what_cannot_be_delivered_is_not_read(queue, level):
    """Delayed ones of higher priority, those of scopes beside, those that are over, all before one."""
    await queue.backlog.fill(queue.chain[3], MANY, priority=100, delay_s=3600)
    for beside in queue.siblings:
        await queue.backlog.fill(beside, MANY // 4, priority=50 if beside != queue.siblings[0] else 100)
    await queue.backlog.fill(queue.chain[3], MANY, ended="ACKED")
    await queue.backlog.fill(queue.chain[3], 1, priority=-100)
    below = {-1: 0, 0: 3, 1: 2, 2: 1, 3: 0}[level] * MANY // 4
    facts, read = await queue.take(level)
    assert "message" in facts
    nothing_was_read_whole(read)
    assert sum(entries(read).values()) <= 40
    if not below:
        facts, read = await queue.take(level)
        assert facts == {}
        nothing_was_read_whole(read)
        assert sum(entries(read).values()) <= 60


async def test_tasks_are_found_behind_any_number_of_messages(queue):
    await queue.backlog.fill(queue.chain[0], MANY)
    await queue.backlog.fill(queue.chain[0], 60, tasks=True)
    for form, count in (("task", 1), ("tasks", 50)):
        facts, read = await queue.take(0, form=form, count=count)
        assert len(facts.get("admitted", [facts])) == count
        assert sum(entries(read).values()) <= 30 * count


@pytest.mark.parametrize("level", HEADS)
@pytest.mark.parametrize("lanes", [1, 2])
async def test_what_has_expired_is_settled_a_hundred_at_a_time_and_hides_nothing(queue, level, lanes):
    """One look delivers what stands behind thousands of them, by recv and by admit."""
    for tasks in (False, True)[:lanes]:
        await queue.backlog.fill(queue.chain[3], 2_000, tasks=tasks, deadline=PAST)
        await queue.backlog.fill(queue.chain[3], 1, tasks=tasks)
    facts, _ = await queue.take(level)
    assert facts["message"]["attempt"] == 1
    settled = await queue._connection.fetchval(
        "SELECT count(*) FROM runstate.messages WHERE ended = 'EXPIRED'"
    )
    assert settled == 100
    if lanes == 2:
        facts, _ = await queue.take(level, form="task")
        assert facts["attempt"] == 1


async def test_lapsed_deliveries_are_found_by_when_they_are_due(queue, fresh_database):
    """Thousands of leases that are alive stand beside one that has lapsed."""
    await queue.backlog.fill(queue.chain[0], 3_001, tasks=True)
    first, _ = await queue.take(0)
    for _ in range(60):
        await queue.take(0, form="tasks", count=50, lease_s=3600.0)
    Clock(fresh_database).shift(61)
    facts, read = await queue.take(0)
    assert (facts["message"]["id"], facts["message"]["attempt"]) == (first["message"]["id"], 2)
    assert sum(entries(read, "leased_").values()) <= 20


async def test_a_crowd_of_blocked_tasks_is_not_read_for_one_that_can_run(queue):
    """Of each lane the head is looked at, however many stand behind it."""
    for name in ("full", "free"):
        await queue._call("pool_create", uuid.uuid4(), name, 1_000, None, None)
    held = await queue.pool("full")
    await queue._call("pool_resize", held, 1, None, None)
    await queue.take(0, form="task")  # plans are made while the tables are empty
    await queue.lend(held)
    await queue.backlog.fill(queue.chain[3], MANY, needs=needs({"full": 1}))
    await queue.backlog.fill(queue.chain[3], 20, needs=needs({"free": 1}))
    for level in HEADS:
        facts, read = await queue.take(level, form="task")
        assert facts["grants"][0]["permit"] == "free"
        nothing_was_read_whole(read)
        assert sum(entries(read).values()) <= 60


# What the planner makes of empty tables is kept by every connection until somebody analyses them


async def test_a_plan_made_on_empty_tables_looks_things_up_by_more_than_their_space(fresh_database):
    """While a table is small every index that begins with space_id seems as good as the right one."""
    plans = []
    async with database.connected(fresh_database) as connection:
        connection.add_log_listener(lambda _, message: plans.append(message.message))
        await connection.execute(AUTO_EXPLAIN)
        async with kernel(fresh_database) as floor:
            world = World(Watched(floor, connection), spaces.create(fresh_database).id)
            await world.fill()
            storm = Storm(world, random.Random(3))
            for _ in range(60):
                await storm.produce()
                await storm.consume()
                await storm.meddle()
            await storm.cancel_scope(world.roots[0])
    looked_up = [n for text in plans if (n := text.partition("plan:\n")[2])]
    assert len(looked_up) > 3_000
    found = {
        (n["Node Type"], n.get("Relation Name"), n.get("Index Cond")) for t in looked_up for n in nodes(t)
    }
    assert not [f for f in found if f[0] in {"Hash Join", "Merge Join", "Materialize"}]
    seen_whole = [f for f in found if "Seq" in f[0] and f[1] not in TINY]
    by_space_alone = [f for f in found if f[0].startswith("Index") and SPACE_ALONE.fullmatch(f[2] or "")]
    assert not seen_whole + by_space_alone
    assert {f[1] for f in found} >= {"messages", "queue_ready", "queue_leased", "scopes", "mailboxes"}


class Watched:
    """The seam, on one connection that tells its plans."""

    def __init__(self, floor, connection):
        self.pool, self.schema = floor.pool, floor.schema
        self._connection = connection

    async def call(self, function, *args):
        args = (*args, None, None)
        places = ", ".join(f"${i + 1}" for i in range(len(args)))
        row = await self._connection.fetchrow(f"SELECT * FROM {self.schema}.{function}({places})", *args)
        return Reply.of(row)

    async def step(self, function, *args):
        places = ", ".join(f"${i + 1}" for i in range(len(args)))
        return await self._connection.fetchrow(f"SELECT * FROM {self.schema}.{function}({places})", *args)


def nodes(text):
    def below(node):
        yield node
        for one in node.get("Plans", []):
            yield from below(one)

    yield from below(json.loads(text)["Plan"])
