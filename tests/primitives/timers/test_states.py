"""The life of a timer: PENDING → FIRED → ACKED, or ended before it fired; what it shows, and to whom."""

from datetime import datetime, timedelta

import pytest

from tests.support import database
from tests.support.builders import Call, end, in_seconds, ok, refused, scope
from tests.support.journal import events
from tests.support.timers import HOUR, Timers, ack, cancel, look

PAST = "2001-01-01T00:00:00.000Z"
ODD = ["a/b?c=d&e#f", "poll", "a/ack", "by-name/x", "%2F%", "+", "  ", "😀" * 256, "a//b", "/", "é"]


@pytest.fixture
def timers(api):
    return Timers(scope(api))


def at(text):
    return datetime.fromisoformat(text)


def told(database_url, space):
    return [e for e in events(database_url, space.id) if e.type.startswith("timer.")]


def test_a_new_timer_is_pending_and_shows_its_time_and_the_server_s(api, timers):
    made = ok(timers.create(HOUR).send(api))
    assert made == {
        "id": made["id"],
        "name": None,
        "scopeId": timers.scope,
        "state": "PENDING",
        "fireAt": made["fireAt"],
        "firedAt": None,
        "now": made["now"],
    }
    assert abs(at(made["fireAt"]) - at(made["now"]) - timedelta(hours=1)) <= timedelta(milliseconds=1)
    seen = ok(look(made["id"]).send(api))
    assert seen | {"now": made["now"]} == made


def test_a_timer_fires_at_its_time_and_not_a_moment_before(api, timers, clock):
    made = ok(timers.create(at=in_seconds(api, HOUR)).send(api))
    clock.shift((at(made["fireAt"]) - clock.now()).total_seconds() - 20)
    assert ok(look(made["id"]).send(api))["state"] == "PENDING"
    clock.shift(20)
    seen = ok(look(made["id"]).send(api))
    assert seen["state"] == "FIRED"
    assert at(made["fireAt"]) <= at(seen["firedAt"]) <= at(seen["now"])
    assert seen["fireAt"] == made["fireAt"]


@pytest.mark.parametrize("when", [{"after_s": 0}, {"at": PAST}], ids=str)
def test_a_time_that_has_come_fires_at_once_and_the_answer_has_the_token(
    api, space, database_url, timers, when
):
    made = ok(timers.create(**when).send(api))
    assert made["state"] == "FIRED"
    assert at(made["firedAt"]) >= at(made["fireAt"])
    assert len(made["token"]) == 32
    assert [e.type for e in told(database_url, space)] == ["timer.created", "timer.fired"]
    assert ok(ack(made["id"], made["token"]).send(api)) == {"state": "ACKED"}


def test_exactly_one_of_a_delay_and_an_instant_is_given_at_most_366_days_ahead(api, timers):
    neither = Call("POST", "/timers", {"scopeId": timers.scope})
    both = Call("POST", "/timers", {"scopeId": timers.scope, "afterSeconds": 1, "at": PAST})
    for call in (neither, both):
        message = refused(call.send(api), "VALIDATION_FAILED")
        assert "afterSeconds" in message
        assert "at" in message
    days = 366 * 86_400
    ok(timers.create(days).send(api))
    ok(timers.create(at=in_seconds(api, days - 60)).send(api))
    for far in (timers.create(days + 1), timers.create(at=in_seconds(api, days + 60))):
        assert "366" in refused(far.send(api), "VALIDATION_FAILED") or "31622400" in far.send(api).text


def test_the_first_call_by_name_sets_the_time_and_later_ones_read_it(api, space, database_url, timers):
    first = ok(timers.named("nightly", HOUR).send(api))
    assert first["name"] == "nightly"
    for again in (
        timers.named("nightly", HOUR),
        timers.named("nightly", 1),
        timers.named("nightly", at=PAST),
    ):
        assert ok(again.send(api)) | {"now": first["now"]} == first
    other = ok(Timers(scope(api)).named("nightly", 5).send(api))
    assert other["id"] != first["id"]
    assert [e.type for e in told(database_url, space)] == ["timer.created"] * 2


