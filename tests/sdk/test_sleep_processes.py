"""Sleepers that are killed, and servers that are: what is left is slept, once."""

import signal
import time
from datetime import datetime, timedelta, timezone

import pytest

import runstate
from tests.sdk.conftest import Here
from tests.support import spaces
from tests.support.processes import Python, Replica

pytestmark = pytest.mark.processes

SLEEPER = """
import runstate
print("sleeping", flush=True)
runstate.sleep("cool down", 4)
print("awake", flush=True)
"""
INTERRUPTED = """
import sys, runstate
print("sleeping", flush=True)
try:
    runstate.sleep("long", "1d")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


def until_set(here):
    """The time that the first sleeper has set."""
    with runstate.Runstate(**here.settings) as rs:
        run = here.run().run_id()
        while not (timers := rs.diagnostics.run(run)["timers"]):
            pass
        return datetime.fromisoformat(timers[0]["fireAt"].replace("Z", "+00:00"))


def test_the_successor_of_a_killed_sleeper_waits_only_for_what_is_left(here):
    with Python(SLEEPER, env=here.environment) as first:
        first.until_line("sleeping")
        due = until_set(here)
        first.kill()
    started = time.monotonic()
    with Python(SLEEPER, env=here.environment) as second:
        second.until_line("awake")
        second.end(silent=True)
    assert datetime.now(timezone.utc) >= due
    assert time.monotonic() - started < 4 + 10
    with Python(SLEEPER, env=here.environment) as third:
        third.until_line("awake")
        assert datetime.now(timezone.utc) < due + timedelta(seconds=20)


def test_a_sleep_goes_on_through_the_death_of_the_server_and_ends_right_after_its_start(fresh_database):
    space = spaces.create(fresh_database)
    with Replica(fresh_database) as server:
        here = Here(server.url, space.id, space.key)
        with Python(SLEEPER, env=here.environment) as sleeper:
            sleeper.until_line("sleeping")
            due = until_set(here)
            server.kill()
            server.start()
            sleeper.until_line("awake")
            assert datetime.now(timezone.utc) >= due
            sleeper.end()


def test_ctrl_c_ends_a_sleep(here):
    with Python(INTERRUPTED, env=here.environment) as sleeper:
        sleeper.until_line("sleeping")
        until_set(here)
        sleeper.process.send_signal(signal.SIGINT)
        assert sleeper.line() == "interrupted"
        assert sleeper.process.wait(20) == 7
