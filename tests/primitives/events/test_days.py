"""The journal's days: old ones are dropped while the server runs; a copy of the database reads on."""

import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from runstate_server import migrator
from runstate_server.embedded.binaries import account_for, usable_binaries
from tests.support import database, races, spaces
from tests.support.builders import ok, refused, scope
from tests.support.events import end_of, page, read
from tests.support.processes import RUNSTATE, Replica, environment
from tests.support.queues import Claim

pytestmark = pytest.mark.processes
AGE = "UPDATE runstate.journal SET day = $2::text::date WHERE space_id = $1"


def days(url):
    rows = database.fetch(
        url,
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'runstate.journal'::regclass ORDER BY 1",
    )
    return [row["relname"] for row in rows]


def aged(url, kernel_schema, space, day):
    """All events of the space, moved into that day."""
    database.fetch(url, f"SELECT {kernel_schema}.journal_day($1::text::date)", str(day))
    database.execute(url, AGE, space.id, str(day))


def test_days_past_the_retention_are_dropped_and_cursors_into_them_refused_clearly(template, kernel_schema):
    with template.clone() as url:
        space = spaces.create(url)
        with Replica(url) as replica, space.client(replica.url) as client:
            for _ in range(3):
                scope(client)
            old = read(client)
            races.until_blocking(lambda: len(days(url)) == 4, what="today's partition and three ahead")
        aged(url, kernel_schema, space, date(2020, 1, 1))
        database.fetch(url, f"SELECT {kernel_schema}.journal_day($1::text::date)", "2020-01-02")
        database.execute(url, "ALTER TABLE runstate.journal DETACH PARTITION runstate.journal_20200102")
        with Replica(url, RETENTION_DAYS="2") as replica, space.client(replica.url) as client:
            races.until_blocking(lambda: "journal_20200101" not in days(url), what="the drop of 2020")
            gone = "SELECT to_regclass('runstate.journal_20200102') IS NULL"
            races.until_blocking(lambda: database.fetchval(url, gone), what="the drop of the loose day")
            run = scope(client)
            assert [e["aggregate"]["id"] for e in read(client)] == [run]
            message = refused(page(cursor=old[0]["cursor"]).send(client), "CURSOR_EXPIRED", 410)
            assert "no longer kept" in message
            assert [e["aggregate"]["id"] for e in read(client, cursor=old[-1]["cursor"])] == [run]


def test_a_day_that_is_being_read_is_dropped_later_and_holds_nobody_up(template, kernel_schema):
    with template.clone() as url:
        space = spaces.create(url)
        with Replica(url) as replica, space.client(replica.url) as client:
            scope(client)
            read(client)
        aged(url, kernel_schema, space, date(2020, 1, 1))
        with ExitStack() as exits:
            exits.enter_context(races.reading(url, "runstate.journal"))
            replica = exits.enter_context(Replica(url, RETENTION_DAYS="2"))
            client = exits.enter_context(space.client(replica.url))
            run = scope(client)
            assert read(client)[-1]["aggregate"]["id"] == run  # the sequencer and readers go on
        with Replica(url, RETENTION_DAYS="2"):
            races.until_blocking(lambda: "journal_20200101" not in days(url), what="the drop, at last")


def test_after_the_epoch_is_raised_old_cursors_are_refused_and_generations_go_on_growing(template):
    with template.clone() as url, Replica(url) as replica:
        space = spaces.create(url)
        with space.client(replica.url) as client:
            run = scope(client)
            first = ok(Claim(run, "a").acquire().send(client), 201)
            ok(Claim(run, "a").release(first["token"]).send(client))
            cursor = end_of(client)
            variables = environment(RUNSTATE_DATABASE_URL=url, RUNSTATE_TEST_CLOCK="1")
            said = subprocess.run(
                [RUNSTATE, "bump-epoch"], env=variables, capture_output=True, text=True, check=True
            ).stdout
            epoch = int(said.split()[3].rstrip(":"))
            assert epoch >= (datetime.now(UTC) - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds() - 3600
            assert f"epoch {epoch}" in refused(page(cursor=cursor).send(client), "CURSOR_EXPIRED", 410)
            second = ok(Claim(run, "a").acquire().send(client), 201)
            assert int(second["generation"]) == epoch * 2**31 + 1
            assert read(client)[-1]["type"] == "claim.acquired"


@pytest.mark.parametrize("changed", ["system_id = system_id + 1", "timeline = '000000FF'"])
def test_a_replica_that_finds_another_database_than_before_raises_the_epoch(template, changed):
    with template.clone() as url:
        epoch = "SELECT epoch FROM runstate.epoch"
        with Replica(url):
            assert database.fetchval(url, epoch) == 0
        with Replica(url):
            assert database.fetchval(url, epoch) == 0
        database.execute(url, f"UPDATE runstate.epoch SET {changed}")
        with Replica(url):
            assert database.fetchval(url, epoch) > 1000


def test_a_dump_restored_elsewhere_reads_on(template):
    with template.clone() as url, template.empty() as copy:
        space = spaces.create(url)
        with Replica(url) as replica, space.client(replica.url) as client:
            for _ in range(5):
                scope(client)
            before = read(client)
        restored(url, copy)
        with Replica(copy) as replica, space.client(replica.url) as client:
            assert [e["eventId"] for e in read(client)] == [e["eventId"] for e in before]
            run = scope(client)
            events = read(client, cursor=before[-1]["cursor"])
            assert [e["aggregate"]["id"] for e in events] == [run]
            assert len({e["eventId"] for e in read(client)}) == len(before) + 1


def restored(source, copy):
    """Dump one database with this cluster's own tools, and fill the other with it."""

    def place(url):
        parts = urlsplit(url)
        return ["--host", parse_qs(parts.query)["host"][0], "--username", str(parts.username)], parts.path[1:]

    # The newest tools read every server that the suite runs on.
    bin_dir = usable_binaries(None, account_for(Path("/nonexistent")))
    options, name = place(source)
    dump = subprocess.run([bin_dir / "pg_dump", *options, name], capture_output=True, check=True).stdout
    options, name = place(copy)
    subprocess.run(
        [bin_dir / "psql", "--quiet", "-v", "ON_ERROR_STOP=1", *options, name],
        input=dump,
        stdout=sys.stderr,
        check=True,
    )
    migrator.apply_role_settings(copy)
