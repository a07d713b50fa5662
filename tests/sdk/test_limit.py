import asyncio
import threading
import time
from collections import Counter

import pytest

import runstate
from runstate import ConfigError, ConflictError, NotFoundError, Runstate, StoppedError, WaitTimeoutError
from tests.sdk.callers import in_thread, together
from tests.sdk.workers import working

UNITS = 5


@pytest.fixture
def view(here):
    """What the server says of a quota."""
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()
        yield lambda name="search": scope.quota(name).status()


def test_a_plain_function_is_called_once_units_have_been_taken(here, view):
    @runstate.limit("search", max=UNITS, per="day", units=2)
    def search(words, *, page=1):
        """Searches."""
        return [words, page, view()["consumed"], runstate.context()]

    assert (search.__name__, search.__doc__) == ("search", "Searches.")
    assert search("a", page=2) == ["a", 2, 2, None]
    assert search("b") == ["b", 1, 4, None]


async def test_an_async_function(here, view):
    @runstate.limit("search", max=UNITS, per="day")
    async def search():
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await search()
    assert (await asyncio.to_thread(view))["consumed"] == 1  # not given back


def test_no_window_lets_more_than_its_units_through(here, view):
    taken_in, lock = Counter(), threading.Lock()
    with Runstate(**here.settings) as rs:
        rs.quotas.ensure("search", units_per_window=UNITS, window_seconds=1)

    def one():
        consumption = runstate.take("search")
        with lock:
            taken_in[consumption["consumptionId"]] += 1

    started = time.monotonic()
    assert together(4 * UNITS, one) == [None] * (4 * UNITS)
    # Of three windows' turns the first may have come at once.
    assert time.monotonic() - started > 2
    assert len(taken_in) == 4 * UNITS
    assert view()["waiting"] == 0


def test_take_and_its_async_twin(here):
    runstate.setup(limits={"search": {"max": UNITS, "per": "day"}})
    assert runstate.take("search", units=2)["units"] == 2
    assert asyncio.run(runstate.atake("search", 3))["units"] == 3
    with pytest.raises(WaitTimeoutError, match="search"):
        runstate.take("search", timeout="200ms")
    with pytest.raises(NotFoundError):
        runstate.take("missing")


def test_a_function_for_which_there_were_no_units_is_not_called(here, view):
    called = []
    limit = runstate.limit("search", max=1, per="day", timeout=0.2)
    limit(called.append)(1)
    with pytest.raises(WaitTimeoutError):
        limit(called.append)(2)
    assert called == [1]
    assert view()["waiting"] == 0


def test_sizes_in_the_code_create_or_check_and_both_are_named(here):
    runstate.limit("search", max=UNITS, per="minute")(sorted)("a")
    with pytest.raises(ConflictError, match=r"5 .*6"):
        runstate.limit("search", max=6, per="minute")(repr)("a")
    with pytest.raises(ConflictError, match=r"60 .*3600"):
        runstate.limit("search", max=UNITS, per="hour")(repr)("a")
    with pytest.raises(ConflictError):
        runstate.setup(limits={"search": {"max": 6, "per": "minute"}})
    with pytest.raises(NotFoundError):
        runstate.limit("missing")(print)()


@pytest.mark.parametrize(
    "options",
    [
        {"max": 5},
        {"per": "minute"},
        {"max": 0, "per": "minute"},
        {"max": 1.5, "per": "minute"},
        {"max": 5, "per": "week"},
        {"max": 5, "per": 0},
        {"max": 5, "per": "minute", "units": 6},
        {"units": 0},
        {"timeout": "soon"},
        {"name": ""},
    ],
)
def test_options_that_cannot_be_used_are_refused_where_they_stand(options):
    with pytest.raises(ConfigError):
        runstate.limit(**{"name": "search", **options})


def test_waiting_ends_with_the_run(here, view):
    run = here.run("short")
    limit = run.limit("search", max=1, per="day")
    limit(repr)("a")
    waiting = in_thread(lambda: limit(repr)("b"))
    while view()["waiting"] != 1:
        time.sleep(0.02)
    here.run("short").stop()
    waiting.join(30)
    assert isinstance(waiting.outcome, StoppedError)
    assert view()["waiting"] == 0


def test_a_job_s_context_reaches_the_function_inside(here):
    run = here.run()

    @run.limit("search", max=UNITS, per="day")
    def search(words):
        return [words, runstate.context().key]

    @run.queue("find", key=lambda words: words)
    def job(words):
        return search(words)

    with working(run):
        assert job("a") == ["a", "find:a"]
