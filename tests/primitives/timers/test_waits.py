"""Who waits for a timer is woken by its time, by cancel, by the scope's end; by the bus, or by the tick."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.races import until_blocking
from tests.support.timers import HOUR, Timers, cancel, look
from tests.support.waits import WAIT_MS

pytestmark = pytest.mark.processes
WOKEN = pytest.mark.parametrize(("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")])


@pytest.fixture
def group(waits_group):
    return waits_group


@pytest.fixture
def api(group):
    with group.space.client(group.here.url) as client:
        yield client


@pytest.fixture
def timers(api):
    return Timers(scope(api))


@pytest.mark.parametrize("where", ["here", "there", "deaf"])
def test_a_look_is_answered_when_the_timer_fires_and_nothing_else_happens(group, api, timers, where):
    timer = timers.pending(api, 1)
    with group.poll(where, look(timer, WAIT_MS)) as poll:
        seen = ok(poll.response())
        assert seen["state"] == "FIRED"
        assert seen["firedAt"] >= seen["fireAt"]


@pytest.mark.parametrize("where", ["here", "there", "deaf"])
def test_a_poll_is_answered_when_a_timer_fires_and_nothing_else_happens(group, api, timers, where):
    timer = timers.pending(api, 1)
    with group.poll(where, timers.poll(WAIT_MS)) as poll:
        assert [t["id"] for t in ok(poll.response())["timers"]] == [timer]


@WOKEN
def test_a_poll_learns_of_a_timer_that_is_set_while_it_sleeps(group, api, timers, *, where, by):
    timers.pending(api, HOUR)
    with group.poll(where, timers.poll(WAIT_MS)) as poll:
        timer = timers.pending(api, 0.2)
        assert [t["id"] for t in ok(poll.response())["timers"]] == [timer]
        assert by in poll.causes()


@WOKEN
def test_a_cancel_ends_the_wait(group, api, timers, *, where, by):
    timer = timers.pending(api)
    with group.poll(where, look(timer, WAIT_MS)) as poll:
        ok(cancel(timer).send(api))
        assert ok(poll.response())["state"] == "CANCELLED"
        assert poll.causes().keys() == {by}


@WOKEN
@pytest.mark.parametrize("polling", [True, False])
def test_the_end_of_the_scope_ends_the_wait(group, api, timers, *, where, by, polling):
    timer = timers.pending(api)
    with group.poll(where, timers.poll(WAIT_MS) if polling else look(timer, WAIT_MS)) as poll:
        ok(end(timers.scope).send(api))
        if polling:
            refused(poll.response(), "SCOPE_CANCELLED")
        else:
            assert ok(poll.response())["state"] == "CANCELLED"
        assert poll.causes().keys() == {by}


def test_a_deadline_above_ends_the_wait_and_nothing_else_happens(group, api):
    below = Timers(scope(api, parentId=scope(api, deadline=in_seconds(api, 1.5))))
    timer = below.pending(api)
    with group.poll("there", look(timer, WAIT_MS)) as poll:
        assert ok(poll.response())["state"] == "EXPIRED"


def test_a_wait_that_ends_first_is_answered_as_it_is(group, api, timers):
    assert ok(look(timers.pending(api), 50).send(api))["state"] == "PENDING"
    assert ok(timers.poll(50).send(api)) == {"timers": []}


def test_who_sleeps_is_told_of_with_the_name_of_the_timer(group, api, timers):
    timer = ok(timers.named("cool down", HOUR).send(api))["id"]
    with group.poll("there", look(timer, WAIT_MS)) as poll:

        def told():
            waits = ok(api.get("/ops/waits"))["waits"]
            return [wait for wait in waits if wait["scopeId"] == timers.scope]

        [wait] = until_blocking(told, what="the wait")
        assert (wait["kind"], wait["resource"], wait["blockedBy"]) == ("timer", "cool down", [])
        assert wait["why"] == 'timer "cool down" waits for its time'
        ok(cancel(timer).send(api))
        poll.response()


def test_two_hundred_who_wait_for_one_timer_are_all_told(group, api, timers):
    timer = timers.pending(api, 1)

    def ask(number):
        replica = (group.here, group.there)[number % 2]
        with group.space.client(replica.url) as client:
            return ok(look(timer, WAIT_MS).send(client))["firedAt"]

    with ThreadPoolExecutor(40) as pool:
        assert len(set(pool.map(ask, range(200)))) == 1
