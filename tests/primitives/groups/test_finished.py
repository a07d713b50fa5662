"""A GET of a group that waits for the next of its members to end, however it does; anywhere."""

import uuid

import pytest

from tests.support.builders import ok, scope
from tests.support.groups import done, group, member, take
from tests.support.queues import cancel, mailbox
from tests.support.waits import WAIT_MS

pytestmark = pytest.mark.processes
EVERYWHERE = pytest.mark.parametrize(
    ("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")]
)


@pytest.fixture
def api(waits_group):
    with waits_group.space.client(waits_group.here.url) as client:
        yield client


def states(view):
    return [one["state"] for one in view["members"]]


@EVERYWHERE
@pytest.mark.parametrize("how", ["succeeds", "fails", "is cancelled"])
def test_the_end_of_one_more_member_wakes_who_waits_for_it(waits_group, api, *, where, by, how):
    made = group(api, mailbox(api, scope(api), uuid.uuid4().hex))
    done(api, made, "review:1")
    second = member(api, made, "review:2")
    member(api, made, "review:3")
    held = take(api, made)
    with waits_group.poll(where, made.view(WAIT_MS, finished=1)) as poll:
        if how == "succeeds":
            ok(held["review:2"].complete().send(api))
        elif how == "fails":
            ok(held["review:2"].nack(retry=False).send(api))
        else:
            ok(cancel(second).send(api))
        view = ok(poll.response())
        assert view["state"] == "OPEN"
        ended = {"succeeds": "SUCCEEDED", "fails": "FAILED", "is cancelled": "CANCELLED"}[how]
        assert states(view) == ["SUCCEEDED", ended, "RUNNING"]
        assert poll.causes().keys() == {by}


def test_what_has_ended_before_answers_at_once_and_what_has_not_is_waited_for(waits_group, api):
    made = group(api, mailbox(api, scope(api), uuid.uuid4().hex))
    done(api, made, "review:1", "review:2")
    assert states(ok(made.view(WAIT_MS, finished=1).send(api))) == ["SUCCEEDED", "SUCCEEDED"]
    with waits_group.poll("there", made.view(WAIT_MS, finished=2)) as poll:
        member(api, made, "review:3")
        assert not poll.done
        ok(made.close().send(api))
        assert not poll.done
        ok(take(api, made)["review:3"].complete().send(api))
        view = ok(poll.response())
        assert (view["state"], len(states(view))) == ("FINALIZED", 3)
