"""A report or list reads what is there now, by the indexes made for it: not what is past, or of others.

Counted are the rows that its statements read, on tables that nobody has analysed and on analysed ones. The
times are printed by bench/ops_depth.py.
"""

import json
import uuid

import pytest
from sqlalchemy import event

from runstate_server.foundation import db
from runstate_server.primitives.messages import reads as messages
from runstate_server.primitives.ops.reads import runs, summary, waits
from runstate_server.primitives.tasks import reads as tasks
from tests.support import database, spaces
from tests.support.backlog import Backlog
from tests.support.clock import Clock

MANY = 20_000
ROWS_READ_MAX = 300
TINY = {"replicas", "epoch", "test_clock"}
EXPLAIN = (
    "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;"
    " SET auto_explain.log_analyze = on; SET auto_explain.log_format = json;"
    " SET auto_explain.log_level = notice; SET client_min_messages = notice"
)
LEASES = """
INSERT INTO runstate.claims (space_id, scope_id, key, root_id, held, generation, token, holder, session,
  lease_s, expires_at, due_at, created_at)
SELECT $1, $2::text::uuid, 'k' || i, $2::text::uuid, $3, 1, gen_random_uuid()::text, 'h', 's', 60,
       CASE WHEN $3 THEN now() + interval '1 day' END, CASE WHEN $3 THEN now() + interval '1 day' END, now()
  FROM generate_series(1, $4::int) i;
"""
WAITS = """
INSERT INTO runstate.waits (space_id, replica, id, kind, resource, scope_id, root_id, holder, session, since)
SELECT $1, $2::text::uuid, i, 'claim', 'k' || i, $3::text::uuid, $3::text::uuid, 'w', 's', now()
  FROM generate_series(1, $4::int) i
"""
POOL = """
INSERT INTO runstate.pools (space_id, id, name, units_total, units_used, units_signaled, next_ticket,
  created_at) VALUES ($1, $2::text::uuid, $2, 1000000, 0, 0, 1000000, now())
"""
GRANTS = """
INSERT INTO runstate.grants (space_id, id, pool_id, scope_id, root_id, units, token, holder, session, lease_s,
  expires_at, due_at, ended, ended_at, created_at)
SELECT $1, gen_random_uuid(), $2::text::uuid, $3::text::uuid, $3::text::uuid, 1, i::text, 'h', 's', 60,
       now() + interval '1 day', now() + interval '1 day', CASE WHEN $5 THEN 'RELEASED' END,
       CASE WHEN $5 THEN now() END, now()
  FROM generate_series(1, $4::int) i
"""
LINE = """
INSERT INTO runstate.line_waiters (space_id, id, kind, resource_id, ticket, since, state, units, scope_id,
  root_id, holder, ttl_s, seen_at, ended_at)
SELECT $1, gen_random_uuid(), 'permit', $2::text::uuid, i, now(),
       CASE WHEN $5 THEN 'CANCELLED' ELSE 'WAITING' END, 1, $3::text::uuid, $3::text::uuid, 'w', 86400, now(),
       CASE WHEN $5 THEN now() END
  FROM generate_series(1, $4::int) i
"""
HEADS = """
INSERT INTO runstate.lane_waits (space_id, resource_id, mailbox_id, root_id, lane, kind, units, seq, scope_id,
  holder, since, ready_at, blocked_at, holds, wake, seen_until)
SELECT $1, $2::text::uuid, $4::text::uuid, $3::text::uuid, 1 + i, 1, 1, i, $3::text::uuid, 'w', now(), now(),
       now(), false, '', now() + interval '1 day'
  FROM generate_series(1, $5::int) i
"""
DAYS = "SELECT {schema}.journal_day({schema}.journal_today() - n) FROM generate_series(0, 1) n"
EVENTS = """
INSERT INTO runstate.journal (space_id, num, day, type, created_at, aggregate_type, aggregate_id, payload)
SELECT $1, i, (at AT TIME ZONE 'UTC')::date, 't', at, 'task', 'x', '{}'
  FROM generate_series(1, $2::int) i, LATERAL (SELECT now() - make_interval(secs => $2 - i) AS at) e
"""
HEAD = """
INSERT INTO runstate.journal_heads (space_id, num, day) VALUES ($1, $2, (now() AT TIME ZONE 'UTC')::date)
ON CONFLICT (space_id) DO UPDATE SET num = excluded.num
"""
REPLICA = "INSERT INTO runstate.replicas (id, build, seen_at) VALUES ($1::text::uuid, 'b', now())"


