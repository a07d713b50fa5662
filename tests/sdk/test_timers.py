import asyncio
import time
from datetime import datetime, timedelta, timezone

import pytest

import runstate
from runstate import (
    AsyncRunstate,
    ConfigError,
    ConflictError,
    NotFoundError,
    Runstate,
    RunstateError,
    ScopeCancelledError,
    WaitTimeoutError,
)
from tests.sdk.callers import in_thread
from tests.support.proxy import RoundRobin


def now():
    """The test's server and database are on this machine, and so is their clock."""
    return datetime.now(timezone.utc)


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


@pytest.fixture
async def scope(rs):
    return await rs.scopes.create()


async def test_a_timer_is_waited_for_and_acknowledged(here, rs, scope):
    timer = await scope.timers.create(after_seconds=0.3)
    assert (timer.scope_id, timer.fire_at.utcoffset()) == (scope.id, timedelta(0))
    told = await timer.wait()
    assert told.keys() == {"fired_at"}
    assert told["fired_at"] >= timer.fire_at
    assert await timer.wait(timeout_ms=0) == told
    [acked] = [e async for e in first(rs, scope, "timer.acked")]
    assert acked["aggregate"] == {"type": "timer", "id": timer.id}
    with pytest.raises(ConflictError):
        await timer.cancel()


async def first(rs, scope, kind):
    async for event in rs.events.watch(types=[kind], scope_id=scope.id, cursor=None):
        yield event
        return


async def test_a_timer_by_its_id_alone_has_no_time(scope):
    timer = await scope.timers.create(at="2001-01-01T00:00:00Z")
    again = scope.timers.get(timer.id)
    assert (again.id, again.scope_id, again.fire_at) == (timer.id, scope.id, None)
    assert (await again.wait())["fired_at"] > timer.fire_at
    with pytest.raises(NotFoundError):
        await scope.timers.get(scope.id).wait()


async def test_an_instant_is_text_or_a_datetime_and_one_time_is_given(scope):
    at = now().replace(microsecond=0) + timedelta(hours=1)
    for given in (at, at.isoformat(), at.astimezone(tz=None)):
        timer = await scope.timers.create(at=given)
        assert timer.fire_at == at
    for wrong in ({}, {"after_seconds": 1, "at": at}, {"at": datetime(2999, 1, 1)}):  # noqa: DTZ001
        with pytest.raises(ConfigError):
            await scope.timers.create(**wrong)
    for far in ({"after_seconds": 367 * 86_400}, {"at": at + timedelta(days=367)}, {"at": "soon"}):
        with pytest.raises(RunstateError) as caught:
            await scope.timers.create(**far)
        assert caught.value.code == "VALIDATION_FAILED"


async def test_a_wait_that_runs_out_leaves_the_timer_as_it_is(scope):
    timer = await scope.timers.create(after_seconds=3600)
    with pytest.raises(WaitTimeoutError, match=timer.id):
        await timer.wait(timeout_ms=200)
    assert (await timer.cancel())["state"] == "CANCELLED"
    assert (await timer.cancel())["state"] == "CANCELLED"
    with pytest.raises(ConflictError, match="cancelled"):
        await timer.wait()


async def test_the_end_of_the_scope_ends_the_wait(rs, scope):
    timer = await scope.timers.create(after_seconds=3600)
    waiting = asyncio.ensure_future(timer.wait())
    await asyncio.sleep(0.1)
    await scope.cancel()
    with pytest.raises(ScopeCancelledError, match=timer.id):
        await asyncio.wait_for(waiting, 15)
    with pytest.raises(ScopeCancelledError):
        await scope.timers.create(after_seconds=1)


async def test_a_deadline_that_comes_first_ends_the_wait(rs):
    scope = await rs.scopes.create(deadline=(now() + timedelta(seconds=1)).isoformat())
    timer = await scope.timers.create(after_seconds=3600)
    with pytest.raises(ConflictError) as caught:
        await asyncio.wait_for(timer.wait(), 15)
    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_what_had_fired_when_the_scope_ended_has_fired(scope):
    timer = await scope.timers.create(after_seconds=0)
    await scope.complete()
    assert (await timer.wait())["fired_at"] >= timer.fire_at


