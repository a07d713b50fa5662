"""A waiting GET wakes by the bus, here and elsewhere; with the bus cut, by the tick; on a lapse, by itself.

The replicas of this file neither sweep nor tick unless a test says so: whatever wakes a poll is the one cause
left, and /metrics says which it was.
"""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support import spaces
from tests.support.builders import Once, end, held, in_seconds, ok, scope
from tests.support.metrics import Metrics, until_polls
from tests.support.processes import Replica
from tests.support.spaces import Space

pytestmark = pytest.mark.processes

NEVER = {"TICK_S": "60", "SWEEP_S": "3600"}
WAIT_MS = 30_000
CAUSES = ("commit", "notify", "tick", "reconnect")


@dataclass
class Group:
    """Replicas on one database, told apart by what may wake their polls."""

    here: Replica
    there: Replica
    deaf: Replica  # neither notifies nor listens; it ticks instead
    space: Space
    database_url: str


@pytest.fixture(scope="module")
def group(template):
    with template.clone("waits") as url, ExitStack() as exits:
        here, there = Replica(url, **NEVER), Replica(url, **NEVER)
        deaf = Replica(url, NOTIFY="false", TICK_S="0.2", SWEEP_S="3600")
        for replica in (here, there, deaf):
            replica.start(wait=False)
            exits.push(replica.__exit__)
        for replica in (here, there, deaf):
            replica.wait_ready()
        yield Group(here, there, deaf, spaces.create(url), url)


class Poll:
    """A waiting GET in a thread, asleep by the time the block is entered."""

    def __init__(self, group, replica, once):
        self._client = group.space.client(replica.url)
        self._replica = replica
        self._call = once.view(WAIT_MS)

    def __enter__(self):
        with ExitStack() as exits:
            exits.enter_context(self._client)
            pool = exits.enter_context(ThreadPoolExecutor(1))
            self._before = until_polls(self._replica, 0)
            self._asked_at = time.monotonic()
            self.future = pool.submit(self._call.send, self._client)
            until_polls(self._replica, 1)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_):
        self._exits.close()

    def answer(self):
        """The poll's answer; took_s says after how long."""
        answer = ok(self.future.result(60))
        self.took_s = time.monotonic() - self._asked_at
        return answer

    def causes(self):
        """What woke polls of this replica since the poll began, each with how often."""
        now = Metrics.of(self._replica)
        counts = {by: now.woken(by) - self._before.woken(by) for by in CAUSES}
        return {by: count for by, count in counts.items() if count}


@pytest.fixture
def api(group):
    with group.space.client(group.here.url) as client:
        yield client


@pytest.fixture
def once(api, request):
    return Once(scope(api), request.node.name)


@pytest.mark.parametrize(("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")])
@pytest.mark.parametrize(
    ("finish", "answer"),
    [
        (lambda once, token: once.complete(token, [1]), {"state": "DONE", "attempts": 0, "result": [1]}),
        (lambda once, token: once.fail(token, "e", 1), {"state": "FAILED", "attempts": 1, "lastError": "e"}),
        (lambda once, token: once.fail(token, "e"), {"state": "OPEN", "attempts": 1, "lastError": "e"}),
        (lambda once, _: end(once.scope), {"state": "OPEN", "attempts": 0}),
    ],
    ids=["complete", "last failure", "failure", "cancel"],
)
def test_a_waiter_wakes_by_the_bus_and_with_the_bus_cut_by_the_tick(
    group, api, once, *, where, by, finish, answer
):
    token = held(api, once, lease_s=3600)
    with Poll(group, getattr(group, where), once) as poll:
        ok(finish(once, token).send(api))
        assert poll.answer() == answer
        # The first tick of a replica knows nothing yet of the space and lets everybody look.
        assert poll.causes().keys() == {by}
        assert by == "tick" or poll.causes() == {by: 1}


def test_a_change_made_by_a_deaf_replica_reaches_the_others_by_their_tick(group, api, once):
    token = held(api, once, lease_s=3600)
    with (
        Replica(group.database_url, **NEVER | {"TICK_S": "0.2"}) as listening,
        Poll(group, listening, once) as poll,
        group.space.client(group.deaf.url) as elsewhere,
    ):
        ok(once.complete(token, 1).send(elsewhere))
        assert poll.answer()["state"] == "DONE"
        assert poll.causes().keys() == {"tick"}


