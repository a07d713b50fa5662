"""Workers that are killed while their jobs hold slots and money."""

import time

import pytest

from runstate import Runstate
from tests.support.processes import Python

pytestmark = pytest.mark.processes

LEASE_S = 2
WORKER = f"""
import os, sys, time
import runstate

@runstate.queue(
    "render", slots="browser", budget={{"name": "model-usd", "reserve": "0.40"}}, lease={LEASE_S}
)
def render(url):
    print("inside", runstate.context().attempt, flush=True)
    while runstate.context().attempt == 1:
        time.sleep(0.02)
    return [url, runstate.context().attempt]

runstate.serve()
"""


def test_a_worker_that_is_killed_gives_back_its_browser_within_the_lease_and_charges_nothing(here, api):
    budget = api.post(
        "/budgets", json={"name": "model-usd", "currency": "USD", "scale": 2, "limitMinor": "500"}
    ).json()
    with Runstate(**here.settings) as rs:
        rs.pools.ensure("browser", capacity=1)
        pool = rs.scopes.create().pool("browser")
        with Python(WORKER, env=here.environment) as first, Python(WORKER, env=here.environment) as second:
            job = here.run().queue("render").send("a")
            workers = {first, second}
            while pool.status()["unitsUsed"] != 1:
                time.sleep(0.02)
            holder = here.run().status()["workers"][0]["holder"]
            [victim] = [each for each in workers if holder.endswith(f"-{each.pid}")]
            [other] = workers - {victim}
            victim.until_line("inside 1")
            killed_at = time.monotonic()
            victim.kill()
            other.until_line("inside 2")
            assert time.monotonic() - killed_at < LEASE_S + 2
            assert job.result(timeout=30) == ["a", 2]
        assert pool.status()["unitsUsed"] == 0
    view = api.get(f"/budgets/{budget['id']}").json()
    assert (view["settledMinor"], view["reservedMinor"]) == ("40", "0")
