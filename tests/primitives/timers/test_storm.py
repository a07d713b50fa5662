"""Thousands of timers that are due at once: each fires once, none early, and all of them soon."""

from collections import Counter

import pytest

from tests.support import database, processes, races, spaces
from tests.support.builders import end, ok, scope
from tests.support.journal import events
from tests.support.timers import Timers

pytestmark = pytest.mark.processes
MANY = 5_000
PATIENCE_S = 90
SET = """
SELECT count(*) FROM generate_series(1, {many}) AS i,
  LATERAL {schema}.timer_set('{space}', gen_random_uuid(), '{scope}', 'n' || i, 2.5, NULL, 1e9, 't' || i,
    NULL, NULL) r WHERE r.code IS NULL
"""
LEFT = "SELECT count(*) FROM runstate.timers WHERE space_id = $1 AND state = 'PENDING'"
EARLY = "SELECT count(*) FROM runstate.timers WHERE space_id = $1 AND fired_at < fire_at"


def storm(url, schema, space, where):
    sql = SET.format(many=MANY, schema=schema, space=space.id, scope=where)
    assert database.fetchval(url, sql) == MANY


def test_five_thousand_due_at_once_fire_once_each_while_replicas_are_killed(fresh_database, kernel_schema):
    space = spaces.create(fresh_database)
    with processes.replicas(fresh_database, 3, SWEEP_S="0.5") as replicas:
        with space.client(replicas[0].url) as api:
            timers = Timers(scope(api))
        storm(fresh_database, kernel_schema, space, timers.scope)

        def left():
            return database.fetchval(fresh_database, LEFT, space.id)

        races.until_blocking(lambda: left() < MANY, patience_s=PATIENCE_S, what="the first of them")
        replicas[0].kill()
        races.until_blocking(lambda: left() == 0, patience_s=PATIENCE_S, what="the last of them")
        assert database.fetchval(fresh_database, EARLY, space.id) == 0
        fired = Counter(e.aggregate for e in events(fresh_database, space.id, "timer.fired"))
        assert len(fired) == MANY
        assert set(fired.values()) == {1}
        with space.client(replicas[1].url) as api:
            assert len(ok(timers.poll().send(api))["timers"]) == 500


def test_a_run_that_ends_in_the_midst_of_it_leaves_one_end_each(fresh_database, kernel_schema):
    space = spaces.create(fresh_database)
    with processes.replicas(fresh_database, 2, SWEEP_S="0.2") as (here, there):
        with space.client(here.url) as api:
            run = scope(api)
        storm(fresh_database, kernel_schema, space, run)

        def left():
            return database.fetchval(fresh_database, LEFT, space.id)

        races.until_blocking(lambda: left() < MANY, patience_s=PATIENCE_S, what="the first of them")
        with space.client(there.url) as api:
            said = ok(end(run).send(api))["ended"]["timers"]
        races.until_blocking(lambda: left() == 0, patience_s=PATIENCE_S, what="the end of all")
        told = [e for e in events(fresh_database, space.id) if e.type in {"timer.fired", "timer.cancelled"}]
        assert len({e.aggregate for e in told}) == len(told) == MANY
        assert sum(e.type == "timer.cancelled" for e in told) == said
