import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import Python

PROGRAM = """
import asyncio, os, signal, sys, threading, time
import runstate

@runstate.once(lease=5)
def work(name):
    return [name, os.getpid()]

inside = threading.Event()

@runstate.once(lease=5)
def endless():
    inside.set()
    time.sleep(3600)
"""


def program(here, source, *flags):
    """Runs a program in the test's space: its exit status, lines and errors."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", PROGRAM + source],
        env={**os.environ, **here.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


ENDINGS = {
    "after a call": "work('a')",
    "work in flight": "threading.Thread(target=endless, daemon=True).start(); inside.wait()",
    "watched work in flight": """
threading.Thread(target=endless, daemon=True).start()
inside.wait()
time.sleep(1.5)  # by now its renewals and its watch are under way
""",
    "owner and waiters in flight": """
for _ in range(5):
    threading.Thread(target=endless, daemon=True).start()
inside.wait()
sys.exit(0)
""",
    "a call in an exit handler": "import atexit; atexit.register(work, 'late')",
    "a thread that outlives main": """
threading.Thread(target=lambda: (time.sleep(0.5), work('after main'))).start()
""",
    "a daemon thread that keeps calling": """
def forever():
    for i in range(10**9):
        work(f"n{i}")
        inside.set()
threading.Thread(target=forever, daemon=True).start()
inside.wait()
""",
    "a client never closed": "rs = runstate.Runstate(); rs.scopes.create()",
    "threads under asyncio": """
async def main():
    await asyncio.gather(*[asyncio.to_thread(work, i) for i in range(5)])
asyncio.run(main())
""",
    "a blocked signal": """
@runstate.once
def blocked():
    inside.set()
    runstate.context().signal.wait()
threading.Thread(target=blocked, daemon=True).start()
inside.wait()
""",
    "a cancelled async call": """
@runstate.once
async def forever():
    inside.set()
    await asyncio.sleep(3600)
async def main():
    tasks = [asyncio.create_task(forever()) for _ in range(3)]
    await asyncio.to_thread(inside.wait)
asyncio.run(main())
""",
    "a client of a closed loop": "asyncio.run(runstate.AsyncRunstate().scopes.create())",
}


@pytest.mark.processes
@pytest.mark.parametrize("flags", [(), ("-W", "always")], ids=["plain", "all warnings"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_without_a_sound(here, ending, flags):
    started = time.monotonic()
    code, _, errors = program(here, ENDINGS[ending], *flags)
    if ending == "a client of a closed loop" and flags:
        assert "ResourceWarning" in errors  # the user's loop went away under an open client: said, not hidden
        errors = ""
    assert (code, errors) == (0, "")
    assert time.monotonic() - started < 15


@pytest.mark.processes
def test_a_child_of_fork_works_with_what_the_parent_used_before(here):
    source = """
rs = runstate.Runstate()
before = rs.scopes.create().id
first = work("a")
session = rs._inner._space.transport.session
reader, writer = os.pipe()
stop = threading.Event()
def busy():
    while not stop.is_set():
        work("b")
threads = [threading.Thread(target=busy) for _ in range(3)]
[thread.start() for thread in threads]
pids = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        assert work("a") == first
        assert work("child")[0] == "child"
        assert asyncio.run(asyncio.wait_for(asyncio.to_thread(work, "a"), 30)) == first
        assert rs.scope(before).status()["id"] == before
        assert rs._inner._space.transport.session != session
        sys.exit(0)
    pids.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
stop.set()
[thread.join() for thread in threads]
assert work("a") == first
assert rs.scope(before).status()["id"] == before
print(codes)
"""
    code, lines, errors = program(here, source, "-W", "ignore::DeprecationWarning")
    assert (code, lines, errors) == (0, ["[0, 0, 0, 0, 0]"], "")


@pytest.mark.processes
def test_a_fork_finds_the_sdk_s_threads_holding_no_lock_that_the_child_needs(here):
    """The lock of a module that is being imported stays held in a child, and the HTTP library imports."""
    source = """
import importlib.machinery, importlib.util

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "slow":
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        importing.set()
        time.sleep(0.2)

async def imported():
    import slow
    return slow.__name__

from runstate._background import shared
importing = threading.Event()
sys.meta_path.append(Slow())
under_way = shared.submit(imported())
importing.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # ends it where it would wait for ever
    import slow
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), under_way.result())
"""
    code, lines, errors = program(here, source, "-W", "ignore::DeprecationWarning")
    assert (code, lines, errors) == (0, ["0 slow"], "")


@pytest.mark.processes
def test_a_fork_does_not_wait_for_a_handler_that_blocks_its_loop(here):
    source = """
from runstate._background import BackgroundLoop, shared
handlers = BackgroundLoop("handlers", ours=False)
async def block():
    inside.set()
    over.wait()
over = threading.Event()
blocked = handlers.submit(block())
inside.wait()
work("a")  # the SDK's own loop runs
started = time.monotonic()
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(time.monotonic() - started < 2)
over.set()
"""
    code, lines, errors = program(here, source, "-W", "ignore::DeprecationWarning")
    assert (code, lines, errors) == (0, ["True"], "")


@pytest.mark.processes
def test_a_fork_inside_the_function_does_not_lose_the_parents_lease(here):
    source = """
import multiprocessing
def square(n):
    return n * n
@runstate.once(lease=1)
def parent():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        time.sleep(2.2)
        return pool.map(square, range(4))
print(parent())
"""
    code, lines, errors = program(here, source, "-W", "ignore::DeprecationWarning")
    assert (code, lines, errors) == (0, ["[0, 1, 4, 9]"], "")


@pytest.mark.processes
def test_ctrl_c_ends_a_waiting_and_a_working_program(here):
    source = """
if len(sys.argv) > 1:
    os.environ["X"] = "1"
def interrupt():
    while not ready.is_set():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
ready = threading.Event()
@runstate.once
def held():
    ready.set()
    time.sleep(3600)
threading.Thread(target=interrupt, daemon=True).start()
try:
    held()
except KeyboardInterrupt:
    print("interrupted at work", flush=True)
waiting = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
waiting.start()
try:
    held()
except KeyboardInterrupt:
    print("interrupted waiting", flush=True)
"""
    code, lines, errors = program(here, source)
    assert (code, lines, errors) == (0, ["interrupted at work", "interrupted waiting"], "")


@pytest.mark.processes
def test_a_paused_owner_is_taken_over_and_refused_when_it_comes_back(here):
    source = (
        PROGRAM
        + """
@runstate.once(name="paused", lease=1)
def paused():
    print("inside", flush=True)
    sys.stdin.readline()
    print("signal", runstate.context().signal.is_set(), flush=True)
    return "first"
try:
    paused()
except runstate.LeaseLostError:
    print("lost", flush=True)
"""
    )
    with Python(source, env=here.environment) as owner:
        owner.until_line("inside")
        os.kill(owner.pid, signal.SIGSTOP)
        assert here.run().once(name="paused", lease=1)(lambda: "second")() == "second"
        os.kill(owner.pid, signal.SIGCONT)
        owner.tell("go on")
        assert owner.until_line("signal") == "signal True"
        owner.until_line("lost")
        owner.end()
    assert here.run().once(name="paused")(lambda: "third")() == "second"
