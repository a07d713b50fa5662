import asyncio
import os
import threading
import time

import pytest
import uvloop

import runstate
from runstate import (
    ConfigError,
    ConflictError,
    LeaseLostError,
    NotFoundError,
    PoolLease,
    Runstate,
    StoppedError,
    WaitTimeoutError,
)
from tests.sdk.callers import in_thread, together
from tests.sdk.workers import working
from tests.support.proxy import RoundRobin


class Counter:
    """How many are inside at once, as the test itself counts."""

    def __init__(self):
        self.now = self.most = self.count = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.count += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_):
        with self._lock:
            self.now -= 1


@pytest.fixture
def counts(here):
    """What the server says of a pool: units used, waiters."""
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()

        def look(name="browser"):
            view = scope.pool(name).status()
            return view["unitsUsed"], view["waiting"]

        yield look


def test_a_plain_function_runs_while_units_are_held(here, counts):
    @runstate.slots("browser", max=3, units=2)
    def render(url, *, retries=1):
        """Renders."""
        return [url, retries, counts(), runstate.context()]

    assert (render.__name__, render.__doc__) == ("render", "Renders.")
    assert render("a", retries=2) == ["a", 2, (2, 0), None]
    assert counts() == (0, 0)


def test_what_the_function_raises_comes_through_and_gives_back(here, counts):
    @runstate.slots("browser", max=1)
    def fail():
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            fail()
    assert counts() == (0, 0)


async def test_an_async_function_and_both_kinds_of_block(here, counts):
    browsers = runstate.slots("browser", max=3)

    @browsers
    async def render(url):
        await asyncio.sleep(0)
        return [url, await asyncio.to_thread(counts)]

    async with browsers as lease:
        assert isinstance(lease, PoolLease)
        assert await render("a") == ["a", (2, 0)]
        async with browsers:
            assert (await asyncio.to_thread(counts))[0] == 2
        with browsers as other:
            assert not other.is_lost
            other.raise_if_lost()
    assert await asyncio.to_thread(counts) == (0, 0)
    assert await asyncio.gather(*[render(str(i)) for i in range(9)])
    assert await asyncio.to_thread(counts) == (0, 0)


def test_blocks_of_both_kinds_under_uvloop_and_in_a_loop_that_runs(here, counts):
    async def main():
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        with runstate.slots("browser", max=2):  # as a cell of a notebook would
            async with runstate.slots("browser"):
                return await asyncio.to_thread(counts)

    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(main()) == (2, 0)
    finally:
        loop.close()
    assert counts() == (0, 0)


def test_twenty_threads_share_three(here, counts):
    inside = Counter()

    @runstate.slots("browser", max=3)
    def render():
        with inside:
            time.sleep(0.02)

    assert together(20, render) == [None] * 20
    assert (inside.count, inside.now) == (20, 0)
    assert inside.most == 3
    assert counts() == (0, 0)


def test_sizes_in_the_code_create_or_check_and_both_are_named(here):
    with runstate.slots("browser", max=3):
        pass
    for slots in (
        here.run().slots("browser", max=3),
        here.run().slots("browser"),
        runstate.slots("browser", 3),
    ):
        with slots:
            pass
    with pytest.raises(ConflictError, match=r"3 .*5"), runstate.slots("browser", max=5):
        pass
    with pytest.raises(NotFoundError), runstate.slots("missing"):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"max": 0},
        {"max": 1.5},
        {"max": True},
        {"units": 0},
        {"units": -1},
        {"max": 3, "units": 4},
        {"timeout": "soon"},
        {"timeout": -1},
        {"lease": 0.5},
        {"lease": "2h"},
        {"name": ""},
    ],
)
def test_options_that_cannot_be_used_are_refused_where_they_stand(options):
    with pytest.raises(ConfigError):
        runstate.slots(**{"name": "browser", **options})


def test_what_is_no_function_and_generators_are_refused():
    def generator():
        yield

    for wrong in (generator, 3, int):
        with pytest.raises(ConfigError):
            runstate.slots("browser")(wrong)


def test_a_wait_that_runs_out_leaves_the_line(here, counts):
    with runstate.slots("browser", max=1):
        for timeout in (0, "200ms"):
            with pytest.raises(WaitTimeoutError, match="browser"), runstate.slots("browser", timeout=timeout):
                pass
        assert counts() == (1, 0)


