"""Slots among processes that crowd, are killed, interrupted, or just end."""

import signal
import time

import pytest

import runstate
from runstate import Runstate
from tests.sdk.callers import in_thread
from tests.sdk.conftest import Here
from tests.support import spaces
from tests.support.processes import Python

pytestmark = pytest.mark.processes

LEASE_S = 2
CROWD = """
import os, sys, threading, time
import runstate

book = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)

@runstate.slots("browser", max=3)
def render():
    os.write(book, b"+")
    time.sleep(0.01)
    os.write(book, b"-")

threads = [threading.Thread(target=lambda: [render() for _ in range(3)]) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""
HOLDER = f"""
import time
import runstate
with runstate.slots("browser", max=1, lease={LEASE_S}):
    print("inside", flush=True)
    time.sleep(3600)
"""
WAITER = """
import sys, threading, time
import runstate

def wait():
    print("waiting", flush=True)
    with runstate.slots("browser", max=1):
        print("inside", flush=True)

if sys.argv[1] == "main":
    try:
        wait()
    except KeyboardInterrupt:
        sys.exit(7)
else:
    threading.Thread(target=wait, daemon=True).start()
    sys.stdin.readline()
"""


def look(here):
    with Runstate(**here.settings) as rs:
        view = rs.scopes.create().pool("browser").status()
        return view["unitsUsed"], view["waiting"]


def until(here, *wanted):
    ends_at = time.monotonic() + 60
    while (found := look(here)) != wanted:
        assert time.monotonic() < ends_at, f"{found}, never {wanted}"
        time.sleep(0.05)


def test_twenty_callers_of_five_processes_on_two_replicas_share_three(two_replicas, fresh_database, tmp_path):
    front, _ = two_replicas
    space = spaces.create(fresh_database)
    here = Here(front.url, space.id, space.key)
    book = tmp_path / "book"
    book.touch()
    crowd = [Python(CROWD, str(book), env=here.environment) for _ in range(5)]
    for each in crowd:
        each.end(within_s=120, silent=True)
    inside = most = 0
    for step in book.read_text():
        inside += 1 if step == "+" else -1
        most = max(most, inside)
    assert (len(book.read_text()), inside) == (2 * 5 * 4 * 3, 0)
    assert most == 3
    assert look(here) == (0, 0)


def test_who_waits_is_served_in_order_on_whichever_replica(here, second_server):
    order = []

    def wait(number):
        url = (here.url, second_server.url)[number % 2]
        with here.run(base_url=url).slots("browser", timeout=60):
            order.append(number)

    with runstate.slots("browser", max=1):
        waiting = []
        for number in range(8):
            waiting.append(in_thread(lambda number=number: wait(number)))
            until(here, 1, number + 1)
    for each in waiting:
        each.join(60)
        assert each.outcome is None
    assert order == list(range(8))


def test_the_units_of_a_killed_process_come_back_within_its_lease(here):
    with Python(HOLDER, env=here.environment) as holder:
        holder.until_line("inside")
        taken_at = []

        def wait():
            with runstate.slots("browser", max=1, timeout=60):
                taken_at.append(time.monotonic())

        waiting = in_thread(wait)
        until(here, 1, 1)
        killed_at = time.monotonic()
        holder.kill()
        waiting.join(60)
    assert waiting.outcome is None
    assert taken_at[0] - killed_at < LEASE_S + 2
    assert look(here) == (0, 0)


def test_an_interrupted_wait_leaves_the_line(here):
    with runstate.slots("browser", max=1), Python(WAITER, "main", env=here.environment) as waiter:
        waiter.until_line("waiting")
        until(here, 1, 1)
        waiter.process.send_signal(signal.SIGINT)
        assert waiter.process.wait(20) == 7
        assert look(here) == (1, 0)
        assert waiter.process.stderr.read() == ""


def test_a_process_ends_at_once_and_in_silence_while_a_thread_of_it_waits(here):
    with runstate.slots("browser", max=1), Python(WAITER, "thread", env=here.environment) as waiter:
        waiter.until_line("waiting")
        until(here, 1, 1)
        waiter.tell("go")
        waiter.end(within_s=20, silent=True)


def test_a_loop_that_ends_right_after_a_cancel_leaves_nothing_and_no_noise(here):
    program = """
import asyncio
import runstate

async def wait():
    async with runstate.slots("browser", max=1):
        pass

async def main():
    waiting = [asyncio.ensure_future(wait()) for _ in range(5)]
    await asyncio.sleep(0.3)  # in the line, or on the way to it

asyncio.run(main(), debug=True)
"""
    with runstate.slots("browser", max=1):
        with Python(program, env=here.environment) as cancelled:
            cancelled.end(within_s=30, silent=True)
        assert look(here) == (1, 0)


def test_a_storm_of_cancellations_makes_no_noise(here):
    program = """
import asyncio, gc, logging, random
import runstate

logging.basicConfig(level=logging.WARNING)
rng = random.Random(7)

async def one(n):
    if n % 3 == 0:
        async with runstate.slots("browser", max=2, timeout=rng.choice([0, 0.05, 30])):
            await asyncio.sleep(rng.uniform(0, 0.02))
    elif n % 3 == 1:
        async with runstate.AsyncRunstate() as rs:
            pool = rs.scope(await runstate.arun_id()).pool("browser")
            await pool.run(lambda lease: None, timeout_ms=rng.choice([0, 50, 30_000]))
    else:
        await runstate.atake("search", timeout=rng.choice([0, 0.05, 1]))

async def main():
    await runstate.asetup(slots={"browser": 2}, limits={"search": {"max": 3, "per": "second"}})
    for _ in range(6):
        tasks = [asyncio.ensure_future(one(n)) for n in range(20)]
        await asyncio.sleep(rng.uniform(0, 0.3))
        for each in rng.sample(tasks, 15):
            each.cancel()
        for each in await asyncio.gather(*tasks, return_exceptions=True):
            assert each is None or isinstance(each, (asyncio.CancelledError, runstate.WaitTimeoutError)), each
        gc.collect()

asyncio.run(main(), debug=True)
"""
    with Python(program, env=here.environment) as storm:
        storm.end(within_s=120, silent=True)
    assert look(here) == (0, 0)
