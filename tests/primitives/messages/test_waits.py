"""A recv or an admit that waits: what wakes it, on which replica, and that one message wakes one of many."""

import uuid
from contextlib import ExitStack

import pytest

from tests.support import database, races, waits
from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.metrics import Metrics, until_polls
from tests.support.queues import dead, delivery, mailbox, nothing, redrive, sent, submitted, taken
from tests.support.waits import WAIT_MS, dialled

pytestmark = pytest.mark.processes

EVERYWHERE = [("here", "commit"), ("there", "notify"), ("deaf", "tick")]


@pytest.fixture
def group(waits_group):
    return waits_group


@pytest.fixture
def api(group):
    with group.space.client(group.here.url) as client:
        yield client


@pytest.fixture
def box(api, request):
    return mailbox(api, scope(api), request.node.name[:200] + uuid.uuid4().hex)


@pytest.mark.parametrize(("where", "by"), EVERYWHERE)
@pytest.mark.parametrize("what", ["a message", "a task", "a task, for admit", "from below"])
def test_what_is_sent_wakes_a_waiter_by_the_bus_and_with_the_bus_cut_by_the_tick(
    group, api, box, *, where, by, what
):
    ask = box.admit(waitMs=WAIT_MS) if "admit" in what else box.recv_below(waitMs=WAIT_MS)
    below = box.within(scope(api, parentId=box.scope)) if what == "from below" else box
    with group.poll(where, ask) as poll:
        message = submitted(api, below) if "task" in what else sent(api, below)
        assert delivery(ok(poll.response())).id == message
        assert poll.causes().keys() == {by}
        assert by == "tick" or poll.causes() == {by: 1}


@pytest.mark.parametrize(("where", "by"), EVERYWHERE)
@pytest.mark.parametrize("how", ["redrive", "hand back", "nack", "next in line", "head cancelled"])
def test_what_comes_back_or_forward_wakes_a_waiter(group, api, box, *, where, by, how):
    if how in ("next in line", "head cancelled"):
        box = mailbox(api, box.scope, "inbox" + uuid.uuid4().hex, mode="INBOX")
    head = submitted(api, box)
    held = taken(api, box.recv(lease_s=3600))
    if how == "redrive":
        ok(held.nack(retry=False).send(api))
    elif how in ("next in line", "head cancelled"):
        sent(api, box)
    with group.poll(where, box.recv(waitMs=WAIT_MS)) as poll:
        if how == "redrive":
            ok(redrive(held.id).send(api))
        elif how == "hand back":
            ok(held.nack(handBack=True).send(api))
        elif how == "nack":
            ok(held.nack(delaySeconds=0).send(api))
        elif how == "next in line":
            ok(held.complete().send(api))
        else:
            ok(api.post(f"/tasks/{head}/cancel", json={}))
        assert (delivery(ok(poll.response())).id == head) == (how in ("redrive", "hand back", "nack"))
        assert poll.causes().keys() <= {by, "alarm"}


@pytest.mark.parametrize(("where", "by"), EVERYWHERE)
@pytest.mark.parametrize("ends", ["the run", "the scope", "its parent"])
def test_the_end_of_a_scope_ends_the_wait(group, api, box, *, where, by, ends):
    parent = box.within(scope(api, parentId=box.scope))
    child = parent.within(scope(api, parentId=parent.scope))
    ended = {"the run": box, "its parent": parent, "the scope": child}[ends].scope
    with group.poll(where, child.recv(waitMs=WAIT_MS)) as poll:
        ok(end(ended).send(api))
        refused(poll.response(), "SCOPE_CANCELLED")
        assert poll.causes().keys() == {by}


def test_a_deadline_above_ends_the_wait_though_nothing_else_happens(group, api, box):
    child = box.within(scope(api, parentId=box.scope, deadline=in_seconds(api, 1.5)))
    with group.poll("there", child.recv(waitMs=WAIT_MS)) as poll:
        refused(poll.response(), "DEADLINE_EXCEEDED")
        assert poll.causes().keys() <= {"alarm", "commit"}


@pytest.mark.parametrize("where", ["here", "there", "deaf"])
@pytest.mark.parametrize("how", ["send", "nack"])
def test_the_end_of_a_delay_wakes_a_waiter_that_slept_before_the_delay_began(group, api, box, where, how):
    if how == "nack":
        sent(api, box)
        held = taken(api, box.recv(lease_s=3600))
    with group.poll(where, box.recv(waitMs=WAIT_MS)) as poll:
        if how == "send":
            sent(api, box, delaySeconds=1)
        else:
            ok(held.nack(delaySeconds=1).send(api))
        nothing(api, box.recv())
        delivery(ok(poll.response()))
        assert "alarm" in poll.causes()