@pytest.mark.parametrize("name", ODD, ids=lambda name: ascii(name)[:20])
def test_a_name_in_the_path_may_hold_any_character(api, timers, name):
    first = ok(timers.named(name, HOUR).send(api))
    assert first["name"] == name
    assert ok(timers.named(name, HOUR).send(api))["id"] == first["id"]


def test_a_name_leads_to_its_timer_whatever_became_of_it(api, timers, clock):
    """So a process that starts again finds what it has slept already."""
    first = ok(timers.named("a", HOUR).send(api))
    other = ok(timers.named("b", HOUR).send(api))
    ok(cancel(other["id"]).send(api))
    clock.shift(HOUR)
    fired = [ok(timers.named("a", HOUR).send(api)) for _ in range(2)]
    assert {f["state"] for f in fired} == {"FIRED"}
    assert {f["id"] for f in fired} == {first["id"]}
    assert len({f["token"] for f in fired}) == 1
    ok(ack(first["id"], fired[0]["token"]).send(api))
    acked = ok(timers.named("a", HOUR).send(api))
    assert (acked["id"], acked["state"], "token" in acked) == (first["id"], "ACKED", False)
    cancelled = ok(timers.named("b", HOUR).send(api))
    assert (cancelled["id"], cancelled["state"], "token" in cancelled) == (other["id"], "CANCELLED", False)


def test_a_poll_tells_what_has_fired_in_exactly_its_scope_until_it_is_acknowledged(api, timers, clock):
    child = Timers(scope(api, parentId=timers.scope))
    second, first = timers.pending(api, 200), timers.pending(api, 100)
    third = ok(timers.named("third", 300).send(api))["id"]
    below = child.pending(api, 100)
    timers.pending(api, 5 * HOUR)
    assert ok(timers.poll().send(api)) == {"timers": []}
    for _ in range(3):
        clock.shift(100)
        ok(timers.poll().send(api))
    polled = ok(timers.poll().send(api))["timers"]
    assert [t["id"] for t in polled] == [first, second, third]
    assert [t["name"] for t in polled] == [None, None, "third"]
    assert ok(timers.poll().send(api))["timers"] == polled
    assert [t["id"] for t in ok(child.poll().send(api))["timers"]] == [below]
    ok(ack(second, polled[1]["token"]).send(api))
    assert [t["id"] for t in ok(timers.poll().send(api))["timers"]] == [first, third]


def test_an_acknowledgement_needs_the_token_of_that_timer(api, timers):
    timer, token = timers.fired(api)
    other, another = timers.fired(api)
    assert token != another
    for wrong in ("wrong", another, token.upper() + " "):
        refused(ack(timer, wrong).send(api), "CONFLICT")
    assert ok(look(timer).send(api))["state"] == "FIRED"
    for _ in range(2):  # a reply may be lost
        assert ok(ack(timer, token).send(api)) == {"state": "ACKED"}
    refused(ack(timer, another).send(api), "CONFLICT")
    assert ok(look(other).send(api))["state"] == "FIRED"


def test_nobody_acknowledges_what_has_not_fired_or_was_cancelled(api, database_url, timers):
    timer = timers.pending(api)
    token = database.fetchval(
        database_url, "SELECT token FROM runstate.timers WHERE id = $1::text::uuid", timer
    )
    for _ in range(2):
        refused(ack(timer, token).send(api), "CONFLICT")
        ok(cancel(timer).send(api))


def test_a_cancelled_timer_never_fires_and_cancelling_it_again_is_a_no_op(
    api, space, database_url, timers, clock
):
    timer = timers.pending(api)
    first = ok(cancel(timer).send(api))
    assert (first["state"], first["firedAt"]) == ("CANCELLED", None)
    clock.shift(2 * HOUR)
    again = ok(cancel(timer).send(api))
    assert again | {"now": first["now"]} == first
    assert ok(timers.poll().send(api)) == {"timers": []}
    [_, cancelled] = told(database_url, space)
    assert (cancelled.type, cancelled.aggregate) == ("timer.cancelled", timer)
    assert cancelled.payload == {"name": None, "reason": "cancelled"}


