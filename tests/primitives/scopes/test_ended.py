"""The end of a scope says how much of each it has ended: exactly, to whoever asks, and in the journal."""

import pytest

from tests.support.barriers import barrier
from tests.support.builders import Once, contents, end, held, ok, scope
from tests.support.journal import events
from tests.support.permits import pool
from tests.support.queues import Claim, batch, mailbox
from tests.support.timers import Timers


def told(database_url, space, ended="CANCELLED"):
    """The last entry of the journal about an end."""
    return events(database_url, space.id, f"scope.{ended.lower()}")[-1].payload["ended"]


def fill(api, where):
    """One of each in a scope, a delivery among them; returns what its end has to say."""
    held(api, Once(where))
    ok(Claim(where).acquire().send(api), 201)
    box = mailbox(api, where, name=where)
    ok(box.send().send(api), 201)
    for number in range(3):
        ok(box.submit(str(number)).send(api), 201)
    ok(box.recv().send(api))
    barrier(api, where)
    full = barrier(api, where, 1)
    ok(full.arrive().send(api))
    browsers = pool(api, where, units=1, name=where)
    ok(browsers.acquire().send(api))
    ok(browsers.wait().send(api))
    for _ in range(2):
        Timers(where).pending(api)
    Timers(where).fired(api)  # stays as it is
    many = {"once": 1, "claims": 1, "messages": 1, "tasks": 3}
    return many | {"barriers": 1, "timers": 2, "waiters": 1}


@pytest.mark.parametrize("how", ["cancel", "complete"])
def test_an_end_counts_what_the_run_held_and_says_so_again(api, space, database_url, how):
    root = scope(api)
    many = fill(api, root)
    first = ok(end(root, how).send(api))
    assert first["ended"] == contents(**many) == told(database_url, space, first["state"])
    assert ok(end(root, how).send(api)) == first


def test_an_end_of_a_child_counts_its_subtree_alone(api, space, database_url):
    root = scope(api)
    child = scope(api, parentId=root)
    below = scope(api, parentId=child)
    many = fill(api, below)
    fill(api, root)
    assert ok(end(child).send(api))["ended"] == contents(scopes=2, **many) == told(database_url, space)
    assert "ended" not in ok(end(below).send(api))
    assert ok(end(root).send(api))["ended"] == contents(**many)


def test_messages_that_wait_behind_the_head_of_an_inbox_are_counted(api):
    root = scope(api)
    child = scope(api, parentId=root)
    box = mailbox(api, root, mode="INBOX")
    for where in (root, child):
        for _ in range(3):
            ok(box.within(where).send().send(api), 201)
    assert ok(end(child).send(api))["ended"]["messages"] == 3
    assert ok(end(root).send(api))["ended"]["messages"] == 3


@pytest.mark.parametrize("deep", [False, True])
def test_a_large_run_is_counted_whole_though_it_is_tidied_later(api, space, database_url, deep):
    root = scope(api)
    where = scope(api, parentId=root) if deep else root
    box = mailbox(api, where)
    for start in range(0, 1_200, 400):
        ok(batch([box.task(str(i)) for i in range(start, start + 400)]).send(api))
    held(api, Once(where))
    answer = ok(end(where).send(api))
    assert answer["ended"] == contents(once=1, tasks=1_200) == told(database_url, space)
