"""Nobody has to be up for a timer: it fires at its time, or right after a start, once, however many start."""

from collections import Counter
from datetime import datetime

import pytest

from tests.support import processes, races, spaces
from tests.support.builders import ok, scope
from tests.support.clock import Clock
from tests.support.journal import events
from tests.support.metrics import Metrics
from tests.support.processes import Replica
from tests.support.timers import Timers, look

pytestmark = pytest.mark.processes
GENEROUS_S = 5.0


def told(database_url, space, kind):
    return Counter(e.aggregate for e in events(database_url, space.id, kind))


def late_s(view):
    return (datetime.fromisoformat(view["firedAt"]) - datetime.fromisoformat(view["fireAt"])).total_seconds()


def until_fired(database_url, space, count):
    def fired():
        return len(told(database_url, space, "timer.fired")) >= count

    races.until_blocking(fired, what=f"{count} timers")


def test_what_is_due_while_everything_was_down_fires_right_after_the_start_once(fresh_database):
    space = spaces.create(fresh_database)
    with Replica(fresh_database) as first, space.client(first.url) as api:
        timers = Timers(scope(api))
        made = [ok(timers.create(0.5 + i / 100).send(api)) for i in range(10)]
        ids = [timer["id"] for timer in made]
        first.kill()
        last = datetime.fromisoformat(made[-1]["fireAt"])
        races.until_blocking(lambda: Clock(fresh_database).now() > last, what="the time of the timers")
        with processes.replicas(fresh_database, 3) as replicas:
            until_fired(fresh_database, space, len(ids))
            with space.client(replicas[1].url) as there:
                polled = ok(timers.poll().send(there))["timers"]
        assert [t["id"] for t in polled] == ids
        assert told(fresh_database, space, "timer.fired") == Counter(ids)


def test_a_timer_that_nobody_waits_for_fires_at_its_time_by_an_alarm_and_not_by_a_round(fresh_database):
    """The rounds of these replicas are an hour apart."""
    space = spaces.create(fresh_database)
    with Replica(fresh_database, SWEEP_S="3600") as replica, space.client(replica.url) as api:
        timers = Timers(scope(api))
        times = [2, 0.3, 0.9, 1.5, 0.3, 0.301]
        ids = [timers.pending(api, after_s) for after_s in times]
        until_fired(fresh_database, space, len(ids))
        for timer in ids:
            assert 0 <= late_s(ok(look(timer).send(api))) < GENEROUS_S
        assert Metrics.of(replica).value("runstate_swept_total", sweep="timer_sweep") == len(ids)
    assert told(fresh_database, space, "timer.fired") == Counter(ids)


def test_a_timer_set_by_another_replica_is_fired_at_its_time_by_whoever_is_left(fresh_database):
    space = spaces.create(fresh_database)
    with processes.replicas(fresh_database, SWEEP_S="0.2") as (here, there):
        with space.client(here.url) as api:
            timers = Timers(scope(api))
            timer = timers.pending(api, 1.5)
        here.kill()
        until_fired(fresh_database, space, 1)
        with space.client(there.url) as api:
            assert 0 <= late_s(ok(look(timer).send(api))) < GENEROUS_S
    assert told(fresh_database, space, "timer.fired") == Counter([timer])