class World:
    """A run that is looked at, one beside it, and another space."""

    def __init__(self, url, schema):
        self.url, self.schema = url, schema
        self.plans = []
        self.engine = db.open_engine(url, named_statements=True)
        event.listen(self.engine.sync_engine, "connect", self._explain)

    def _explain(self, connection, _):
        async def prepare(driver):
            driver.add_log_listener(lambda _, message: self.plans.append(message.message))
            await driver.execute(EXPLAIN)

        connection.run_async(prepare)

    async def make(self, connection):
        self.space = spaces.create(self.url).id
        self.theirs = spaces.create(self.url).id
        self.run, self.beside = [await self._made(connection, self.space) for _ in range(2)]
        self.child = await self._made(connection, self.space, self.run)
        self.foreign = await self._made(connection, self.theirs)

    async def _made(self, connection, space, parent=None):
        sql = f"SELECT facts FROM {self.schema}.scope_create($1, $2, NULL, $3, NULL, 100, 32, NULL, NULL)"
        return json.loads(await connection.fetchval(sql, space, uuid.uuid4(), parent))["id"]

    async def box(self, connection, space):
        sql = (
            f"SELECT facts FROM {self.schema}.mailbox_create($1, $2, 'm', NULL, NULL, NULL, NULL, NULL, NULL)"
        )
        made = json.loads(await connection.fetchval(sql, space, uuid.uuid4()))["id"]
        return Backlog(connection, self.schema, space, made)

    async def line(self, connection, space, run, count, *, over=False):
        """A pool whose units are lent, and who waits for them."""
        pool = str(uuid.uuid4())
        await connection.execute(POOL, space, pool)
        await connection.execute(GRANTS, space, pool, run, count, over)
        await connection.execute(LINE, space, pool, run, count, over)
        return pool

    def reports(self):
        where = (self.engine, self.schema, self.space)
        return {
            "run": lambda: runs.run(*where, uuid.UUID(self.run)),
            "child": lambda: runs.run(*where, uuid.UUID(self.child)),
            "waits": lambda: waits.waits(*where),
            "summary": lambda: summary.summary(*where),
            **{str(state): lambda state=state: self.page(state) for state in (None, "QUEUED", "RUNNING")},
            **{state: lambda state=state: self.messages(state) for state in ("READY", "LEASED")},
        }

    async def page(self, state):
        """Of tasks."""
        where = (self.engine, self.schema, self.space)
        filters = {"scope_id": None, "mailbox_id": None, "task_key": None, "state": state}
        return await tasks.page(*where, **filters, before=None, limit=20)

    async def messages(self, state):
        """Of the mailbox."""
        where = (self.engine, self.schema, self.space, uuid.UUID(self.mailbox))
        return await messages.page(*where, state=state, scope_id=None, before=None, limit=20)

    async def read(self, name):
        """What the report says, and every scan of its statements."""
        self.plans.clear()
        said = await self.reports()[name]()
        told = [json.loads(text.partition("plan:\n")[2]) for text in self.plans if "plan:\n" in text]
        assert told
        scans = [n for plan in told for n in nodes(plan["Plan"]) if "Relation Name" in n]
        # What the driver asks of the catalogue when it connects is not the report's.
        return said, [n for n in scans if n["Relation Name"] not in TINY | {"pg_type", "pg_range"}]


def nodes(plan):
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def rows_read(scan):
    removed = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
    return (scan["Actual Rows"] + removed) * scan["Actual Loops"]


