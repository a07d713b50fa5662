"""Many caller processes (examples/demo/caller.py), each told what to ask for and telling what it sees."""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import sources
from tests.support.processes import environment

PROGRAM = sources.ROOT / "examples/demo/caller.py"


@dataclass(frozen=True)
class Telling:
    """What one caller said of itself; `at` in seconds since the epoch."""

    at: float
    who: str
    what: str  # ready, asks, runs, worked, got, refused; ended, when its output has
    facts: dict[str, Any] = field(default_factory=dict)


Ear = queue.SimpleQueue[Telling]


class Caller:
    """One process of the demo's programs, with leases of lease_s. What it tells goes into the ear, its errors
    to ours."""

    def __init__(
        self, name: str, *, lease_s: float, variables: dict[str, str], ear: Ear, program: Path = PROGRAM
    ) -> None:
        self.name = name
        self._ear = ear
        self.process = subprocess.Popen(
            [sys.executable, str(program), name, str(lease_s)],
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for whoever started it, and then ends it
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            told = json.loads(line)
            self._ear.put(Telling(told.pop("at"), told.pop("who"), told.pop("what"), told))
        self._ear.put(Telling(time.time(), self.name, "ended"))

    def ask(self, thing: Any, work_s: float) -> None:
        """Have it call research(thing, work_s); key research:<thing>. A producer is given its pages
        instead."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([thing, work_s]) + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> float:
        """Send the signal. Returns: when."""
        self.process.send_signal(number)
        return time.time()

    def end(self) -> None:
        """SIGKILL, whatever it is doing."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
