import asyncio
import threading

import pytest

import runstate
from runstate import BudgetExceededError, ConfigError, ConflictError, NotFoundError, Runstate, StoppedError
from tests.sdk.callers import together
from tests.sdk.workers import working
from tests.support.proxy import RoundRobin


@pytest.fixture
def books(here):
    """Reserved, settled, available and overrun of the budget, in minor units."""
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()

        def read(name="usd"):
            seen = scope.budget(name).status()
            return tuple(
                int(seen[f"{word}Minor"]) for word in ("reserved", "settled", "available", "overrun")
            )

        yield read


def test_the_reserve_is_held_meanwhile_and_the_cost_charged_after(here, books):
    seen = []

    @runstate.budget("usd", reserve="0.40", cost=lambda answer: answer["cost"], limit="5.00")
    def ask(question, *, model="small"):
        """Asks."""
        seen.append(books())
        return {"cost": 0.25, "question": question, "model": model, "context": runstate.context()}

    assert (ask.__name__, ask.__doc__) == ("ask", "Asks.")
    assert ask("why", model="large") == {"cost": 0.25, "question": "why", "model": "large", "context": None}
    assert seen == [(40, 0, 460, 0)]
    assert books() == (0, 25, 475, 0)


def test_without_a_cost_the_reserve_is_charged(here, books):
    runstate.budget("usd", reserve=0.4, limit=5)(repr)("a")
    assert books() == (0, 40, 460, 0)


async def test_an_async_function(here, books):
    @runstate.budget("usd", reserve="1", cost=lambda price: price, limit="5")
    async def ask(price):
        await asyncio.sleep(0)
        return price

    assert await ask("0.10") == "0.10"
    assert await asyncio.to_thread(books) == (0, 10, 490, 0)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_function_that_raises_costs_nothing(here, books, error):
    @runstate.budget("usd", reserve="1", limit="5")
    def ask():
        raise error

    with pytest.raises(error):
        ask()
    assert books() == (0, 0, 500, 0)


async def test_an_async_function_that_is_cancelled_costs_nothing(here, books):
    begun = asyncio.Event()

    @runstate.budget("usd", reserve="1", limit="5")
    async def ask():
        begun.set()
        await asyncio.sleep(3600)

    asking = asyncio.ensure_future(ask())
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.to_thread(books) == (0, 0, 500, 0)


def test_a_cost_of_nothing_gives_all_of_the_reserve_back(here, books):
    runstate.budget("usd", reserve="1", cost=lambda _: 0, limit="5")(repr)("a")
    assert books() == (0, 0, 500, 0)


def test_more_than_the_reserve_is_charged_and_what_there_is_not_is_overrun(here, books):
    @runstate.budget("usd", reserve="1", cost=lambda price: price, limit="5")
    def ask(price):
        return price

    assert ask("3.50") == "3.50"
    assert books() == (0, 350, 150, 0)
    assert ask("2.00") == "2.00"
    assert books() == (0, 500, 0, 50)
    with pytest.raises(BudgetExceededError):
        ask("0.01")


def test_a_function_for_which_there_is_no_money_is_not_called(here):
    called = []
    ask = runstate.budget("usd", reserve="3", limit="5")(called.append)
    ask(1)
    with pytest.raises(BudgetExceededError, match="usd"):
        ask(2)
    assert called == [1]


@pytest.mark.parametrize(
    "cost", [lambda _: 1 / 0, lambda _: "0.001", lambda _: -1, lambda _: None, lambda _: str(10**17)]
)
def test_when_the_cost_fails_the_reserve_is_charged_and_the_error_told(here, books, cost):
    called = []
    with pytest.raises(ConfigError, match=r"1\.00") as caught:
        runstate.budget("usd", reserve="1", cost=cost, limit="5")(called.append)(1)
    assert caught.value.__cause__ is not None
    assert called == [1]
    assert books() == (0, 100, 400, 0)


def test_all_callers_together_never_spend_more_than_the_limit(here, books):
    called, lock = [], threading.Lock()

    @runstate.budget("usd", reserve="0.50", cost=lambda _: "0.30", limit="5.00")
    def ask():
        with lock:
            called.append(books())

    outcomes = together(40, ask)
    refused = [o for o in outcomes if isinstance(o, BudgetExceededError)]
    assert len(called) + len(refused) == 40
    assert all(reserved + settled <= 500 for reserved, settled, _, _ in called)
    assert books() == (0, 30 * len(called), 500 - 30 * len(called), 0)


