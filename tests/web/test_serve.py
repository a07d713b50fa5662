"""`serve` refuses a database that it cannot serve from, in one line that says which command to run."""

import subprocess

import pytest

from runstate_server import migrator
from runstate_server.kernel import install
from tests.support import database, spaces
from tests.support.builders import ok, scope
from tests.support.processes import RUNSTATE, Replica, environment

pytestmark = pytest.mark.processes


def refusal_to_serve(url, **settings):
    """What `serve` says before it ends with status 1."""
    replica = Replica(url, **settings).start(wait=False)
    try:
        assert replica.process.wait(60) == 1
        return replica.log()
    finally:
        replica.kill()
        replica._log.close()


def migrations(*urls, **settings):
    """Run `runstate migrate` on each at the same time; returns the statuses and what was said."""
    variables = {f"RUNSTATE_{name}": value for name, value in settings.items()}
    started = [
        subprocess.Popen(
            [RUNSTATE, "migrate"],
            env=environment(RUNSTATE_DATABASE_URL=url, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for url in urls
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    return [process.returncode for process in started], said


def test_an_empty_database_is_refused_in_one_line(template):
    with template.empty() as url:
        said = refusal_to_serve(url)
    assert said.count("\n") == 1
    assert said.startswith("runstate: ")
    assert "`runstate migrate`" in said


def test_a_database_that_is_behind_is_refused_and_so_is_one_without_this_build_s_functions(fresh_database):
    head = migrator.head_revision()
    database.execute(fresh_database, "UPDATE runstate.alembic_version SET version_num = '0001'")
    said = refusal_to_serve(fresh_database)
    assert said.count("\n") == 1
    assert "0001" in said
    assert head in said
    assert "`runstate migrate`" in said
    database.execute(fresh_database, f"UPDATE runstate.alembic_version SET version_num = '{head}'")
    database.execute(fresh_database, f"DROP SCHEMA {install.schema_name(test_clock=True)} CASCADE")
    said = refusal_to_serve(fresh_database)
    assert said.count("\n") == 1
    assert "functions" in said
    assert "`runstate migrate`" in said


def test_a_build_with_a_clock_that_can_be_shifted_is_not_served_unless_told_so(fresh_database):
    assert "functions" in refusal_to_serve(fresh_database, TEST_CLOCK="0")


def test_a_database_that_cannot_be_reached_is_told_by_migrate_in_one_line():
    status, [said] = migrations("postgresql://nobody@127.0.0.1:1/nothing")
    assert status == [1]
    assert said.count("\n") == 1
    assert said.startswith("runstate: the database cannot be reached")


def test_two_migrations_at_once_are_one_and_then_both_replicas_start(template):
    with template.empty() as url:
        status, said = migrations(url, url, TEST_CLOCK="1")
        assert status == [0, 0], said
        assert migrations(url, TEST_CLOCK="1")[0] == [0]  # a third finds nothing to do
        space = spaces.create(url)
        with Replica(url) as one, Replica(url) as two:
            for replica in (one, two):
                with space.client(replica.url) as api:
                    assert ok(api.get(f"/scopes/{scope(api)}"))["effective"] == "ACTIVE"


def test_a_database_of_a_newer_build_is_served_since_a_rollback_needs_no_change_of_it(fresh_database):
    database.execute(fresh_database, "UPDATE runstate.alembic_version SET version_num = '9999'")
    with Replica(fresh_database) as replica, spaces.create(fresh_database).client(replica.url) as api:
        scope(api)


def test_a_taken_port_is_told_in_one_line(fresh_database):
    with Replica(fresh_database) as first:
        said = refusal_to_serve(fresh_database, PORT=str(first.port))
    assert f"cannot listen on 127.0.0.1:{first.port}" in said
    assert said.count("\n") == 1