def test_the_blocking_face(here):
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()
        timer = scope.timers.create(after_seconds=0.2)
        assert isinstance(timer.fire_at, datetime)
        assert timer.wait()["fired_at"] >= timer.fire_at
        assert scope.timers.get(timer.id).wait(timeout_ms=10)["fired_at"] >= timer.fire_at


# ------------------------------------------------------------------------------ sleep


def slept_s(call):
    started = time.monotonic()
    assert call() is None
    return time.monotonic() - started


def test_sleep_takes_its_time_once_and_later_calls_of_the_name_return_at_once(here):
    assert slept_s(lambda: runstate.sleep("nap", "700ms")) >= 0.7
    assert slept_s(lambda: runstate.sleep("nap", "1h")) < 10
    assert slept_s(lambda: here.run().sleep("nap", 3600)) < 10  # another process
    assert slept_s(lambda: here.run("other").sleep("nap", 0.5)) >= 0.5  # another run


def test_whoever_calls_sleeps_for_what_is_left_of_the_first_one_s_time(here):
    first = in_thread(lambda: slept_s(lambda: runstate.sleep("nap", 2)))
    time.sleep(0.5)
    assert slept_s(lambda: here.run().sleep("nap", "1d")) < 20
    first.join(20)
    assert first.outcome >= 2


def test_until_an_instant(here):
    at = now() + timedelta(seconds=1)
    runstate.sleep("a", until=at)
    assert now() >= at
    runstate.sleep("b", until="2001-01-01T00:00:00Z")
    asyncio.run(runstate.asleep("c", until=now().isoformat()))


def test_the_async_twin_can_be_cancelled_and_leaves_its_time(here):
    async def interrupted():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(runstate.asleep("nap", 1.5), 0.3)

    started = time.monotonic()
    asyncio.run(interrupted())
    asyncio.run(runstate.asleep("nap", "1h"))
    assert time.monotonic() - started >= 1.5


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("", {"duration": 1}),
        ("a", {}),
        ("a", {"duration": 1, "until": "2001-01-01T00:00:00Z"}),
        ("a", {"duration": "soon"}),
        ("a", {"duration": -1}),
        ("a", {"until": 5}),
        ("a", {"until": datetime(2999, 1, 1)}),  # noqa: DTZ001
    ],
)
def test_what_cannot_be_slept_is_refused_before_the_server_is_asked(monkeypatch, name, given):
    monkeypatch.delenv("RUNSTATE_API_KEY", raising=False)
    with pytest.raises(ConfigError) as caught:
        runstate.sleep(name, **given)
    assert "API_KEY" not in str(caught.value)


@pytest.mark.parametrize("how", ["stop", "finish", "deadline"])
def test_the_end_of_the_run_wakes_the_sleeper(here, how):
    deadline = now() + timedelta(seconds=2) if how == "deadline" else None
    runs = runstate.run("r", deadline=deadline), here.run("r")
    assert runs[0].run_id() == runs[1].run_id()
    sleeper = in_thread(lambda: runs[0].sleep("long", "1d"))
    if how != "deadline":
        time.sleep(0.3)
        getattr(runs[1], how)()
    sleeper.join(20)
    assert isinstance(sleeper.outcome, runstate.StoppedError)
    with pytest.raises(runstate.StoppedError):
        runs[0].sleep("another", 0)


def test_a_timer_that_somebody_cancelled_is_told(here):
    sleeper = in_thread(lambda: runstate.sleep("long", "1d"))
    with Runstate(**here.settings) as rs:
        timers = []
        while not timers:
            timers = rs.diagnostics.run(runstate.run_id())["timers"]
        assert timers[0]["name"] == "long"
        rs.scope(runstate.run_id()).timers.get(timers[0]["id"]).cancel()
    sleeper.join(20)
    assert isinstance(sleeper.outcome, ConflictError)
    assert "long" in str(sleeper.outcome)


def test_a_sleep_ends_though_the_reply_that_it_is_over_was_lost(here):
    with RoundRobin([int(here.url.rpartition(":")[2])]) as wire:
        sleeper = in_thread(lambda: slept_s(lambda: here.run(base_url=wire.url).sleep("nap", 1)))
        time.sleep(0.4)
        wire.blackhole(True)
        time.sleep(1)
        wire.blackhole(False)
        sleeper.join(60)
    assert sleeper.outcome >= 1
    assert slept_s(lambda: runstate.sleep("nap", 3600)) < 10
