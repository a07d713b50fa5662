"""A space in numbers: what is there now, and how much has happened lately."""

import pytest

from tests.support import database
from tests.support.builders import Once, end, held, in_seconds, ok, scope
from tests.support.journal import events
from tests.support.queues import Claim, dead, mailbox, sent, submitted, taken

EMPTY = {
    "scopes": {"active": 0, "runs": 0},
    "claims": {"held": 0},
    "once": {"held": 0},
    "grants": {"held": 0},
    "queues": {"ready": 0, "delayed": 0, "leased": 0, "dead": 0, "oldestReadyAt": None},
    "tasks": {"QUEUED": 0, "RUNNING": 0},
    "workers": 0,
    "waits": 0,
    "events": {"lastMinute": 1, "lastHour": 1, "perSecond": 0.017},
    "countedUpTo": 100_000,
}


def summary(api):
    return ok(api.get("/ops/summary"))


def test_of_an_empty_space_there_is_nothing_but_the_making_of_its_key(api, space, database_url):
    assert len(events(database_url, space.id)) == 1
    assert summary(api) == EMPTY


def test_everything_of_the_space_is_counted_over_runs_and_mailboxes(api):
    for name in ("a", "b"):
        run = scope(api)
        child = scope(api, parentId=run)
        ok(end(scope(api)).send(api))
        scope(api, deadline=in_seconds(api, -60))
        box = mailbox(api, child, name)
        ok(Claim(run).acquire("ann", session=name).send(api), 201)
        held(api, Once(child, "k"), holder="ann", session=name)
        sent(api, box)
        sent(api, box, delaySeconds=60)
        submitted(api, box)
        taken(api, box.admit("bob"))
        submitted(api, box, "waits")
        dead(api, box, priority=1)
    found = summary(api)
    found.pop("events")
    oldest = found["queues"].pop("oldestReadyAt")
    assert oldest is not None
    assert found == {
        "scopes": {"active": 6, "runs": 4},  # in_seconds makes a run each time, too
        "claims": {"held": 2},
        "once": {"held": 2},
        "grants": {"held": 0},
        "queues": {"ready": 4, "delayed": 2, "leased": 2, "dead": 2},
        "tasks": {"QUEUED": 2, "RUNNING": 2},
        "workers": 3,
        "waits": 0,
        "countedUpTo": 100_000,
    }


def test_what_has_lapsed_counts_as_free_and_ready_at_once(api, clock):
    run = scope(api)
    box = mailbox(api, run)
    ok(Claim(run).acquire(lease_s=5).send(api), 201)
    held(api, Once(run), lease_s=5)
    submitted(api, box)
    taken(api, box.admit(lease_s=5))
    assert summary(api)["workers"] == 1
    clock.shift(5)
    found = summary(api)
    assert (found["claims"], found["once"], found["workers"]) == ({"held": 0}, {"held": 0}, 0)
    assert (found["queues"]["ready"], found["queues"]["leased"]) == (1, 0)
    assert found["tasks"] == {"QUEUED": 1, "RUNNING": 0}


@pytest.mark.parametrize("past", [0, 1, 2, 3, 100, 1_000])
def test_events_of_the_last_minute_and_hour_are_found_however_many_came_before(
    api, space, database_url, clock, past
):
    def happen(count):
        for _ in range(count):
            scope(api)
        assert events(database_url, space.id)  # numbered

    if past:
        happen(1)
        more = """
        WITH head AS (
          UPDATE runstate.journal_heads SET num = num + $2 WHERE space_id = $1 RETURNING num - $2 AS n)
        INSERT INTO runstate.journal (space_id, num, day, type, created_at, aggregate_type, aggregate_id,
          payload)
        SELECT $1, n + i, (now() AT TIME ZONE 'UTC')::date, 't', now(), 'task', 'x', '{}'
          FROM head, generate_series(1, $2::int) i
        """
        database.execute(database_url, more, space.id, past - 1)
    clock.shift(3_601)
    happen(3)
    clock.shift(61)
    happen(2)
    assert summary(api)["events"] == {"lastMinute": 2, "lastHour": 5, "perSecond": 0.033}
