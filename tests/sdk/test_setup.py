import pytest

import runstate
from runstate import ConfigError, ConflictError, Runstate, StoppedError


def test_slots_are_created_or_checked_and_both_sizes_are_named(here):
    runstate.setup(slots={"browser": 3, "gpu": {"max": 1}})
    here.run().setup(slots={"browser": 3})
    with Runstate(**here.settings) as rs:
        pools = [rs.scopes.create().pool(name).status() for name in ("browser", "gpu")]
    assert [(pool["unitsTotal"], pool["unitsUsed"]) for pool in pools] == [(3, 0), (1, 0)]
    with pytest.raises(ConflictError, match=r"3 .*5"):
        here.run().setup(slots={"browser": 5})
    with runstate.slots("gpu"):
        pass


def test_budgets_are_created_or_checked_and_both_settings_are_named(here):
    runstate.setup(budgets={"usd": "5.00", "yen": {"limit": 500, "currency": "JPY", "scale": 0}})
    here.run().setup(budgets={"usd": 5, "yen": {"limit": "500", "currency": "JPY", "scale": 0}})
    with Runstate(**here.settings) as rs:
        found = [rs.scopes.create().budget(name).status() for name in ("usd", "yen")]
    assert [(b["currency"], b["scale"], b["limitMinor"], b["reservedMinor"]) for b in found] == [
        ("USD", 2, "500", "0"),
        ("JPY", 0, "500", "0"),
    ]
    with pytest.raises(ConflictError, match=r"500.*501"):
        here.run().setup(budgets={"usd": "5.01"})
    with pytest.raises(ConflictError, match=r"USD.*EUR"):
        here.run().setup(budgets={"usd": {"limit": "5", "currency": "EUR"}})


async def test_the_async_twin(here):
    await runstate.asetup(slots={"browser": 3})
    async with runstate.slots("browser", max=3):
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": {"browser": 0}},
        {"slots": {"browser": 1.5}},
        {"slots": {"browser": {"units": 1}}},
        {"slots": ["browser"]},
        {"slots": {"": 1}},
        {"limits": {"api": 60}},
        {"limits": {"api": {"max": 60}}},
        {"limits": {"api": {"max": 60, "per": "week"}}},
        {"limits": {"api": {"max": 0, "per": "minute"}}},
        {"budgets": {"usd": {}}},
        {"budgets": {"usd": None}},
        {"budgets": {"usd": "-1"}},
        {"budgets": {"usd": "0.001"}},
        {"budgets": {"usd": {"limit": "1", "currency": "usd"}}},
        {"budgets": {"usd": {"limit": "1", "scale": 10}}},
        {"budgets": {"usd": {"limit": "1", "of": 2}}},
    ],
)
def test_sizes_that_cannot_be_used_are_refused_before_anything_is_created(here, wrong):
    with pytest.raises(ConfigError):
        runstate.setup(**{"slots": {"first": 1}, **wrong})
    with pytest.raises(runstate.NotFoundError), runstate.slots("first"):
        pass


def test_a_run_that_has_ended_sets_nothing_up(here):
    run = here.run("short")
    run.stop()
    with pytest.raises(StoppedError):
        run.setup(slots={"browser": 3})
