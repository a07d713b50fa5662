"""A program ends when it is told to, whatever its calls wait for: here for a server that says nothing."""

import signal

import pytest

from tests.sdk.peer import HANG, Peer
from tests.support.processes import Python

pytestmark = pytest.mark.processes
END_S_MAX = 20  # generous; a call would wait for its server for half a minute

PROGRAM = """
import asyncio, os, signal, sys, threading
import runstate

def told():
    sys.stdin.readline()

@runstate.once
def work():
    pass

@runstate.queue("jobs")
def job(input):
    pass
"""

# Each has a call in flight when its main thread comes to its end.
LEFT = {
    "a blocking call on a daemon thread": """
client = runstate.Runstate()
threading.Thread(target=client.scopes.create, daemon=True).start()
told()
""",
    "blocking calls of several clients": """
clients = [runstate.Runstate() for _ in range(3)]
for client in clients:
    threading.Thread(target=client.scopes.create, daemon=True).start()
told()
""",
    "once on a daemon thread": """
threading.Thread(target=work, daemon=True).start()
told()
""",
    "a job's submission on a daemon thread": """
threading.Thread(target=job, args=[1], daemon=True).start()
told()
""",
    "a worker on a daemon thread": """
threading.Thread(target=runstate.serve, daemon=True).start()
told()
""",
    "async calls left behind": """
async def main():
    client = runstate.AsyncRunstate()
    calls = [asyncio.create_task(client.scopes.create()), asyncio.create_task(job.asend(1))]
    await asyncio.to_thread(told)
asyncio.run(main())
""",
    "an async call that is cancelled": """
async def main():
    call = asyncio.create_task(runstate.AsyncRunstate().scopes.create())
    await asyncio.to_thread(told)
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        pass
asyncio.run(main())
""",
    "an exit in the middle": """
client = runstate.Runstate()
threading.Thread(target=client.scopes.create, daemon=True).start()
told()
sys.exit(0)
""",
}


@pytest.fixture
def hanging():
    """A server that takes calls and says nothing."""
    with Peer(lambda _: HANG) as peer:
        yield peer


def variables(peer):
    return {"RUNSTATE_BASE_URL": peer.url, "RUNSTATE_SPACE_ID": "s", "RUNSTATE_API_KEY": "k"}


@pytest.mark.parametrize("program", LEFT.values(), ids=LEFT)
def test_a_program_ends_with_calls_in_flight_and_without_a_sound(hanging, program):
    with Python(PROGRAM + program, env=variables(hanging)) as running:
        hanging.arrived(1)
        running.tell("go on")
        assert running.end(within_s=END_S_MAX, silent=True) == ""


# Each waits in its main thread, and says how that ended.
INTERRUPTED = {
    "a blocking call": "runstate.Runstate().scopes.create()",
    "once": "work()",
    "a job": "job(1)",
    "a worker's first call": "runstate.serve()",
    "a client in a with block": """
with runstate.Runstate() as client:
    client.scopes.create()
""",
    "an async call": "asyncio.run(runstate.AsyncRunstate().scopes.create())",
    "an async job": """
async def main():
    await asyncio.gather(job.asend(1), job.asend(2), runstate.AsyncRunstate().scopes.create())
asyncio.run(main())
""",
}


@pytest.mark.parametrize("program", INTERRUPTED.values(), ids=INTERRUPTED)
def test_ctrl_c_ends_a_program_whose_call_is_in_flight(hanging, program):
    guarded = "\n".join("    " + line for line in program.strip().split("\n"))
    source = PROGRAM + f"try:\n{guarded}\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    with Python(source, env=variables(hanging)) as running:
        hanging.arrived(1)
        running.process.send_signal(signal.SIGINT)
        said = running.end(within_s=END_S_MAX, silent=True)
        # A worker takes the first one for "stop", and stops: nothing is under way that it would wait for.
        assert said.split() == ([] if "serve" in program else ["interrupted"])
