"""The life of a barrier: WAITING → RELEASED → the next epoch; CANCELLED with its scope."""

import pytest

from tests.support.barriers import Barrier, barrier, made, named
from tests.support.builders import Call, end, in_seconds, ok, refused, scope
from tests.support.journal import events


def arrived(api, meeting, key):
    return ok(meeting.arrive(key).send(api))


def seen(api, meeting):
    return ok(meeting.view().send(api))


def test_a_barrier_waits_until_the_last_has_arrived_and_is_released_then(api):
    root = scope(api)
    view = ok(made(root, 3).send(api))
    meeting = Barrier(view["id"])
    waiting = {"id": meeting.id, "name": None, "scopeId": root, "state": "WAITING", "target": 3}
    assert view == seen(api, meeting) == waiting | {"epoch": 1, "arrivals": 0}
    for n, key in enumerate(("a", "b"), start=1):
        assert arrived(api, meeting, key) == {"state": "WAITING", "arrivals": n, "epoch": 1}
    assert seen(api, meeting) == waiting | {"epoch": 1, "arrivals": 2}
    assert arrived(api, meeting, "c") == {"state": "RELEASED", "arrivals": 3, "epoch": 1}
    assert seen(api, meeting) == waiting | {"state": "RELEASED", "epoch": 1, "arrivals": 3}


def test_the_same_key_counts_once_before_and_after_the_release(api):
    meeting = barrier(api, scope(api), 2)
    for _ in range(3):
        assert arrived(api, meeting, "a") == {"state": "WAITING", "arrivals": 1, "epoch": 1}
    arrived(api, meeting, "b")
    for key in ("a", "b", "a"):
        assert arrived(api, meeting, key) == {"state": "RELEASED", "arrivals": 2, "epoch": 1}


def test_a_new_key_after_the_release_is_told_that_it_is_too_late(api):
    root = scope(api)
    meeting = Barrier(ok(named(root, "start", 1).send(api))["id"])
    arrived(api, meeting, "a")
    message = refused(meeting.arrive("late").send(api), "BARRIER_RELEASED")
    assert '"start"' in message
    assert '"late"' in message
    assert seen(api, meeting)["arrivals"] == 1


def test_keys_are_compared_byte_for_byte(api):
    meeting = barrier(api, scope(api), 4)
    for n, key in enumerate(("é", "e\u0301", "É", " é"), start=1):
        assert arrived(api, meeting, key)["arrivals"] == n


def test_a_name_is_one_barrier_in_its_scope_and_another_in_the_next(api):
    root = scope(api)
    below = scope(api, parentId=root)
    first = ok(named(root, "start/ü", 2).send(api))
    assert first["name"] == "start/ü"
    assert ok(named(root, "start/ü", 2).send(api)) == first
    assert ok(named(below, "start/ü", 5).send(api))["id"] != first["id"]
    assert ok(made(root, 2).send(api))["id"] != ok(made(root, 2).send(api))["id"]


def test_another_target_for_a_name_is_a_conflict_that_names_both(api):
    root = scope(api)
    ok(named(root, "start", 2).send(api))
    message = refused(named(root, "start", 7).send(api), "CONFLICT")
    assert "2" in message
    assert "7" in message
    assert '"start"' in message


def test_a_name_found_again_shows_how_the_barrier_stands(api):
    root = scope(api)
    meeting = Barrier(ok(named(root, "start", 2).send(api))["id"])
    arrived(api, meeting, "a")
    assert ok(named(root, "start", 2).send(api)) == seen(api, meeting)
    assert seen(api, meeting)["arrivals"] == 1


@pytest.mark.parametrize("before", ["released", "waiting"])
def test_a_reset_begins_the_next_epoch_in_which_nobody_has_arrived(api, before):
    meeting = barrier(api, scope(api), 2)
    arrived(api, meeting, "a")
    if before == "released":
        arrived(api, meeting, "b")
    view = ok(meeting.reset().send(api))
    assert (view["state"], view["epoch"], view["arrivals"]) == ("WAITING", 2, 0)
    assert view == seen(api, meeting)
    assert arrived(api, meeting, "a") == {"state": "WAITING", "arrivals": 1, "epoch": 2}
    assert arrived(api, meeting, "c") == {"state": "RELEASED", "arrivals": 2, "epoch": 2}


