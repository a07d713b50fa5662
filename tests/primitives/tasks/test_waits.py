"""A GET that waits for a task: answered as soon as it is terminal, whoever ended it and wherever."""

import uuid
from contextlib import ExitStack

import pytest

from tests.support.builders import end, in_seconds, ok, scope
from tests.support.metrics import Metrics
from tests.support.queues import cancel, mailbox, redrive, submitted, taken, view
from tests.support.waits import WAIT_MS

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
def box(api):
    return mailbox(api, scope(api), uuid.uuid4().hex)


@pytest.mark.parametrize(("where", "by"), EVERYWHERE)
@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("complete", "SUCCEEDED", None),
        ("give up", "FAILED", "rejected"),
        ("cancel", "CANCELLED", "cancelled"),
        ("end of the scope", "CANCELLED", "scope_cancelled"),
    ],
)
def test_an_end_wakes_whoever_waits_for_it(group, api, box, *, where, by, how, state, reason):
    task = submitted(api, box)
    held = taken(api, box.admit(lease_s=3600))
    with group.poll(where, view(task, WAIT_MS)) as poll:
        call = {
            "complete": held.complete([1]),
            "give up": held.nack(retry=False),
            "cancel": cancel(task),
            "end of the scope": end(box.scope),
        }[how]
        ok(call.send(api))
        told = ok(poll.response())
        assert (told["state"], told["outcomeReason"]) == (state, reason)
        assert told["outcome"] == ([1] if how == "complete" else None)
        assert poll.causes().keys() == {by}


@pytest.mark.parametrize("where", ["here", "deaf"])
@pytest.mark.parametrize("whose", ["the task", "the scope"])
def test_a_deadline_that_passes_ends_the_wait_though_nothing_else_happens(group, api, box, where, whose):
    soon = in_seconds(api, 1.5)
    if whose == "the scope":
        box = box.within(scope(api, parentId=scope(api, deadline=soon)))
    task = submitted(api, box, **({"deadline": soon} if whose == "the task" else {}))
    with group.poll(where, view(task, WAIT_MS)) as poll:
        told = ok(poll.response())
        assert (told["state"], told["outcomeReason"]) == ("EXPIRED", "deadline")


def test_all_who_wait_for_one_task_are_told(group, api, box):
    task = submitted(api, box)
    with ExitStack() as polls:
        waiting = [
            polls.enter_context(group.poll(where, view(task, WAIT_MS)))
            for where in ("here", "there", "deaf") * 3
        ]
        ok(taken(api, box.admit()).complete("for all").send(api))
        assert {ok(p.response())["outcome"] for p in waiting} == {"for all"}


def test_a_start_a_retry_and_a_renewal_do_not_end_the_wait(group, api, box):
    task = submitted(api, box)
    with group.poll("here", view(task, WAIT_MS)) as poll:
        held = taken(api, box.admit())
        ok(held.renew(60).send(api))
        ok(held.nack(error="e", delaySeconds=0).send(api))
        held = taken(api, box.admit())
        assert not poll.done
        ok(held.complete().send(api))
        assert ok(poll.response())["attempt"] == 2


def test_a_wait_that_ends_answers_the_task_as_it_is(group, api, box):
    task = submitted(api, box)
    with group.poll("here", view(task, 300)) as poll:
        assert ok(poll.response())["state"] == "QUEUED"


def test_a_task_that_is_over_is_answered_at_once(group, api, box):
    task = submitted(api, box)
    ok(taken(api, box.admit()).nack(retry=False).send(api))
    assert ok(view(task, WAIT_MS).send(api))["state"] == "FAILED"
    ok(redrive(task).send(api))
    with group.poll("here", view(task, WAIT_MS)) as poll:
        ok(taken(api, box.admit()).complete().send(api))
        assert ok(poll.response())["state"] == "SUCCEEDED"
    assert Metrics.of(group.here).open_polls == 0
