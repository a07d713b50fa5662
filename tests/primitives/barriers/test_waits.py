"""A GET that waits for a barrier: woken by the last arrival, a reset, the end of the scope; anywhere."""

from contextlib import ExitStack

import pytest

from tests.support.barriers import Barrier, barrier, named
from tests.support.builders import end, in_seconds, ok, scope
from tests.support.races import until_blocking
from tests.support.waits import WAIT_MS

pytestmark = pytest.mark.processes
EVERYWHERE = pytest.mark.parametrize(
    ("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")]
)


@pytest.fixture
def group(waits_group):
    return waits_group


@pytest.fixture
def api(group):
    with group.space.client(group.here.url) as client:
        yield client


@EVERYWHERE
def test_the_last_arrival_wakes_who_waits(group, api, *, where, by):
    meeting = barrier(api, scope(api), 2)
    with group.poll(where, meeting.view(WAIT_MS)) as poll:
        ok(meeting.arrive("a").send(api))
        ok(meeting.arrive("b").send(api))
        assert ok(poll.response())["state"] == "RELEASED"
        assert poll.causes().keys() == {by}


@EVERYWHERE
def test_a_reset_ends_the_wait_for_the_epoch_before(group, api, *, where, by):
    meeting = barrier(api, scope(api), 2)
    with group.poll(where, meeting.view(WAIT_MS)) as poll:
        ok(meeting.reset().send(api))
        view = ok(poll.response())
        assert (view["state"], view["epoch"]) == ("WAITING", 2)
        assert poll.causes().keys() == {by}


@EVERYWHERE
def test_the_end_of_the_scope_ends_the_wait(group, api, *, where, by):
    root = scope(api)
    meeting = barrier(api, scope(api, parentId=root))
    with group.poll(where, meeting.view(WAIT_MS)) as poll:
        ok(end(root).send(api))
        assert ok(poll.response())["state"] == "CANCELLED"
        assert poll.causes().keys() == {by}


def test_a_wait_ends_when_a_deadline_above_passes_and_nothing_else_happens(group, api):
    meeting = barrier(api, scope(api, parentId=scope(api, deadline=in_seconds(api, 1.5))))
    with group.poll("there", meeting.view(WAIT_MS)) as poll:
        assert ok(poll.response())["state"] == "CANCELLED"


def test_all_who_wait_wake_together_and_hold_no_connection_meanwhile(group, api):
    meeting = barrier(api, scope(api), 1)
    with ExitStack() as polls:
        waiting = [
            polls.enter_context(group.poll(where, meeting.view(WAIT_MS)))
            for where in ("here", "there", "deaf") * 5
        ]
        ok(meeting.arrive().send(api))
        assert {ok(poll.response())["state"] for poll in waiting} == {"RELEASED"}


def test_a_barrier_that_is_released_answers_at_once(group, api):
    meeting = barrier(api, scope(api), 1)
    ok(meeting.arrive().send(api))
    assert ok(meeting.view(WAIT_MS).send(api))["state"] == "RELEASED"


def test_a_wait_that_ends_shows_how_many_have_arrived(group, api):
    meeting = barrier(api, scope(api), 2)
    with group.poll("here", meeting.view(300)) as poll:
        ok(meeting.arrive("a").send(api))
        view = ok(poll.response())
    assert (view["state"], view["arrivals"]) == ("WAITING", 1)
    assert poll.causes() == {}


def test_who_waits_for_a_barrier_is_told_of_with_its_name(group, api):
    root = scope(api)
    meeting = Barrier(ok(named(root, "start").send(api))["id"])
    with group.poll("there", meeting.view(WAIT_MS)) as poll:

        def told():
            waits = ok(api.get("/ops/waits"))["waits"]
            return [wait for wait in waits if (wait["scopeId"], wait["resource"]) == (root, "start")]

        [wait] = until_blocking(told, what="the wait")
        assert (wait["kind"], wait["blockedBy"], wait["cycle"]) == ("barrier", [], None)
        assert wait["why"] == 'barrier "start" waits for more to arrive'
        [told_in_run] = ok(api.get(f"/ops/runs/{root}"))["waiting"]
        assert (told_in_run["kind"], told_in_run["permit"]) == ("barrier", "start")
        ok(end(root).send(api))
        poll.response()
