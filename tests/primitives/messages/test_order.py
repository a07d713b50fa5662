"""Who gets what, and in which order: priorities, delays, scopes and what lies below them, INBOX lines."""

import pytest

from tests.support.builders import end, ok, scope
from tests.support.queues import (
    cancel,
    mailbox,
    nothing,
    redrive,
    sent,
    submitted,
    taken,
)


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


@pytest.fixture
def inbox(api):
    return mailbox(api, scope(api), mode="INBOX")


def drained(api, box, call):
    """The payloads of everything that can be delivered now, in order, each completed."""
    found = []
    while (response := call.send(api)).status_code == 200:
        told = response.json()["message"]
        found.append(told["payload"])
        body = {"token": response.json()["token"]}
        ok(api.post(f"/messages/{told['id']}/complete", json=body))
    assert response.status_code == 204
    return found


def test_messages_come_by_priority_then_in_order_of_arrival(api, box):
    for i, priority in enumerate([0, 5, -5, 0, 100, 5, -100]):
        sent(api, box, i, priority=priority)
    assert drained(api, box, box.recv()) == [4, 1, 5, 0, 3, 2, 6]


def test_within_a_priority_what_was_available_first_comes_first(api, box, clock):
    sent(api, box, "delayed", delaySeconds=60)
    sent(api, box, "first")
    clock.shift(30)
    sent(api, box, "second")
    clock.shift(31)
    sent(api, box, "last")
    assert drained(api, box, box.recv()) == ["first", "second", "delayed", "last"]


def test_a_delayed_message_is_not_delivered_before_its_time(api, box, clock):
    sent(api, box, "later", delaySeconds=60, priority=100)
    nothing(api, box.recv())
    sent(api, box, "now", priority=-100)
    assert drained(api, box, box.recv()) == ["now"]
    clock.shift(61)
    assert drained(api, box, box.recv()) == ["later"]


def test_messages_and_tasks_are_one_line_for_recv(api, box):
    sent(api, box, 1)
    submitted(api, box, "a", input=2)
    sent(api, box, 3)
    submitted(api, box, "b", input=4)
    assert drained(api, box, box.recv()) == [1, 2, 3, 4]


def test_a_retried_message_comes_after_what_was_there_meanwhile(api, box):
    sent(api, box, 1)
    held = taken(api, box.recv())
    sent(api, box, 2)
    ok(held.nack(delaySeconds=0).send(api))
    assert drained(api, box, box.recv()) == [2, 1]


def chain(api, box, depth):
    """The mailbox seen from each scope of a chain below its own, top to bottom."""
    chain = [box]
    for _ in range(depth):
        chain.append(box.within(scope(api, parentId=chain[-1].scope)))
    return chain


def test_without_descendants_only_the_scope_s_own_messages_are_delivered(api, box):
    levels = chain(api, box, 5)
    for depth, level in enumerate(levels):
        sent(api, level, depth)
    for depth, level in reversed(list(enumerate(levels))):
        assert drained(api, level, level.recv()) == [depth]


@pytest.mark.parametrize("depth", range(6))
def test_with_descendants_those_of_the_whole_subtree_are_delivered_and_no_others(api, box, depth):
    levels = chain(api, box, 5)
    beside = box.within(scope(api, parentId=box.scope))
    far = box.within(scope(api))
    below = levels[depth].within(scope(api, parentId=levels[depth].scope))
    for name, level in [("beside", beside), ("far", far), ("child", below), *enumerate(levels)]:
        sent(api, level, name)
    expected = ["beside"] if depth == 0 else []
    expected += ["child", *range(depth, 6)]
    assert drained(api, box, levels[depth].recv_below()) == expected


@pytest.mark.parametrize("depth", range(6))
def test_below_any_depth_the_order_is_priority_then_arrival_across_scopes(api, box, depth):
    top = chain(api, box, depth)[-1]
    below = [top, *chain(api, top, 2)[1:], top.within(scope(api, parentId=top.scope))]
    order = [(3, 0), (0, 1), (2, 0), (1, 1), (0, 0), (3, 1), (2, 9)]
    for i, (which, priority) in enumerate(order):
        sent(api, below[which], i, priority=priority)
    assert drained(api, box, top.recv_below()) == [6, 1, 3, 5, 0, 2, 4]


def test_another_mailbox_is_another_queue(api, box):
    other = mailbox(api, box.scope, "other")
    sent(api, other, "other")
    nothing(api, box.recv())
    assert drained(api, other, other.recv()) == ["other"]


def test_what_stands_in_an_ended_scope_below_is_passed_over_and_gone(api, box):
    child = box.within(scope(api, parentId=box.scope))
    message = sent(api, child, "gone", priority=100)
    sent(api, box, "here")
    ok(end(child.scope).send(api))
    assert drained(api, box, box.recv_below()) == ["here"]
    page = ok(box.messages(state="CANCELLED").send(api))
    assert [m["id"] for m in page["messages"]] == [message]


# INBOX