@pytest.fixture
async def world(fresh_database, kernel_schema):
    """Much that is over, elsewhere or of others; little that is here and now."""
    world = World(fresh_database, kernel_schema)
    async with database.connected(fresh_database) as connection:
        await connection.execute("SET statement_timeout = 0")
        await world.make(connection)
        here, there = await world.box(connection, world.space), await world.box(connection, world.theirs)
        world.mailbox = here.mailbox_id
        for where, backlog in ((world.run, here), (world.beside, here), (world.foreign, there)):
            await backlog.fill(where, MANY // 2, tasks=True, ended="ACKED")
            await backlog.fill(where, MANY // 4, ended="ACKED")
        await here.fill(world.child, MANY // 4, tasks=True, ended="EXPIRED")
        await there.fill(world.foreign, MANY, tasks=True)
        await there.fill(world.foreign, MANY, tasks=True, ended="DEAD")
        for where in (world.run, world.child):
            await here.fill(where, 20, tasks=True)
            await here.fill(where, 5, tasks=True, ended="DEAD")
        replica = str(uuid.uuid4())
        await connection.execute(REPLICA, replica)
        await connection.execute(DAYS.format(schema=kernel_schema))
        for space, run, count in ((world.space, world.run, 20), (world.theirs, world.foreign, MANY)):
            await connection.execute(LEASES, space, run, True, count)
            await connection.execute(WAITS, space, replica, run, count)
            await connection.execute(EVENTS, space, MANY)
            await connection.execute(HEAD, space, MANY)
            pool = await world.line(connection, space, run, count)
        await world.line(connection, world.space, world.run, MANY, over=True)
        await connection.execute(HEADS, world.theirs, pool, world.foreign, there.mailbox_id, MANY)
        await connection.execute(LEASES, world.space, world.beside, False, MANY)
        Clock(fresh_database).shift(60)
        await connection.execute("UPDATE runstate.replicas SET seen_at = seen_at + interval '60 seconds'")
        yield world
    await world.engine.dispose()


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
async def test_a_report_reads_what_there_is_now_and_by_its_indexes(world, analysed):
    if analysed:
        async with database.connected(world.url) as connection:
            await connection.execute("VACUUM ANALYZE")
    for name in world.reports():
        await world.read(name)  # what has finished is counted once, whoever looks then
        said, scans = await world.read(name)
        for scan in scans:
            assert "Seq" not in scan["Node Type"], (name, scan)
            assert rows_read(scan) <= ROWS_READ_MAX, (name, scan.get("Index Name"), scan)
        assert sum(rows_read(scan) for scan in scans) <= 4 * ROWS_READ_MAX
        check(name, said)


def check(name, said):
    """It did look."""
    if name in {"run", "child"}:
        below = 2 if name == "run" else 1
        states = {"QUEUED": 20 * below, "FAILED": 5 * below, "EXPIRED": MANY // 4}
        assert said["tasks"].items() >= states.items()
        assert said["tasks"]["SUCCEEDED"] == (MANY // 2 if name == "run" else 0)
        assert [queue["ready"] for queue in said["queues"]] == [20 * below]
        assert len(said["workers"]) == len(said["waiting"]) / 40 == below - 1
    elif name not in {"waits", "summary"}:
        assert len(said[0]) == (20 if name not in {"RUNNING", "LEASED"} else 0)
    elif name == "waits":
        assert [wait["blockedBy"][0]["holder"] for wait in said["waits"]] == ["h"] * 40
    else:
        assert (said["queues"]["ready"], said["queues"]["dead"], said["claims"]["held"]) == (40, 10, 20)
        assert (said["grants"], said["waits"]) == ({"held": 20}, 40)
        assert said["events"]["lastHour"] == pytest.approx(3_540, abs=60)


async def test_what_has_finished_is_counted_from_its_index_alone(world):
    _, scans = await world.read("run")
    counted = [scan for scan in scans if rows_read(scan) > ROWS_READ_MAX]
    assert [(scan["Node Type"], scan["Index Name"]) for scan in counted] == [
        ("Index Only Scan", "messages_finished")
    ]


async def test_lines_of_other_runs_do_not_slow_the_report_on_a_run(world):
    """Ten thousand who stand in another line, for as many units; and in front of its own twenty in one."""
    async with database.connected(world.url) as connection:
        await world.line(connection, world.space, world.beside, MANY // 2)
        pool = await world.line(connection, world.space, world.run, 0)
        behind = LINE.replace("'permit', $2::text::uuid, i", "'permit', $2::text::uuid, 1000000 + i")
        await connection.execute(LINE, world.space, pool, world.beside, MANY // 2, False)
        await connection.execute(behind, world.space, pool, world.run, 20, False)
    await world.read("run")
    said, scans = await world.read("run")
    assert [wait["position"] for wait in said["waiting"][-20:]] == [MANY // 2 + n for n in range(1, 21)]
    much = [scan for scan in scans if rows_read(scan) > ROWS_READ_MAX]
    assert [(scan["Index Name"], round(rows_read(scan))) for scan in much] == [
        ("waiters_line", MANY // 2 + 40)
    ]
    assert sum(rows_read(scan) for scan in scans) - MANY // 2 <= 4 * ROWS_READ_MAX
