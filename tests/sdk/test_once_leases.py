import asyncio
import re
import threading
import time

import httpx
import pytest

import runstate
from runstate import LeaseLostError, StoppedError
from tests.sdk.callers import Ran, cut_off_owner, in_thread
from tests.support import spaces
from tests.support.processes import Replica
from tests.support.proxy import RoundRobin


@pytest.mark.parametrize("kind", ["blocks its loop", "holds the cpu"])
def test_a_function_keeps_its_lease_for_three_lease_times(here, kind):
    ran, entered = Ran(), threading.Event()

    async def blocking():
        ran()
        entered.set()
        time.sleep(3.2)  # noqa: ASYNC251 - what it is about
        return "first"

    async def busy():
        ran()
        entered.set()
        until = time.monotonic() + 3.2
        while time.monotonic() < until:
            sum(range(100))
        return "first"

    def other():
        ran()
        return "second"

    function = blocking if kind == "blocks its loop" else busy
    inside = in_thread(lambda: asyncio.run(here.run().once(name="work", lease=1)(function)()))
    assert entered.wait(30)
    assert here.run().once(name="work", lease=1)(other)() == "first"
    inside.join(30)
    assert inside.outcome == "first"
    assert len(ran) == 1


@pytest.mark.parametrize("cut", ["blackhole", "sever"])
def test_a_lost_lease_sets_the_signal_and_raises_and_the_second_result_stands(here, cut):
    inside, seen = threading.Event(), []

    def slow():
        signal = runstate.context().signal
        inside.set()
        seen.append(signal.wait(30))
        seen.append(signal.reason)
        return "first"

    with cut_off_owner(here, slow) as (wire, owner):
        assert inside.wait(30)
        if cut == "blackhole":
            wire.blackhole(True)
        else:
            wire.backends = []
            wire.sever()
        assert here.run().once(name="work", lease=1)(lambda: "second")() == "second"
        owner.join(60)
    assert seen[0] is True
    assert isinstance(seen[1], LeaseLostError)
    assert isinstance(owner.outcome, LeaseLostError)
    assert here.run().once(name="work")(lambda: "third")() == "second"


def test_an_exception_after_the_lease_was_lost_is_not_a_failure_of_the_work(here):
    inside = threading.Event()

    def slow():
        inside.set()
        runstate.context().signal.wait(30)
        raise RuntimeError("stopping")

    with cut_off_owner(here, slow) as (wire, owner):
        assert inside.wait(30)
        wire.blackhole(True)
        attempt = here.run().once(name="work", lease=1)(lambda: runstate.context().attempt)()
        owner.join(60)
    assert attempt == 1
    assert isinstance(owner.outcome, LeaseLostError)
    assert isinstance(owner.outcome.__cause__, RuntimeError)


def test_raise_if_set_raises_the_reason_itself(here):
    inside = threading.Event()

    def slow():
        inside.set()
        signal = runstate.context().signal
        signal.wait(30)
        signal.raise_if_set()

    with cut_off_owner(here, slow) as (wire, owner):
        assert inside.wait(30)
        wire.blackhole(True)
        owner.join(60)
    assert isinstance(owner.outcome, LeaseLostError)
    assert owner.outcome.__cause__ is None


def test_a_completion_whose_reply_is_lost_is_repeated_and_counts(here):
    release = threading.Event()
    inside = threading.Event()

    def work():
        inside.set()
        release.wait(30)
        return "done"

    with cut_off_owner(here, work) as (wire, owner):
        assert inside.wait(30)
        wire.drop_reply(b"/once/complete")
        release.set()
        owner.join(60)
        assert wire.dropped.is_set()
    assert owner.outcome == "done"
    assert here.run().once(name="work")(lambda: "other")() == "done"