def test_sizes_in_the_code_create_or_check_and_both_are_named(here):
    runstate.budget("usd", reserve="1", limit="5.00")(repr)("a")
    with pytest.raises(ConflictError, match=r"500.*600"):
        runstate.budget("usd", reserve="1", limit="6.00")(repr)("a")
    with pytest.raises(ConflictError, match=r"USD.*EUR"):
        runstate.budget("usd", reserve="1", currency="EUR")(repr)("a")
    with pytest.raises(NotFoundError):
        runstate.budget("missing", reserve="1")(repr)("a")


def test_a_budget_that_exists_is_spent_at_its_own_scale(here, books):
    runstate.setup(budgets={"yen": {"limit": 500, "currency": "JPY", "scale": 0}})
    runstate.budget("yen", reserve=100, cost=lambda _: 30.5)(repr)("a")
    assert books("yen") == (0, 31, 469, 0)
    with pytest.raises(ConfigError):
        runstate.budget("yen", reserve="0.5")(repr)("a")
    assert books("yen") == (0, 31, 469, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"reserve": 0},
        {"reserve": "-1"},
        {"reserve": "0.001", "limit": 5},
        {"reserve": None},
        {"reserve": 10**17, "limit": 5},
        {"cost": "free"},
        {"limit": "much"},
        {"currency": "usd"},
        {"currency": "ÄÖÜ"},
        {"scale": 10},
        {"scale": 1.5},
        {"name": ""},
    ],
)
def test_options_that_cannot_be_used_are_refused_where_they_stand(options):
    with pytest.raises(ConfigError):
        runstate.budget(**{"name": "usd", "reserve": "1", **options})


def test_async_costs_and_generators_are_refused_where_they_stand():
    async def cost(_):
        return 1

    def generator():
        yield 1

    with pytest.raises(ConfigError):
        runstate.budget("usd", reserve=1, cost=cost)
    with pytest.raises(ConfigError):
        runstate.budget("usd", reserve=1)(generator)


def test_in_a_run_that_has_ended_nothing_is_reserved_and_what_was_is_charged(here, books):
    run = here.run("short")

    @run.budget("usd", reserve="1", cost=lambda _: "0.75", limit="5")
    def ask():
        here.run("short").stop()

    ask()
    assert books() == (0, 75, 425, 0)
    with pytest.raises(StoppedError):
        ask()


def test_a_job_s_context_reaches_the_function_inside(here, books):
    run = here.run()

    @run.budget("usd", reserve="1", limit="5")
    def ask(words):
        return [words, runstate.context().key]

    @run.queue("find", key=lambda words: words)
    def job(words):
        return ask(words)

    with working(run):
        assert job("a") == ["a", "find:a"]
    assert books() == (0, 100, 400, 0)


def test_the_money_of_a_worker_that_dies_is_back_in_a_day(here, books, clock):
    """A worker's reservation carries a time to settle by."""
    with Runstate(**here.settings) as rs:
        budget = rs.scopes.create()
        rs.budgets.ensure("usd", currency="USD", scale=2, limit="5")
        inside, leave = threading.Event(), threading.Event()

        @here.run().budget("usd", reserve="5")
        def ask():
            inside.set()
            leave.wait(30)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert inside.wait(30)
        assert books() == (500, 0, 0, 0)
        clock.shift(86_400 - 3_600)
        assert books() == (500, 0, 0, 0)
        clock.shift(2 * 3_600)
        assert books() == (0, 0, 500, 0)
        assert budget.budget("usd").status()["reservations"][0]["state"] == "STALE"
        leave.set()
        thread.join(30)
    assert books() == (0, 500, 0, 0)  # settled late, from what the budget had


@pytest.mark.parametrize("lost", [b"/reserve", b"/settle", b"/void"])
def test_a_reply_that_is_lost_costs_nothing_twice(here, books, lost):
    with Runstate(**here.settings) as rs:
        rs.budgets.ensure("usd", currency="USD", scale=2, limit="5")
    with RoundRobin([int(here.url.rpartition(":")[2])]) as wire:
        ask = here.run(base_url=wire.url).budget("usd", reserve="1", cost=lambda _: "0.75")(repr)
        wire.drop_reply(lost)
        assert ask("a") == "'a'"
        assert wire.dropped.is_set()
    assert books() == (0, 75, 425, 0)