def test_a_wait_outlives_an_outage_and_keeps_its_place(here, counts):
    order = []
    with RoundRobin([int(here.url.rpartition(":")[2])]) as wire:

        def wait(run, number):
            with run.slots("browser", timeout=60):
                order.append(number)

        with runstate.slots("browser", max=1):
            waiting = [in_thread(lambda: wait(here.run(base_url=wire.url, retries=0), 1))]
            while counts() != (1, 1):
                time.sleep(0.02)
            backends, wire.backends = wire.backends, []
            wire.sever()
            waiting.append(in_thread(lambda: wait(here.run(), 2)))
            while counts() != (1, 2):
                time.sleep(0.02)
            wire.backends = backends
        for each in waiting:
            each.join(60)
    assert [each.outcome for each in waiting] == [None, None]
    assert order == [1, 2]
    assert counts() == (0, 0)


def test_waiting_ends_with_the_run(here, counts):
    run = here.run("short")
    with runstate.slots("browser", max=1):
        waiting = in_thread(run.slots("browser", max=1)(print))
        while counts() != (1, 1):
            time.sleep(0.02)
        here.run("short").stop()
        waiting.join(30)
        assert isinstance(waiting.outcome, StoppedError)
        assert counts() == (1, 0)
    with pytest.raises(StoppedError), run.slots("browser"):
        pass


def until_lost(lease):
    ends_at = time.monotonic() + 30
    while not lease.is_lost:
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def test_a_cut_wire_loses_the_units_and_that_is_raised_at_the_end(here, counts):
    seen = []
    with RoundRobin([int(here.url.rpartition(":")[2])]) as wire:
        run = here.run(base_url=wire.url)

        def cut_off():
            with run.slots("browser", max=1, lease=1) as lease:
                wire.blackhole(True)
                until_lost(lease)
                with runstate.slots("browser", timeout=30):
                    seen.append(counts())

        with pytest.raises(LeaseLostError):
            cut_off()
        wire.blackhole(False)
    assert seen == [(1, 0)]


def test_the_block_s_own_error_counts_more_than_the_loss(here):
    run = here.run("short")

    def fail(own_error):
        with run.slots("browser", max=1, lease=1) as lease:
            here.run("short").stop()
            until_lost(lease)
            if own_error is not None:
                raise own_error

    with pytest.raises(ValueError, match="mine"):
        fail(ValueError("mine"))
    run = here.run("short")
    with pytest.raises(StoppedError):
        fail(None)


def test_a_job_s_context_reaches_the_function_inside(here, counts):
    run = here.run()

    @run.slots("browser", max=1)
    def render(url):
        return [url, runstate.context().key, runstate.context().attempt, counts()[0]]

    @run.queue("render", key=lambda url: url)
    def job(url):
        return render(url)

    with working(run):
        assert job("a") == ["a", "render:a", 1, 1]
    assert counts() == (0, 0)


def test_blocks_are_left_in_any_order_by_any_thread_and_each_gives_back_one(here, counts):
    """As blocks in generators are, which are entered and left by whoever drives them."""
    browsers = runstate.slots("browser", max=6)

    def held():
        with browsers:
            yield

    entered = [held() for _ in range(4)]
    for each in entered[:2]:
        in_thread(lambda each=each: next(each)).join(30)
    for each in entered[2:]:
        next(each)
    assert counts() == (4, 0)
    entered[0].close()  # entered there, left here
    in_thread(entered[3].close).join(30)  # and the other way round
    assert counts() == (2, 0)
    entered[1].close()
    entered[2].close()
    assert counts() == (0, 0)


def test_the_child_of_a_fork_does_not_give_back_what_its_parent_holds(here, counts):
    browsers = runstate.slots("browser", max=2)
    with browsers:
        pid = os.fork()
        if pid == 0:  # leaves the block as well, and takes a unit of its own first
            status = 1
            try:
                with browsers:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert counts() == (1, 0)
    assert counts() == (0, 0)


async def test_whatever_the_instant_a_cancelled_block_leaves_nothing_behind(here, counts):
    browsers = runstate.slots("browser", max=1)

    async def one():
        async with browsers:
            await asyncio.sleep(0.01)

    for instant in range(30):
        tasks = [asyncio.ensure_future(one()) for _ in range(3)]
        await asyncio.sleep(instant / 1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ends_at = time.monotonic() + 15  # sooner than a waiter expires or a lease lapses by itself
    while await asyncio.to_thread(counts) != (0, 0):
        assert time.monotonic() < ends_at
        await asyncio.sleep(0.02)
