"""A POST that waits for a key: woken by release, lapse and the end of the scope; one release, one waiter."""

from contextlib import ExitStack

import pytest

from tests.support import waits
from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.metrics import Metrics, until_polls
from tests.support.queues import Claim
from tests.support.waits import WAIT_MS, dialled

pytestmark = pytest.mark.processes


@pytest.fixture
def group(waits_group):
    return waits_group


@pytest.fixture
def api(group):
    with group.space.client(group.here.url) as client:
        yield client


@pytest.fixture
def claim(api, request):
    return Claim(scope(api), request.node.name)


def owned(api, claim, **how):
    return ok(claim.acquire(**how).send(api), 201)


@pytest.mark.parametrize(("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")])
def test_a_release_wakes_a_waiter_by_the_bus_and_with_the_bus_cut_by_the_tick(
    group, api, claim, *, where, by
):
    token = owned(api, claim, lease_s=3600)["token"]
    with group.poll(where, claim.acquire(holder="next", waitMs=WAIT_MS)) as poll:
        ok(claim.release(token).send(api))
        assert ok(poll.response(), 201)["generation"] == "2"
        assert poll.causes().keys() == {by}
        assert by == "tick" or poll.causes() == {by: 1}


@pytest.mark.parametrize(("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")])
def test_the_end_of_the_scope_ends_the_wait(group, api, claim, *, where, by):
    owned(api, claim, lease_s=3600)
    with group.poll(where, claim.acquire(waitMs=WAIT_MS)) as poll:
        ok(end(claim.scope).send(api))
        refused(poll.response(), "SCOPE_CANCELLED")
        assert poll.causes().keys() == {by}


@pytest.mark.parametrize("where", ["here", "there", "deaf"])
def test_a_waiter_takes_the_key_when_the_lease_lapses_and_nothing_else_happens(group, api, claim, where):
    owned(api, claim, lease_s=1)
    with group.poll(where, claim.acquire(waitMs=WAIT_MS)) as poll:
        assert ok(poll.response(), 201)["generation"] == "2"
        assert poll.causes().keys() <= {"alarm", "tick"}


def test_a_waiter_is_told_when_a_deadline_above_it_passes_and_nothing_else_happens(group, api):
    claim = Claim(scope(api, parentId=scope(api, deadline=in_seconds(api, 1.5))))
    owned(api, claim, lease_s=3600)
    with group.poll("there", claim.acquire(waitMs=WAIT_MS)) as poll:
        refused(poll.response(), "DEADLINE_EXCEEDED")
        assert poll.causes().keys() <= {"alarm", "commit"}  # its own look writes the expiry


def test_a_waiter_sleeps_on_when_the_lease_it_watches_is_renewed(group, api, claim):
    token = owned(api, claim, lease_s=1)["token"]
    with group.poll("here", claim.acquire(waitMs=WAIT_MS)) as poll:
        ok(claim.renew(token, 3600).send(api))
        ok(claim.release(token).send(api))
        assert ok(poll.response(), 201)["generation"] == "2"


def test_a_wait_that_ends_says_who_holds_the_key(group, api, claim):
    owned(api, claim, holder="ann", lease_s=3600)
    with group.poll("here", claim.acquire(waitMs=300)) as poll:
        assert '"ann"' in refused(poll.response(), "CLAIM_HELD")


def test_other_keys_do_not_wake_a_waiter(group, api, claim):
    token = owned(api, claim, lease_s=3600)["token"]
    other = Claim(claim.scope, "other")
    with group.poll("here", claim.acquire(waitMs=WAIT_MS)) as poll:
        ok(other.release(owned(api, other)["token"]).send(api))
        assert poll.causes() == {}
        ok(claim.release(token).send(api))
        ok(poll.response(), 201)


def test_each_release_hands_the_key_to_one_waiter_until_all_have_had_it(group, api, claim):
    token = owned(api, claim, lease_s=3600)["token"]
    with ExitStack() as polls:
        waiting = [
            polls.enter_context(group.poll(where, claim.acquire(lease_s=3600, waitMs=WAIT_MS)))
            for where in ("here", "here", "there", "there")
        ]
        for generation in ("2", "3", "4", "5"):
            ok(claim.release(token).send(api))
            (winner,) = until_one_is_done(waiting)
            waiting.remove(winner)
            answer = ok(winner.response(), 201)
            assert answer["generation"] == generation
            token = answer["token"]


def until_one_is_done(polls):
    from tests.support import races

    return races.until_blocking(lambda: [p for p in polls if p.done], what="an answer")


def test_a_waiter_learns_of_the_next_owner_s_shorter_lease(group, api, claim):
    """It knew of a lease of an hour; the one who was handed the key keeps it for a second and dies."""
    token = owned(api, claim, lease_s=3600)["token"]
    short, patient = claim.acquire(lease_s=1, waitMs=WAIT_MS), claim.acquire(waitMs=WAIT_MS)
    with group.poll("here", short) as first, group.poll("there", patient) as second:
        ok(claim.release(token).send(api))
        assert ok(first.response(), 201)["generation"] == "2"
        assert ok(second.response(), 201)["generation"] == "3"


def test_waiters_who_hang_up_as_they_are_woken_pass_the_wake_on(group, api, claim):
    """All of it reaches the replica at one moment: the wake of its longest sleeper, and that he is gone."""
    token = owned(api, claim, lease_s=3600)["token"]
    ask = claim.acquire(lease_s=3600, waitMs=WAIT_MS)
    with ExitStack() as exits:
        gone = [exits.enter_context(dialled(group.space, group.there, ask)) for _ in range(3)]
        last = exits.enter_context(group.poll("there", ask))
        group.there.pause()
        try:
            with waits.heard(group.database_url):
                ok(claim.release(token).send(api))
            for connection in gone:
                connection.close()
        finally:
            group.there.resume()
        assert ok(last.response(), 201)["generation"] == "2"


def test_a_waiter_who_hangs_up_takes_nothing(group, api, claim):
    token = owned(api, claim, lease_s=3600)["token"]
    with dialled(group.space, group.here, claim.acquire(waitMs=WAIT_MS)) as connection:
        connection.close()
        until_polls(group.here, 0)
    ok(claim.release(token).send(api))
    assert ok(claim.view().send(api))["state"] == "FREE"


def test_sleeping_waiters_hold_no_connection(group, api, claim):
    token = owned(api, claim, lease_s=3600)["token"]
    with ExitStack() as polls:
        waiting = [polls.enter_context(group.poll("there", claim.acquire(waitMs=WAIT_MS))) for _ in range(12)]
        assert Metrics.of(group.there).value("runstate_pool_max") < 12
        ok(end(claim.scope).send(api))
        for poll in waiting:
            refused(poll.response(), "SCOPE_CANCELLED")
    refused(claim.release(token).send(api), "STALE_CLAIM")
