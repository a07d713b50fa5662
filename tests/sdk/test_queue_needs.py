"""Queues whose jobs need more than a worker: slots, units of a limit, money."""

import logging
import time

import pytest

import runstate
from runstate import (
    AuthenticationError,
    ConfigError,
    NotFoundError,
    Runstate,
    TaskFailedError,
    WaitTimeoutError,
)
from tests.sdk.workers import Call, Gate, working
from tests.support import spaces


@pytest.fixture
def rs(here):
    with Runstate(**here.settings) as client:
        client.pools.ensure("browser", capacity=3)
        client.quotas.ensure("search-api", units_per_window=60, window_seconds=86_400)
        yield client


@pytest.fixture
def pool(rs):
    return rs.scopes.create().pool("browser")


@pytest.fixture
def budget(rs, api):
    """The budget "model-usd", 5.00, as the server has it."""
    body = {"name": "model-usd", "currency": "USD", "scale": 2, "limitMinor": "500"}
    budget_id = api.post("/budgets", json=body).json()["id"]
    return lambda: api.get(f"/budgets/{budget_id}").json()


def mailbox(api, name):
    return next(each for each in api.get("/mailboxes").json()["mailboxes"] if each["name"] == name)


def test_a_job_holds_its_slots_while_its_handler_runs(here, rs, pool):
    run, gate = here.run(), Gate()
    queue = run.queue("render", slots={"name": "browser", "units": 2}, concurrency=4)(gate)
    with working(run):
        jobs = [queue.send(url) for url in "abcd"]
        gate.entered()
        assert (gate.now, pool.status()["unitsUsed"]) == (1, 2)
        gate.release.set()
        assert [job.result(timeout=60)[0] for job in jobs] == list("abcd")
    assert gate.most == 1
    assert pool.status()["unitsUsed"] == 0


def test_many_workers_share_few_slots(here, rs, pool):
    gate, runs = Gate(), [here.run() for _ in range(3)]
    queues = [run.queue("render", slots="browser", concurrency=5)(gate) for run in runs]
    with working(runs[0]), working(runs[1]), working(runs[2]):
        jobs = [queues[0].send(number) for number in range(30)]
        gate.entered(3)
        assert pool.status()["unitsUsed"] == 3
        gate.release.set()
        assert [job.result(timeout=60)[0] for job in jobs] == list(range(30))
    assert gate.most == 3
    assert pool.status()["unitsUsed"] == 0


def test_a_job_takes_its_units_of_the_limit_each_time_it_is_tried(here, rs):
    quota = rs.scopes.create().quota("search-api")
    run = here.run()

    @run.queue("search", limit={"name": "search-api", "units": 2}, attempts=2)
    def search(words):
        raise ValueError(words)

    with working(run), pytest.raises(TaskFailedError, match="no"):
        search("no")
    assert quota.status()["consumed"] == 4


def test_the_example_of_the_three_together(here, rs, pool, budget):
    run = here.run()

    @run.queue(
        "render",
        slots="browser",
        limit={"name": "search-api", "units": 1},
        budget={"name": "model-usd", "reserve": 0.40},
    )
    def render(input: dict) -> dict:  # noqa: A002 - as printed
        at_work = budget()
        return {"url": input["url"], "reserved": at_work["reservedMinor"], "key": runstate.context().key}

    with working(run):
        done = render({"url": "/"})
    assert (done["url"], done["reserved"], done["key"][:7]) == ("/", "40", "render:")
    assert (budget()["settledMinor"], budget()["reservedMinor"]) == ("40", "0")
    assert pool.status()["unitsUsed"] == 0


@pytest.mark.parametrize(("cost", "settled"), [(0.25, "25"), ("0.40", "40"), (0, "0"), (1.5, "150")])
def test_what_a_job_has_cost_is_charged_and_the_rest_given_back(here, budget, cost, settled):
    run = here.run()
    spending = {"name": "model-usd", "reserve": "0.40", "cost": lambda result: result["cost"]}
    queue = run.queue("ask", budget=spending)(lambda given: {"cost": given})
    with working(run):
        assert queue(cost) == {"cost": cost}
    assert (budget()["settledMinor"], budget()["reservedMinor"]) == (settled, "0")
    assert [each["state"] for each in budget()["reservations"] if each["state"] == "ACTIVE"] == []


async def test_async_handlers_are_charged_alike(here, budget):
    run = here.run()

    @run.queue("ask", budget={"name": "model-usd", "reserve": 0.4, "cost": len})
    async def ask(words):
        return words

    with working(run):
        assert await ask("a") == "a"
    assert budget()["settledMinor"] == "100"


def test_nothing_is_charged_when_the_handler_raises_or_its_result_cannot_be_recorded(here, budget):
    run = here.run()

    @run.queue("ask", attempts=1, budget={"name": "model-usd", "reserve": 0.4})
    def ask(given):
        if given == "raise":
            raise ValueError("no")
        return {1, 2}

    with working(run):
        for given in ("raise", "set"):
            with pytest.raises(TaskFailedError):
                ask(given)
    assert (budget()["settledMinor"], budget()["reservedMinor"]) == ("0", "0")


