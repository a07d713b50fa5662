"""The timers of a run in its report: what is to fire, and what has fired and waits for somebody."""

from tests.support.builders import end, ok, scope
from tests.support.reports import in_run
from tests.support.timers import HOUR, Timers, ack, cancel


def test_pending_and_fired_timers_of_the_subtree_are_told_by_their_time(api, clock):
    run = Timers(scope(api))
    child = Timers(scope(api, parentId=run.scope))
    late = ok(child.named("late", HOUR).send(api))
    soon, token = child.fired(api)
    ok(ack(soon, token).send(api))
    fired, _ = child.fired(api)
    ok(cancel(child.pending(api)).send(api))
    beside = run.pending(api, 2 * HOUR)
    first, second = in_run(api, child.scope)["timers"]
    assert (first["id"], first["name"], first["scopeId"], first["state"]) == (
        fired,
        None,
        child.scope,
        "FIRED",
    )
    assert first["firedAt"] is not None
    assert second == {
        "id": late["id"],
        "name": "late",
        "scopeId": child.scope,
        "state": "PENDING",
        "fireAt": late["fireAt"],
        "firedAt": None,
    }
    assert [t["id"] for t in in_run(api, run.scope)["timers"]] == [fired, late["id"], beside]


def test_in_a_scope_that_has_ended_nothing_is_to_fire_any_more(api):
    run = Timers(scope(api))
    run.pending(api)
    fired, _ = run.fired(api)
    ok(end(run.scope).send(api))
    assert [t["id"] for t in in_run(api, run.scope)["timers"]] == [fired]
