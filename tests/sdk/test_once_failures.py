import asyncio
import threading
import time

import pytest

import runstate
from runstate import ConfigError, OnceFailedError, ResultTooLargeError
from tests.sdk.callers import Company, in_thread, outcome, together


def test_an_exception_goes_to_its_caller_and_the_next_one_tries_again(here):
    attempts = []

    @runstate.once(attempts=3)
    def work():
        attempts.append(runstate.context().attempt)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "done"

    for _ in range(2):
        with pytest.raises(ValueError, match="not yet") as caught:
            work()
        assert caught.value.__cause__ is None
    assert work() == "done"
    assert attempts == [1, 2, 3]
    assert work() == "done"
    assert len(attempts) == 3


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_the_last_failure_is_final_for_everybody_and_chained_for_its_caller(here, kind):
    def work():
        raise ValueError("boom")

    async def awork():
        raise ValueError("boom")

    decorated = runstate.once(name="work", attempts=2)(work if kind == "plain" else awork)

    def call():
        return decorated() if kind == "plain" else asyncio.run(decorated())

    with pytest.raises(ValueError, match="boom"):
        call()
    with pytest.raises(OnceFailedError) as caught:
        call()
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.attempts, str(caught.value)) == (2, "ValueError: boom")
    with pytest.raises(OnceFailedError) as caught:
        call()
    assert caught.value.__cause__ is None
    assert (caught.value.attempts, str(caught.value)) == (2, "ValueError: boom")


def test_waiters_take_over_after_a_failure_until_the_attempts_are_used_up(here):
    calls = []

    @runstate.once(attempts=3)
    def work():
        calls.append(1)
        time.sleep(0.05)
        raise RuntimeError("always")

    outcomes = together(10, work)
    assert len(calls) == 3
    assert sum(type(outcome) is RuntimeError for outcome in outcomes) == 2
    assert sum(type(outcome) is OnceFailedError for outcome in outcomes) == 8


def test_the_recorded_error_is_cut_and_never_refused_for_its_content(here):
    class SilentError(Exception):
        def __str__(self):
            raise RuntimeError

    for index, (error, text) in enumerate(
        [
            (ValueError("x" * 3000), "ValueError: " + "x" * 1988),
            (ValueError("a\0b\ud800"), "ValueError: a\ufffdb?"),
            (KeyError(), "KeyError"),
            (SilentError(), "SilentError: (no message)"),
        ]
    ):

        def work(error=error):
            raise error

        decorated = runstate.once(name=f"work-{index}", key=str, attempts=1)(lambda _, work=work: work())
        outcome(lambda decorated=decorated: decorated(1))
        with pytest.raises(OnceFailedError) as caught:
            decorated(1)
        assert str(caught.value) == text


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (object(), ConfigError),
        ({1: 2}, ConfigError),
        (float("nan"), ConfigError),
        ("\ud800", ConfigError),
        (Company("acme"), ConfigError),
        ("x" * 65_535, ResultTooLargeError),
    ],
    ids=["object", "int-key", "nan", "surrogate", "dataclass", "64K"],
)
def test_a_result_that_cannot_be_recorded_counts_as_a_failure(here, result, kind):
    @runstate.once(attempts=2)
    def work():
        return result

    with pytest.raises(kind):
        work()
    with pytest.raises(OnceFailedError) as caught:
        work()
    assert type(caught.value.__cause__) is kind
    assert caught.value.attempts == 2


def test_a_result_of_exactly_64_kib_is_recorded(here):
    @runstate.once
    def work():
        return "é" * 32_767

    assert work() == work() == "é" * 32_767


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interruption_records_nothing_and_opens_the_key_when_the_lease_lapses(here, interrupt):
    attempts = []

    @runstate.once(lease=1)
    def work():
        attempts.append(runstate.context().attempt)
        if len(attempts) == 1:
            raise interrupt
        return "done"

    with pytest.raises(interrupt):
        work()
    assert work() == "done"
    assert attempts == [1, 1]


def test_a_cancelled_caller_records_nothing_and_opens_the_key_when_the_lease_lapses(here):
    attempts = []

    @runstate.once(lease=1)
    async def work():
        attempts.append(runstate.context().attempt)
        if len(attempts) == 1:
            await asyncio.sleep(60)
        return "done"

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(work(), 0.3)
        return await work()

    assert asyncio.run(main()) == "done"
    assert attempts == [1, 1]


def test_a_waiting_caller_can_be_cancelled(here):
    inside, release = threading.Event(), threading.Event()

    def hold():
        inside.set()
        assert release.wait(30)
        return "done"

    async def never():
        raise AssertionError

    owner = in_thread(here.run().once(name="work")(hold))
    assert inside.wait(30)
    waiter = runstate.once(name="work")(never)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiter(), 0.3)

    asyncio.run(main())
    release.set()
    owner.join(30)
    assert owner.outcome == "done"
    assert asyncio.run(waiter()) == "done"