@pytest.mark.parametrize("where", ["here", "there", "deaf"])
def test_a_waiter_wakes_when_the_lease_lapses_without_anything_else_happening(group, api, once, where):
    held(api, once, lease_s=1)
    with Poll(group, getattr(group, where), once) as poll:
        assert poll.answer() == {"state": "OPEN", "attempts": 0}
        assert poll.took_s < WAIT_MS / 2000
        assert poll.causes().keys() <= ({"tick"} if where == "deaf" else set())


def test_a_waiter_sleeps_on_when_the_lease_it_watches_is_renewed(group, api, once):
    token = held(api, once, lease_s=5)
    with Poll(group, group.here, once) as poll:
        ok(once.renew(token, 3600).send(api))
        with pytest.raises(TimeoutError):
            poll.future.result(5.5)  # the lease it knew of has ended, the key is still held
        ok(once.complete(token, 1).send(api))
        assert poll.answer()["state"] == "DONE"
        assert poll.causes() == {"commit": 1}


def test_a_waiter_wakes_when_the_deadline_of_the_scope_passes(group, api):
    once = Once(scope(api, parentId=scope(api, deadline=in_seconds(api, 1.5))), "deadline")
    held(api, once, lease_s=3600)
    with Poll(group, group.there, once) as poll:
        assert poll.answer() == {"state": "OPEN", "attempts": 0}
        assert poll.took_s < WAIT_MS / 2000
        assert poll.causes() == {}


def test_a_wait_that_ends_answers_the_state_as_it_is(group, api, once):
    held(api, once, holder="a", lease_s=3600)
    before = Metrics.of(group.here)
    for wait_ms in (1, 300):
        answer = ok(once.view(wait_ms).send(api))
        assert (answer["state"], answer["holder"]) == ("HELD", "a")
    after = Metrics.of(group.here)
    assert [after.woken(by) for by in CAUSES] == [before.woken(by) for by in CAUSES]
    assert after.open_polls == 0


def test_a_key_that_is_not_held_is_answered_without_waiting(group, api, once):
    for _ in range(2):
        assert ok(once.view(WAIT_MS).send(api))["state"] == "OPEN"
        ok(once.fail(held(api, once)).send(api))
    ok(once.complete(held(api, once)).send(api))
    assert ok(once.view(WAIT_MS).send(api))["state"] == "DONE"
    assert Metrics.of(group.here).open_polls == 0


def test_other_keys_do_not_wake_a_waiter(group, api, once):
    token = held(api, once, lease_s=3600)
    other = Once(once.scope, "other")
    with Poll(group, group.here, once) as poll:
        ok(other.complete(held(api, other)).send(api))
        assert poll.causes() == {}
        ok(once.complete(token).send(api))
        poll.answer()


def test_a_caller_that_hangs_up_leaves_no_poll_behind(group, api, once):
    token = held(api, once, lease_s=3600)
    gone = Metrics.of(group.here).value(
        "runstate_requests_total", method="GET", route="/v1/spaces/{space_id}/once", status="499"
    )
    until_polls(group.here, 0)
    for closed in (socket.SHUT_WR, socket.SHUT_RDWR):
        with dialled(group, once) as connection:
            until_polls(group.here, 1)
            connection.shutdown(closed)
            connection.close()
            metrics = until_polls(group.here, 0)
        gone += 1
        assert gone == metrics.value(
            "runstate_requests_total", method="GET", route="/v1/spaces/{space_id}/once", status="499"
        )
    assert ok(once.complete(token).send(api)) == {"state": "DONE"}


def dialled(group, once):
    """A connection that has asked for the key and waits."""
    path = f"/v1/spaces/{group.space.id}{once.view(WAIT_MS).path}"
    connection = socket.create_connection(("127.0.0.1", group.here.port), timeout=10)
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {group.space.key}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def test_sleeping_polls_hold_no_connection(group, api, once):
    held(api, once, lease_s=3600)
    many = 40
    with ThreadPoolExecutor(many) as pool, group.space.client(group.there.url) as client:
        answers = [pool.submit(once.view(WAIT_MS).send, client) for _ in range(many)]
        assert until_polls(group.there, many).value("runstate_pool_max") < many
        ok(end(once.scope).send(api))
        assert {ok(a.result(60))["state"] for a in answers} == {"OPEN"}
