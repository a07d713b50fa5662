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
