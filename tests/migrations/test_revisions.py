"""Revisions: up, down, up; the file to be read is what they make; two builds side by side."""

import pytest

from runstate_server import migrator
from runstate_server.embedded.binaries import account_for, usable_binaries
from runstate_server.kernel import install
from tests.support import database, schema, sources, spaces
from tests.support.builders import Once, held, ok, refused, scope
from tests.support.processes import Replica

TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'runstate' AND tablename <> 'alembic_version'"


def dumped(url):
    from pathlib import Path

    return schema.dump(usable_binaries(None, account_for(Path("/nonexistent"))), url)


def test_up_down_and_up_again_make_the_same_tables(template):
    with template.empty() as url:
        database.migrate(url)
        first = dumped(url)
        database.blocking(migrator.downgrade_async(url))
        assert database.fetchval(url, TABLES) == 0
        database.migrate(url)
        assert dumped(url) == first


@pytest.mark.processes  # the text is that of the wheel's PostgreSQL; runs on another leave these tests out
def test_the_schema_to_be_read_is_what_the_revisions_make(fresh_database):
    """After a new revision: make schema."""
    assert (sources.ROOT / "migrations/schema.sql").read_text() == dumped(fresh_database)


def test_migrating_again_changes_nothing(fresh_database):
    before = dumped(fresh_database)
    database.migrate(fresh_database)
    assert dumped(fresh_database) == before


def test_a_build_is_named_by_its_content():
    production, test = (install.schema_name(test_clock=clock) for clock in (False, True))
    assert production != test
    name, sql = install.script(test_clock=False)
    assert sql.count(f"{name}.") > 50
    assert "kernel." not in sql.replace(f"{name}.", "")
    assert "test_clock" not in sql


@pytest.mark.processes
def test_two_builds_of_the_functions_serve_the_same_tables_side_by_side(fresh_database):
    database.migrate(fresh_database, test_clock=False)
    space = spaces.create(fresh_database)
    with (
        Replica(fresh_database) as old,
        Replica(fresh_database, TEST_CLOCK="0") as new,
        space.client(old.url) as through_old,
        space.client(new.url) as through_new,
    ):
        once = Once(scope(through_old))
        token = held(through_old, once, holder="ann")
        assert ok(once.acquire().send(through_new))["state"] == "HELD"
        ok(once.renew(token, 60).send(through_new))
        refused(once.complete("wrong").send(through_new), "STALE_CLAIM")
        assert ok(once.complete(token, 1).send(through_new, "k")) == {"state": "DONE"}
        replayed = once.complete(token, 1).send(through_old, "k")
        assert replayed.headers["idempotent-replayed"] == "true"
        builds = database.fetch(fresh_database, "SELECT DISTINCT build FROM runstate.replicas")
        assert {row["build"] for row in builds} == {
            install.schema_name(test_clock=True),
            install.schema_name(test_clock=False),
        }