@pytest.mark.parametrize("noticed", [True, False])
def test_what_has_fired_or_is_due_cannot_be_cancelled(api, space, database_url, timers, clock, noticed):
    timer = timers.pending(api)
    clock.shift(HOUR + 1)
    if noticed:
        ok(look(timer).send(api))
    assert timer in refused(cancel(timer).send(api), "CONFLICT")
    [fired] = ok(timers.poll().send(api))["timers"]
    ok(ack(timer, fired["token"]).send(api))
    refused(cancel(timer).send(api), "CONFLICT")
    assert [e.type for e in told(database_url, space)] == ["timer.created", "timer.fired", "timer.acked"]


def test_the_token_is_told_by_post_put_and_poll_alone(api, space, database_url, timers, clock):
    timer = ok(timers.named("a", HOUR).send(api))["id"]
    clock.shift(HOUR)
    token = ok(timers.named("a", HOUR).send(api))["token"]
    refused(ack(timer, "wrong").send(api), "CONFLICT")
    shown = [look(timer), cancel(timer), Call("GET", f"/ops/runs/{timers.scope}"), Call("GET", "/events")]
    for call in shown:
        assert token not in call.send(api).text
    assert token not in "".join(e.text for e in events(database_url, space.id))


# -- the end of the scope ----------------------------------------------------------------------------------

ENDS = [("cancel", "CANCELLED", "scope_cancelled"), ("complete", "CANCELLED", "scope_completed")]


@pytest.mark.parametrize(("how", "state", "reason"), ENDS)
def test_the_end_of_a_scope_cancels_what_is_pending_below_it_and_leaves_what_has_fired(
    api, space, database_url, timers, *, how, state, reason
):
    child = scope(api, parentId=timers.scope)
    below, beside = Timers(scope(api, parentId=child)), timers.pending(api)
    waiting, (fired, token) = below.pending(api), below.fired(api)
    ok(end(child, how).send(api))
    assert ok(look(waiting, 20_000).send(api))["state"] == state
    assert ok(cancel(waiting).send(api))["state"] == state
    assert ok(look(beside).send(api))["state"] == "PENDING"
    assert ok(look(fired).send(api))["state"] == "FIRED"
    refused(cancel(fired).send(api), "CONFLICT")
    for late in (below.create(1), below.named("x", 1), below.poll(1000)):
        refused(late.send(api), "SCOPE_CANCELLED")
    assert ok(ack(fired, token).send(api)) == {"state": "ACKED"}
    [cancelled] = events(database_url, space.id, "timer.cancelled")
    assert (cancelled.aggregate, cancelled.payload) == (waiting, {"name": None, "reason": reason})


@pytest.mark.parametrize("written", [True, False])
def test_a_deadline_that_passes_makes_a_pending_timer_expired(api, space, database_url, clock, written):
    root = scope(api, deadline=in_seconds(api, 60))
    below = Timers(scope(api, parentId=root))
    early, late = below.pending(api, 30), below.pending(api, HOUR)
    clock.shift(31)
    assert ok(look(early).send(api))["state"] == "FIRED"
    clock.shift(30)
    if written:
        refused(below.create(1).send(api), "DEADLINE_EXCEEDED")  # whoever notices writes it
    assert ok(look(late, 20_000).send(api))["state"] == "EXPIRED"
    assert ok(look(early).send(api))["state"] == "FIRED"
    assert ok(cancel(late).send(api))["state"] == "EXPIRED"
    refused(below.poll().send(api), "DEADLINE_EXCEEDED")
    refused(below.named("x", 1).send(api), "DEADLINE_EXCEEDED")
    [ended] = events(database_url, space.id, "timer.cancelled")
    assert (ended.aggregate, ended.payload["reason"]) == (late, "deadline")


def test_nothing_fires_in_a_scope_that_has_ended(api, space, database_url, clock):
    root = scope(api, deadline=in_seconds(api, 60))
    timer = Timers(root).pending(api, 59)
    clock.shift(61)
    assert ok(look(timer).send(api))["state"] == "EXPIRED"
    assert events(database_url, space.id, "timer.fired") == []