def test_an_acquire_whose_reply_is_lost_is_repeated_and_gets_the_lease(here):
    port = int(here.url.rpartition(":")[2])
    with RoundRobin([port]) as wire:
        run = here.run(base_url=wire.url)
        run.run_id()
        wire.drop_reply(b"/once/acquire")
        started = time.monotonic()
        assert run.once(name="work", lease=30)(lambda: runstate.context().attempt)() == 1
        assert wire.dropped.is_set()
        assert time.monotonic() - started < 20  # it did not wait for its own lost lease to lapse


@pytest.mark.processes
def test_callers_wait_out_a_server_that_restarts(here, fresh_database, caplog):
    space = spaces.create(fresh_database)
    replica = Replica(fresh_database)
    inside, release = threading.Event(), threading.Event()

    def hold():
        inside.set()
        assert release.wait(60)
        return "done"

    with replica:
        place = {"base_url": replica.url, "space_id": space.id, "api_key": space.key}
        owner = in_thread(here.run(**place).once(name="work", lease=60)(hold))
        assert inside.wait(30)
        waiter = in_thread(here.run(**place).once(name="work", lease=60)(lambda: "other"))
        newcomer_run = here.run(**place)
        replica.kill()
        newcomer = in_thread(newcomer_run.once(name="work", lease=60)(lambda: "other"))
        release.set()
        while "server is away" not in caplog.text:
            time.sleep(0.05)
        replica.start()
        for thread in (owner, waiter, newcomer):
            thread.join(60)
            assert thread.outcome == "done"


def until_polling(here, count):
    """Waits until the server holds at least so many long polls."""
    until = time.monotonic() + 30
    while True:
        found = re.search(r"(?m)^runstate_open_polls (\S+)", httpx.get(f"{here.url}/metrics").text)
        if float(found[1]) >= count:
            return
        assert time.monotonic() < until


@pytest.mark.parametrize("end", ["stop", "finish"])
def test_ending_the_run_wakes_waiters_sets_signals_and_refuses_completions(here, end):
    inside, seen = threading.Event(), []

    def hold():
        inside.set()
        signal = runstate.context().signal
        seen.append(signal.wait(60))
        seen.append(signal.reason)
        return "too late"

    owner_run = here.run()
    scope_id = owner_run.run_id()
    owner = in_thread(owner_run.once(name="work")(hold))
    assert inside.wait(30)
    waiters = [in_thread(here.run().once(name="work")(lambda: "other")) for _ in range(3)]
    with runstate.Runstate(**here.settings) as rs:
        until_polling(here, 3)
        started = time.monotonic()
        rs.scope(scope_id).cancel() if end == "stop" else rs.scope(scope_id).complete()
    for thread in (owner, *waiters):
        thread.join(30)
        assert isinstance(thread.outcome, StoppedError)
    assert time.monotonic() - started < 8  # woken: the next renewal is 10 s away
    assert seen[0] is True
    assert isinstance(seen[1], StoppedError)
    with pytest.raises(StoppedError):
        owner_run.run_id()
    assert here.run().once(name="work")(lambda: "fresh")() == "fresh"


def test_stopping_its_own_run_sets_the_signal_at_once_and_records_nothing(here):
    @runstate.once
    def work():
        runstate.stop()
        assert runstate.context().signal.is_set()
        return "too late"

    with pytest.raises(StoppedError):
        work()
    with pytest.raises(StoppedError):
        work()
    runstate.configure()
    assert runstate.once(name="work")(lambda: "fresh")() == "fresh"


def test_an_async_function_can_await_the_signal(here):
    async def hold():
        signal = runstate.context().signal
        inside.set()
        return [await signal.wait(60), await signal.wait()]

    inside = threading.Event()
    run = here.run()
    owner = in_thread(lambda: asyncio.run(run.once(name="work")(hold)()))
    assert inside.wait(30)
    run.stop()
    owner.join(30)
    assert isinstance(owner.outcome, StoppedError)


def test_a_result_belongs_to_its_run(here):
    ran = Ran()
    for name in ("one", "two", "one"):
        runstate.run(name).once(name="work")(ran)()
    assert len(ran) == 2
    child = runstate.run("one").child()
    child.once(name="work")(ran)()
    assert len(ran) == 3
