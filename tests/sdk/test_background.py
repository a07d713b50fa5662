import asyncio
import threading

import pytest

from runstate import ConfigError, UnavailableError
from runstate._background import BackgroundLoop


@pytest.fixture
def background():
    loop = BackgroundLoop("test loop")
    yield loop
    loop.stop()


async def value():
    return 7


async def never():
    await asyncio.Event().wait()


def test_results_and_errors_cross_threads(background):
    async def broken():
        raise KeyError("k")

    assert background.run(value()) == 7
    with pytest.raises(KeyError):
        background.run(broken())


def test_it_runs_while_a_loop_runs_in_the_calling_thread(background):
    async def main():
        return background.run(value()), await background.arun(value())

    assert asyncio.run(main()) == (7, 7)


def test_many_threads_may_start_it_at_once(background):
    results = []
    threads = [threading.Thread(target=lambda: results.append(background.run(value()))) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [7] * 30
    assert sum(thread.name == "test loop" for thread in threading.enumerate()) == 1


def test_calling_it_from_its_own_loop_is_a_clear_error_not_a_hang(background):
    async def inside():
        background.run(value())

    with pytest.raises(ConfigError, match="own event loop"):
        background.run(inside())


def test_cancelling_the_wait_cancels_the_work(background):
    started, cancelled = threading.Event(), threading.Event()

    async def work():
        started.set()
        try:
            await never()
        finally:
            cancelled.set()

    async def main():
        waiting = asyncio.create_task(background.arun(work()))
        await asyncio.to_thread(started.wait, 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert cancelled.wait(30)


def test_closing_it_ends_calls_under_way_and_refuses_later_ones(background):
    errors = []
    started = threading.Event()

    async def work():
        started.set()
        await never()

    def call():
        try:
            background.run(work())
        except UnavailableError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert started.wait(30)
    background.stop()
    thread.join(30)
    assert len(errors) == 1
    with pytest.raises(ConfigError, match="closed"):
        background.run(value())
    background.stop()
