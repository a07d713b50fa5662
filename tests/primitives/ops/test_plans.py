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
            assert rows_read(scan) <= ROWS_READ_MAX, (name, scan)
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
        assert len(said["workers"]) == len(said["waiting"]) / 20 == below - 1
    elif name not in {"waits", "summary"}:
        assert len(said[0]) == (20 if name not in {"RUNNING", "LEASED"} else 0)
    elif name == "waits":
        assert [wait["blockedBy"][0]["holder"] for wait in said["waits"]] == ["h"] * 20
    else:
        assert (said["queues"]["ready"], said["queues"]["dead"], said["claims"]["held"]) == (40, 10, 20)
        assert said["events"]["lastHour"] == pytest.approx(3_540, abs=60)


async def test_what_has_finished_is_counted_from_its_index_alone(world):
    _, scans = await world.read("run")
    counted = [scan for scan in scans if rows_read(scan) > ROWS_READ_MAX]
    assert [(scan["Node Type"], scan["Index Name"]) for scan in counted] == [
        ("Index Only Scan", "messages_finished")
    ]
