import asyncio
import signal
import threading

import pytest

from runstate import ThreadSafeEvent
from runstate._flags import until_set
from runstate.run import Signal
from tests.sdk.workers import Call


def test_a_thread_that_waits_is_woken_by_another():
    flag = ThreadSafeEvent()
    waits = [Call(lambda: flag.wait(30)) for _ in range(3)]
    assert flag.wait(0) is flag.wait(0.01) is flag.is_set() is False
    flag.set()
    flag.set()
    assert [wait.outcome for wait in waits] == [True] * 3
    assert flag.wait() is flag.is_set() is True
    flag.clear()
    assert flag.wait(0) is False


def test_a_signal_handler_may_set_it_while_the_main_thread_waits():
    flag = ThreadSafeEvent()
    before = signal.signal(signal.SIGALRM, lambda *_: flag.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert flag.wait(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", [ThreadSafeEvent, threading.Event, asyncio.Event])
def test_a_loop_that_waits_is_woken_by_a_thread(kind):
    async def main():
        flag = kind()
        waiting = asyncio.ensure_future(until_set(flag, own_loop=kind is not asyncio.Event))
        await asyncio.sleep(0)
        await asyncio.to_thread(flag.set)
        await asyncio.wait_for(waiting, 10)

    asyncio.run(main())


def test_an_event_of_the_own_loop_and_the_signal_of_a_run_are_flags_too():
    async def main():
        event, stopped = asyncio.Event(), Signal()
        waits = [asyncio.ensure_future(until_set(flag, own_loop=True)) for flag in (event, stopped)]
        await asyncio.sleep(0)
        event.set()
        stopped.set(RuntimeError("over"))
        await asyncio.wait_for(asyncio.gather(*waits), 10)

    asyncio.run(main())


def test_a_wait_that_is_given_up_leaves_nothing_behind():
    async def main():
        waiting = asyncio.ensure_future(until_set(flag, own_loop=True))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})

    flag = ThreadSafeEvent()
    asyncio.run(main())
    assert flag._wakers == []
    flag.set()
