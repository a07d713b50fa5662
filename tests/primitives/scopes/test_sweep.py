"""Sweeps make ends prompt and tidy: deadlines nobody asked about, and what a large run still held."""

import pytest

from tests.support import database, races
from tests.support.builders import Once, end, held, in_seconds, ok, refused, scope
from tests.support.journal import events

MANY = 1_200
HOLD_MANY = """
SELECT count(*) FROM generate_series(1, {many}) AS i,
  LATERAL {schema}.once_acquire('{space}', '{scope}', 'k' || i, 'worker', 's', 3600, 't' || i, NULL, NULL) r
 WHERE r.code IS NULL
"""


def still_held(database_url, scope_id):
    return database.fetchval(
        database_url,
        "SELECT count(*) FROM runstate.once WHERE scope_id = $1::text::uuid AND state = 'HELD'",
        scope_id,
    )


def test_a_deadline_that_passed_unnoticed_is_written_by_a_sweep(api, space, database_url, clock):
    root = scope(api, deadline=in_seconds(api, 60))
    key = Once(scope(api, parentId=root))
    held(api, key, lease_s=3600)
    clock.shift(61)
    races.until_blocking(
        lambda: events(database_url, space.id, "scope.expired"), what="the expiry of the run"
    )
    told = events(database_url, space.id, "scope.expired", "once.lapsed")
    assert [(e.type, e.aggregate) for e in told] == [("once.lapsed", key.key), ("scope.expired", root)]
    assert told[0].payload["reason"] == "scope_expired"
    assert ok(api.get(f"/scopes/{root}"))["storedState"] == "EXPIRED"


@pytest.fixture
def large_run(api, space, database_url, kernel_schema):
    """A scope in which more keys are held than an end ends in its own transaction."""
    root = scope(api)
    sql = HOLD_MANY.format(schema=kernel_schema, many=MANY, space=space.id, scope=root)
    assert database.fetchval(database_url, sql) == MANY
    return root


def test_a_large_run_ends_at_once_and_is_tidied_by_the_sweeps(api, space, database_url, large_run):
    ok(end(large_run).send(api))
    for i in (1, MANY // 2, MANY):
        key = Once(large_run, f"k{i}")
        assert ok(key.view().send(api)) == {"state": "OPEN", "attempts": 0}
        refused(key.complete(f"t{i}", 1).send(api), "SCOPE_CANCELLED")
    races.until_blocking(lambda: still_held(database_url, large_run) == 0, what="tidying")
    lapsed = events(database_url, space.id, "once.lapsed")
    assert {event.aggregate for event in lapsed} == {f"k{i}" for i in range(1, MANY + 1)}
    assert len(lapsed) == MANY
    assert {event.payload["reason"] for event in lapsed} == {"scope_cancelled"}

    def tidied():
        sql = "SELECT count(*) FROM runstate.scope_tidies WHERE space_id = $1"
        return database.fetchval(database_url, sql, space.id) == 0

    races.until_blocking(tidied, what="the end of tidying")


def test_a_sweep_passes_over_a_run_whose_gate_is_taken(fresh_database, kernel_schema):
    """Not a server in sight: the step itself never waits."""
    from tests.support import spaces

    space = spaces.create(fresh_database)
    create = f"SELECT {kernel_schema}.scope_create($1, gen_random_uuid(), $2, NULL, $3, 10, 32, NULL, NULL)"
    past = "2001-01-01T00:00:00Z"

    async def run():
        from datetime import datetime

        async with database.connected(fresh_database) as one, database.connected(fresh_database) as two:
            for name in ("taken", "free"):
                await one.fetchval(create, space.id, name, datetime.fromisoformat(past))
            sql = "SELECT id::text FROM runstate.scopes WHERE name = 'taken'"
            taken = await one.fetchval(sql)
            gate = f"SELECT pg_advisory_lock({kernel_schema}.lock_key('gate', $1, $2))"
            await one.execute(gate, space.id, taken)
            await two.execute("SET lock_timeout = '1ms'")
            swept = await two.fetchrow(f"SELECT * FROM {kernel_schema}.scope_sweep(100)")
            stored = await two.fetch("SELECT name, stored FROM runstate.scopes ORDER BY name")
            return swept["count"], [tuple(row) for row in stored]

    count, stored = database.blocking(run())
    assert count == 1
    assert stored == [("free", "EXPIRED"), ("taken", "ACTIVE")]