@pytest.mark.parametrize("where", ["here", "there", "deaf"])
def test_a_lapse_wakes_a_waiter(group, api, box, where):
    sent(api, box)
    taken(api, box.recv(lease_s=1))
    with group.poll(where, box.recv(waitMs=WAIT_MS)) as poll:
        assert delivery(ok(poll.response())).attempt == 2


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_lapse_wakes_a_waiter_that_slept_before_the_delivery(group, api, box, where, kernel_schema):
    """Nothing but the delivery itself could tell it: the message came into the queue unheard."""
    with group.poll(where, box.recv(waitMs=WAIT_MS)) as poll:
        unheard = f"""
        SELECT code FROM {kernel_schema}.message_send($1, gen_random_uuid(), $2::text::uuid, $3::text::uuid,
          'null', NULL, NULL, 0, 0, NULL, NULL)"""
        database.fetch(group.database_url, unheard, group.space.id, box.id, box.scope)
        taken(api, box.recv(lease_s=1))
        assert delivery(ok(poll.response())).attempt == 2


def test_a_waiter_sleeps_on_while_the_delivery_it_watches_is_renewed(group, api, box):
    sent(api, box)
    held = taken(api, box.recv(lease_s=1))
    with group.poll("here", box.recv(waitMs=2_500)) as poll:
        ok(held.renew(3600).send(api))
        assert poll.response().status_code == 204
    ok(held.complete().send(api))


def test_a_wait_that_ends_delivers_nothing(group, box):
    with group.poll("here", box.recv(waitMs=300)) as poll:
        response = poll.response()
        assert (response.status_code, response.content) == (204, b"")


def test_a_waiter_is_woken_only_by_what_its_filter_covers(group, api, box):
    """The exact scope, what lies below, tasks alone: the one wake goes to one who may take it."""
    other = box.within(scope(api, parentId=box.scope))
    with (
        group.poll("here", box.recv(waitMs=WAIT_MS)) as exact,
        group.poll("here", box.admit_below(waitMs=WAIT_MS)) as tasks,
        group.poll("here", box.recv_below(waitMs=WAIT_MS)) as below,
    ):
        sent(api, other)
        ok(below.response())
        assert exact.causes() == {"commit": 1}
        submitted(api, other)
        ok(tasks.response())
        assert not exact.done
        sent(api, box)
        ok(exact.response())
        assert exact.causes() == {"commit": 3}


def test_one_message_wakes_one_of_many_and_his_leaving_at_most_one_more(group, api, box):
    with ExitStack() as polls:
        waiting = [polls.enter_context(group.poll("here", box.recv(waitMs=WAIT_MS))) for _ in range(6)]
        sent(api, box)
        races.until_blocking(lambda: any(p.done for p in waiting), what="a delivery")
        until_polls(group.here, 5)
        assert waiting[0].causes() == {"commit": 2}
        ok(end(box.scope).send(api))


def test_every_message_finds_a_waiter_though_they_are_sent_at_once(group, api, box):
    with ExitStack() as polls:
        waiting = [
            polls.enter_context(group.poll(where, box.recv(waitMs=WAIT_MS)))
            for where in ("here", "there", "deaf") * 4
        ]
        tasks = [box.task(str(i)) for i in range(12)]
        ok(api.post("/tasks/batch", json={"tasks": tasks}))
        assert len({delivery(ok(p.response())).id for p in waiting}) == 12


def test_waiters_who_hang_up_as_they_are_woken_pass_the_wake_on(group, api, box):
    ask = box.recv(lease_s=3600, waitMs=WAIT_MS)
    with ExitStack() as exits:
        gone = [exits.enter_context(dialled(group.space, group.there, ask)) for _ in range(3)]
        last = exits.enter_context(group.poll("there", ask))
        group.there.pause()
        try:
            with waits.heard(group.database_url):
                message = sent(api, box)
            for connection in gone:
                connection.close()
        finally:
            group.there.resume()
        told = delivery(ok(last.response()))
        assert (told.id, told.attempt) == (message, 1)


def test_a_waiter_who_hangs_up_is_delivered_nothing(group, api, box):
    with dialled(group.space, group.here, box.recv(waitMs=WAIT_MS)) as connection:
        connection.close()
        until_polls(group.here, 0)
    message = sent(api, box)
    told = taken(api, box.recv())
    assert (told.id, told.attempt) == (message, 1)


def test_two_waiters_with_one_idempotency_key_are_delivered_one_message(group, api, box):
    """A client that lost its connection asks again with the same key while its first call still waits."""
    ask = box.recv(waitMs=WAIT_MS)
    with (
        group.poll("here", ask, key="once more") as first,
        group.poll("there", ask, key="once more") as second,
    ):
        sent(api, box, "a")
        assert ok(first.response()) == ok(second.response())
    nothing(api, box.recv())


def test_sleeping_waiters_hold_no_connection(group, api, box):
    many = 12
    with ExitStack() as polls:
        waiting = [polls.enter_context(group.poll("there", box.recv(waitMs=WAIT_MS))) for _ in range(many)]
        assert Metrics.of(group.there).value("runstate_pool_max") < many
        ok(end(box.scope).send(api))
        for poll in waiting:
            refused(poll.response(), "SCOPE_CANCELLED")


def test_dead_letters_wake_nobody(group, api, box):
    with group.poll("here", box.admit(waitMs=WAIT_MS)) as poll:
        dead(api, box)
        assert poll.causes() == {}
        ok(end(box.scope).send(api))
        refused(poll.response(), "SCOPE_CANCELLED")