def test_every_reset_begins_an_epoch_but_one_that_is_sent_again_under_its_key(api):
    meeting = barrier(api, scope(api))
    first = meeting.reset().send(api, "once")
    again = meeting.reset().send(api, "once")
    assert first.json() == again.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert ok(meeting.reset().send(api))["epoch"] == 3


@pytest.mark.parametrize(
    ("how", "code"), [("cancel", "SCOPE_CANCELLED"), ("complete", "SCOPE_CANCELLED"), ("expire", None)]
)
@pytest.mark.parametrize("where", ["its own", "above"])
def test_the_end_of_the_scope_cancels_a_barrier_that_waits(api, clock, how, code, where):
    ending = scope(api, deadline=in_seconds(api, 60) if how == "expire" else None)
    home = ending if where == "its own" else scope(api, parentId=ending)
    waiting, full = barrier(api, home, 2), barrier(api, home, 1)
    arrived(api, waiting, "a")
    arrived(api, full, "a")
    if how == "expire":
        clock.shift(61)
    else:
        ok(end(ending, how).send(api))
    code = code or "DEADLINE_EXCEEDED"
    view = ok(waiting.view(wait_ms=30_000).send(api))
    assert (view["state"], view["arrivals"], view["epoch"]) == ("CANCELLED", 1, 1)
    assert seen(api, full)["state"] == "RELEASED"
    for key in ("a", "b"):
        refused(waiting.arrive(key).send(api), code)
        refused(full.arrive(key).send(api), code)
    refused(waiting.reset().send(api), "BARRIER_CANCELLED")
    refused(full.reset().send(api), code)
    refused(made(home).send(api), code)
    refused(named(home, "x").send(api), code)


def test_barriers_elsewhere_in_the_run_go_on_when_a_part_of_it_ends(api, space, database_url):
    root = scope(api)
    ends, stays = scope(api, parentId=root), scope(api, parentId=root)
    over, on = barrier(api, ends), barrier(api, stays)
    ok(end(ends).send(api))
    assert seen(api, over)["state"] == "CANCELLED"
    assert arrived(api, on, "a")["state"] == "WAITING"
    assert [e.aggregate for e in events(database_url, space.id, "barrier.cancelled")] == [over.id]


def test_each_change_is_an_event_and_the_release_one_of_its_own(api, space, database_url):
    root = scope(api)
    meeting = Barrier(ok(named(root, "start", 2).send(api))["id"])
    for key in ("ann", "ann", "bob", "ann"):
        arrived(api, meeting, key)
    ok(meeting.reset().send(api))
    ok(end(root).send(api))
    told = [e for e in events(database_url, space.id) if e.aggregate == meeting.id]
    facts = {"name": "start", "target": 2}
    assert [(e.type, e.payload) for e in told] == [
        ("resource.created", facts),
        ("barrier.arrived", facts | {"key": "ann", "epoch": 1, "arrivals": 1}),
        ("barrier.arrived", facts | {"key": "bob", "epoch": 1, "arrivals": 2}),
        ("barrier.released", facts | {"key": "bob", "epoch": 1, "arrivals": 2}),
        ("resource.updated", facts | {"epoch": 2}),
        ("barrier.cancelled", facts | {"epoch": 2, "arrivals": 0, "reason": "scope_cancelled"}),
    ]
    read = ok(Call("GET", f"/events?aggregate=barrier:{meeting.id}").send(api))["events"]
    assert [event["type"] for event in read] == [e.type for e in told]


def test_a_run_s_report_shows_the_barriers_that_wait_in_the_subtree(api):
    root = scope(api)
    below, ended = scope(api, parentId=root), scope(api, parentId=root)
    full, gone = barrier(api, root, 1), barrier(api, ended)
    arrived(api, full, "a")
    above, deep = barrier(api, root), Barrier(ok(named(below, "deep", 2).send(api))["id"])
    arrived(api, deep, "a")
    ok(end(ended).send(api))
    assert gone.id != above.id
    found = ok(api.get(f"/ops/runs/{root}"))["barriers"]
    assert found == [seen(api, above), seen(api, deep)]
    assert ok(api.get(f"/ops/runs/{below}"))["barriers"] == [seen(api, deep)]
