"""Many callers at one timer: one of it by its name, fired once, one outcome of what is incompatible."""

import asyncio
from collections import Counter

import pytest

from tests.support import database, races
from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.journal import events
from tests.support.timers import HOUR, Timers, ack, cancel, look

ROW = "SELECT 1 FROM runstate.timers WHERE id = $1::text::uuid FOR NO KEY UPDATE"
GATE = "SELECT pg_advisory_xact_lock({schema}.lock_key('gate', $1, $2))"


@pytest.fixture
def timers(api):
    return Timers(scope(api))


def told(database_url, space):
    return Counter(e.type for e in events(database_url, space.id) if e.type.startswith("timer."))


async def test_fifty_callers_by_name_over_two_replicas_get_one_timer(storm, space, database_url, timers):
    calls = [timers.named("nightly", HOUR + i) for i in range(50)]
    answers = [ok(a) for a in await storm(calls)]
    assert len({a["id"] for a in answers}) == 1
    assert len({a["fireAt"] for a in answers}) == 1
    assert told(database_url, space) == {"timer.created": 1}


async def test_fifty_who_meet_a_due_timer_fire_it_once_and_are_told_the_same(
    api, storm, space, database_url, timers, clock
):
    timer = ok(timers.named("a", HOUR).send(api))["id"]
    clock.shift(HOUR)
    calls = [look(timer), timers.named("a", HOUR), timers.poll()] * 17
    answers = [ok(a) for a in await storm(calls)]
    seen = {a["firedAt"] for a in answers if "firedAt" in a}
    seen |= {t["firedAt"] for a in answers for t in a.get("timers", [])}
    assert len(seen) == 1
    tokens = {a["token"] for a in answers if "token" in a} | {
        t["token"] for a in answers for t in a.get("timers", [])
    }
    assert len(tokens) == 1
    assert told(database_url, space) == {"timer.created": 1, "timer.fired": 1}


async def test_of_many_acknowledgements_one_is_the_change(api, storm, space, database_url, timers):
    timer, token = timers.fired(api)
    answers = await storm([ack(timer, token)] * 30)
    assert {ok(a)["state"] for a in answers} == {"ACKED"}
    assert told(database_url, space) == {"timer.created": 1, "timer.fired": 1, "timer.acked": 1}


async def test_a_cancel_and_the_time_at_the_same_instant_have_one_outcome(
    api, storm, space, database_url, timers
):
    ids = [ok(timers.create(0.15).send(api))["id"] for _ in range(30)]
    calls = [call for timer in ids for call in (cancel(timer), look(timer, 5000))]
    answers = await storm(calls)
    fired = cancelled = 0
    for timer, cancelling, looking in zip(ids, answers[0::2], answers[1::2], strict=True):
        final = ok(await asyncio.to_thread(look(timer, 5000).send, api))["state"]
        assert ok(looking)["state"] == final
        if cancelling.is_success:
            cancelled += 1
            assert final == "CANCELLED"
        else:
            fired += 1
            refused(cancelling, "CONFLICT")
            assert final == "FIRED"
    counts = told(database_url, space)
    assert (counts["timer.fired"], counts["timer.cancelled"]) == (fired, cancelled)


async def test_a_timer_whose_time_comes_while_its_cancel_waits_for_it_fires(api, database_url, timers, clock):
    """The clock is read after the lock: what the call knew when it began to wait counts for nothing."""
    timer = timers.pending(api)
    async with races.holding(database_url, ROW, timer) as holder:
        late = asyncio.create_task(asyncio.to_thread(cancel(timer).send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        clock.shift(HOUR + 1)
    refused(await late, "CONFLICT")
    assert ok(look(timer).send(api))["state"] == "FIRED"


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_the_end_of_a_run_and_the_time_of_its_timers_at_once_leave_one_outcome_each(
    api, both_apis, space, database_url, how
):
    body = {"deadline": in_seconds(api, 0.4)} if how == "deadline" else {}
    run = Timers(scope(api, **body))
    ids = [ok(run.create(0.3 + i / 100).send(api))["id"] for i in range(20)]
    looks = [look(timer, 5000).send(both_apis[i % 2]) for i, timer in enumerate(ids)]
    ending = [end(run.scope).send(both_apis[0])] if how == "cancel" else []
    answers = [ok(a) for a in await asyncio.gather(*looks, *ending)]
    states = Counter(a["state"] for a in answers[:20])
    assert states.keys() <= {"FIRED", "CANCELLED" if how == "cancel" else "EXPIRED"}
    for timer, answer in zip(ids, answers, strict=False):
        assert ok(await look(timer).send(both_apis[1]))["state"] == answer["state"]

    def written():
        counts = told(database_url, space)
        return counts["timer.fired"] + counts["timer.cancelled"] == 20

    races.until_blocking(written, what="the ends of all timers")
    assert told(database_url, space)["timer.fired"] == states["FIRED"]


async def test_a_read_waits_for_nobody_who_is_just_ending_the_run(
    api, database_url, space, timers, clock, kernel_schema
):
    timer = timers.pending(api)
    clock.shift(HOUR + 1)
    async with races.holding(database_url, GATE.format(schema=kernel_schema), space.id, timers.scope):
        seen = ok(await asyncio.to_thread(look(timer).send, api))
        assert seen["state"] == "PENDING"
    assert ok(await asyncio.to_thread(look(timer, 5000).send, api))["state"] == "FIRED"


async def test_a_sweep_passes_over_what_another_has_in_hand(api, database_url, timers, clock, kernel_schema):
    first, second = timers.pending(api), timers.pending(api)
    sweep = f"SELECT count FROM {kernel_schema}.timer_sweep(100)"
    async with races.holding(database_url, ROW, first):
        clock.shift(HOUR + 1)
        await asyncio.to_thread(database.fetchval, database_url, sweep)
        state = "SELECT state FROM runstate.timers WHERE id = $1::text::uuid"
        assert await asyncio.to_thread(database.fetchval, database_url, state, first) == "PENDING"

        async def fired():  # by this sweep, or by the server's own at the same moment
            return await asyncio.to_thread(database.fetchval, database_url, state, second) == "FIRED"

        await races.until(fired, what="the other timer")