def test_an_inbox_delivers_one_message_of_a_scope_at_a_time_in_order_of_arrival(api, inbox):
    for i in range(3):
        sent(api, inbox, i)
    for i in range(3):
        held = taken(api, inbox.recv())
        assert held.payload == i
        nothing(api, inbox.recv())
        ok(held.complete().send(api))
    nothing(api, inbox.recv())


def test_an_inbox_ignores_priority(api, inbox):
    for i, priority in enumerate([0, 100, -100, 50]):
        sent(api, inbox, i, priority=priority)
    assert drained(api, inbox, inbox.recv()) == [0, 1, 2, 3]


def test_each_scope_has_its_own_line_in_an_inbox(api, inbox):
    child = inbox.within(scope(api, parentId=inbox.scope))
    for i in range(2):
        sent(api, inbox, ("top", i))
        sent(api, child, ("child", i))
    first, second = taken(api, inbox.recv_below()), taken(api, inbox.recv_below())
    assert [first.payload, second.payload] == [["top", 0], ["child", 0]]
    nothing(api, inbox.recv_below())
    ok(second.complete().send(api))
    assert taken(api, inbox.recv_below()).payload == ["child", 1]
    nothing(api, inbox.recv_below())


def test_a_head_that_is_delayed_holds_its_scope_s_line(api, inbox, clock):
    sent(api, inbox, "head", delaySeconds=60)
    sent(api, inbox, "next")
    nothing(api, inbox.recv())
    clock.shift(61)
    assert drained(api, inbox, inbox.recv()) == ["head", "next"]


def test_a_delay_behind_the_head_holds_the_line_when_its_turn_comes(api, inbox, clock):
    sent(api, inbox, 1)
    sent(api, inbox, 2, delaySeconds=60)
    sent(api, inbox, 3)
    assert drained(api, inbox, inbox.recv()) == [1]
    clock.shift(61)
    assert drained(api, inbox, inbox.recv()) == [2, 3]


def test_a_head_in_backoff_holds_its_scope_s_line(api, inbox, clock):
    sent(api, inbox, "head")
    sent(api, inbox, "next")
    ok(taken(api, inbox.recv()).nack(delaySeconds=60).send(api))
    nothing(api, inbox.recv())
    clock.shift(61)
    assert drained(api, inbox, inbox.recv()) == ["head", "next"]


@pytest.mark.parametrize("how", ["hand back", "nack", "lapse"])
def test_a_head_that_comes_back_is_delivered_again_before_the_next(api, inbox, clock, how):
    sent(api, inbox, "head")
    sent(api, inbox, "next")
    held = taken(api, inbox.recv(lease_s=60))
    if how == "lapse":
        clock.shift(61)
    else:
        ok(held.nack(handBack=how == "hand back", delaySeconds=0).send(api))
    assert drained(api, inbox, inbox.recv()) == ["head", "next"]


@pytest.mark.parametrize("how", ["dead", "deadline", "cancel", "cancel while held", "lapse for good"])
def test_when_a_head_ends_the_next_one_is_delivered(api, clock, how):
    inbox = mailbox(api, scope(api), mode="INBOX", maxAttempts=1)
    given = {"deadline": "2001-01-01T00:00:00Z"} if how == "deadline" else {}
    head = submitted(api, inbox, "head", input="head", **given)
    sent(api, inbox, "next")
    if how == "cancel":
        ok(cancel(head).send(api))
    elif how != "deadline":
        held = taken(api, inbox.recv(lease_s=60))
        if how == "dead":
            ok(held.nack(retry=False).send(api))
        elif how == "lapse for good":
            clock.shift(61)
        else:
            ok(cancel(head).send(api))
    assert drained(api, inbox, inbox.recv()) == ["next"]


def test_the_end_of_a_message_behind_the_head_leaves_the_line_as_it_is(api, inbox, clock):
    sent(api, inbox, 1)
    task = submitted(api, inbox, "t", input=2)
    sent(api, inbox, 3)
    held = taken(api, inbox.recv())
    ok(cancel(task).send(api))
    nothing(api, inbox.recv())
    ok(held.complete().send(api))
    assert drained(api, inbox, inbox.recv()) == [3]


def test_a_redriven_message_waits_for_the_head_and_comes_before_what_arrived_later(api, inbox):
    for i in range(4):
        sent(api, inbox, i)
    first = taken(api, inbox.recv())
    ok(first.nack(retry=False).send(api))
    second = taken(api, inbox.recv())
    assert second.payload == 1
    ok(redrive(first.id).send(api))
    nothing(api, inbox.recv())
    ok(second.complete().send(api))
    assert drained(api, inbox, inbox.recv()) == [0, 2, 3]


def test_admit_does_not_pass_a_message_at_the_head_of_an_inbox(api, inbox):
    sent(api, inbox, "message")
    submitted(api, inbox, "task")
    nothing(api, inbox.admit())
    ok(taken(api, inbox.recv()).complete().send(api))
    assert taken(api, inbox.admit()).attempt == 1