@pytest.mark.parametrize("cost", [lambda _: 1 / 0, lambda _: "much", lambda _: -1, lambda _: None])
def test_when_the_cost_cannot_be_told_the_reserve_is_charged_and_the_job_fails(here, budget, cost):
    run = here.run()
    queue = run.queue("ask", budget={"name": "model-usd", "reserve": 0.4, "cost": cost})(lambda given: given)
    with working(run), pytest.raises(TaskFailedError, match=r"ConfigError.*cost"):
        queue("a")
    assert (budget()["settledMinor"], budget()["reservedMinor"]) == ("40", "0")


def test_no_more_is_begun_than_the_budget_has(here, rs, budget):
    run, done = here.run(), []
    queue = run.queue("ask", concurrency=4, budget={"name": "model-usd", "reserve": 2})(done.append)
    with working(run):
        jobs = [queue.send(number) for number in range(5)]
        ends_at = time.monotonic() + 30
        while budget()["settledMinor"] != "400":
            assert time.monotonic() < ends_at
            time.sleep(0.02)
        states = [job.status()["state"] for job in jobs]
    assert sorted(states) == ["QUEUED"] * 3 + ["SUCCEEDED"] * 2
    assert len(done) == 2


def test_a_gather_that_gives_up_gets_the_money_and_slots_of_what_was_under_way_back(here, budget, pool):
    run, gate = here.run(), Gate()
    work = run.queue("ask", concurrency=2, slots="browser", budget={"name": "model-usd", "reserve": 1})(gate)
    with working(run):
        with pytest.raises(WaitTimeoutError):
            work.gather([1, 2, 3], timeout="3s")
        ends_at = time.monotonic() + 30
        while budget()["reservedMinor"] != "0" or pool.status()["unitsUsed"]:
            assert time.monotonic() < ends_at
            time.sleep(0.02)
        gate.release.set()


def test_the_worker_s_declaration_counts_also_when_it_needs_nothing_any_more(here, rs, api):
    run = here.run()
    run.queue("render", slots="browser")(repr)
    with working(run):
        assert run.queues["render"]("a") == "'a'"
    assert mailbox(api, "render")["requirements"]["pools"] == [{"name": "browser", "units": 1}]
    again = here.run()
    again.queue("render")(repr)
    with working(again):
        assert again.queues["render"]("b") == "'b'"
    assert not mailbox(api, "render")["requirements"]


def test_a_key_that_may_not_change_the_mailbox_leaves_what_it_needs(here, rs, api, space, database_url):
    needs = {"pools": [{"name": "browser", "units": 1}]}
    assert api.put("/mailboxes/by-name/render", json={"requirements": needs}).status_code == 200
    key = spaces.limited(database_url, space, "runtime").key
    run = here.run(api_key=key)
    run.queue("render")(repr)
    with working(run):
        assert run.queues["render"]("a") == "'a'"
    assert mailbox(api, "render")["requirements"]["pools"] == needs["pools"]
    other = here.run(api_key=key)
    other.queue("render", slots={"name": "browser", "units": 2})(repr)
    with pytest.raises(AuthenticationError):
        other.serve()


@pytest.mark.parametrize(
    "needs",
    [
        {"slots": "missing"},
        {"limit": "missing"},
        {"budget": {"name": "missing", "reserve": 1}},
    ],
)
def test_what_is_missing_ends_the_worker(here, rs, needs):
    run = here.run()
    run.queue("render", **needs)(repr)
    with pytest.raises(NotFoundError, match="missing"):
        run.serve()


def test_a_reserve_that_the_scale_cannot_hold_ends_the_worker(here, budget):
    run = here.run()
    run.queue("render", budget={"name": "model-usd", "reserve": "0.001"})(repr)
    with pytest.raises(ConfigError, match=r"0\.001"):
        run.serve()


@pytest.mark.parametrize(
    "needs",
    [
        {"slots": 3},
        {"slots": {"name": "browser", "max": 3}},
        {"slots": {"units": 3}},
        {"slots": {"name": "browser", "units": 0}},
        {"limit": {"name": "search-api", "units": 1.5}},
        {"limit": ["search-api"]},
        {"budget": "model-usd"},
        {"budget": {"name": "model-usd"}},
        {"budget": {"name": "model-usd", "reserve": -1}},
        {"budget": {"name": "model-usd", "reserve": "much"}},
        {"budget": {"name": "model-usd", "reserve": 1, "cost": 3}},
    ],
)
def test_needs_that_say_nothing_clear_are_refused_where_they_stand(needs):
    with pytest.raises(ConfigError):
        runstate.queue("render", **needs)


def test_a_cost_that_cannot_be_charged_is_told_in_the_log_and_the_result_kept(here, budget, api, caplog):
    run, gate = here.run(), Gate()
    queue = run.queue("ask", budget={"name": "model-usd", "reserve": 1})(gate)
    with working(run), caplog.at_level(logging.ERROR, logger="runstate"):
        asking = Call(lambda: queue("a"))
        gate.entered()
        [reservation] = [each for each in budget()["reservations"] if each["state"] == "ACTIVE"]
        voided = {"reservationId": reservation["id"], "workKey": "somebody else"}
        assert api.post(f"/budgets/{budget()['id']}/void", json=voided).status_code == 200
        gate.release.set()
        assert asking.result == ["a", 1]
    assert "model-usd" in caplog.text
