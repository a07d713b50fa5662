"""Real servers and clients in processes of their own, started, stopped, killed and paused by tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.support import machine

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10, under which the SDK's tests run too

READY_S_MAX = 40.0
STOP_S_MAX = 10.0  # what the server promises
RUNSTATE = Path(sys.executable).with_name("runstate")
_LOOK_S = 0.02


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without RUNSTATE_ variables, plus the given ones."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNSTATE_")}
    return kept | {"PYTHONUNBUFFERED": "1"} | variables


class Replica:
    """One `runstate serve` on a port of 127.0.0.1; settings are its variables without RUNSTATE_."""

    def __init__(
        self, database_url: str, *, command: Sequence[str | Path] = (RUNSTATE, "serve"), **settings: str
    ) -> None:
        self._command = command
        self.port = machine.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = {
            "DATABASE_URL": database_url,
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "TEST_CLOCK": "1",
            "LOG_FORMAT": "text",
            "DRAIN_GRACE_S": "0.2",
            "POOL_SIZE": "8",
        } | settings
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the replica)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Self:
        """Start the process; returns when /readyz says 200. After stop() or kill(): again, on its port."""
        variables = {f"RUNSTATE_{name}": value for name, value in self._settings.items()}
        self._process = subprocess.Popen(
            self._command,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Bounded wait for /readyz. Fails with the process's own words when it ends or takes too long."""
        deadline = time.monotonic() + READY_S_MAX
        while True:
            assert self.process.poll() is None, f"the server ended ({self.process.returncode}):\n{self.log()}"
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200:
                    return
            assert time.monotonic() < deadline, f"the server was not ready in time:\n{self.log()}"
            time.sleep(_LOOK_S)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process; there is one after start()."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        """For signals of a test's own."""
        return self.process.pid

    def log(self) -> str:
        """Everything the process has written so far; position kept for the process, which appends."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def stop(self) -> int:
        """SIGTERM, as an orchestrator does; must end within the promised time. Returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the server did not stop within {STOP_S_MAX:.0f} s:\n{self.log()}"
            ) from None

    def kill(self) -> None:
        """SIGKILL: no goodbye to anyone."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: the process is there and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            self._log.close()
            raise

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if self.process.poll() is None:
                self.resume()
                self.stop() if kind is None else self.kill()
        finally:
            if kind is not None:
                sys.stderr.write(f"--- log of the server on port {self.port}\n{self.log()[-8000:]}\n")
            self._log.close()


class Python:
    """A Python program in a process of its own, read line by line; it may be killed at any of them."""

    def __init__(self, source: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, *arguments],
            env=environment(**(env or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """For signals of a test's own."""
        return self.process.pid

    def line(self) -> str:
        """The next line it prints, without its end; fails with its errors when it ended instead."""
        line = self.process.stdout.readline()
        assert line, f"the program ended ({self.process.wait()}):\n{self.process.stderr.read()}"
        return line.rstrip("\n")

    def until_line(self, wanted: str) -> str:
        """Read on until a line starts with these words; returns that line."""
        while not (line := self.line()).startswith(wanted):
            pass
        return line

    def tell(self, line: str) -> None:
        """Give it a line on its standard input."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, *, within_s: float = 60, silent: bool = False) -> str:
        """Wait for its end, which must be a success, and `silent` without a word on its error output; returns
        what was left of its output."""
        out, err = self.process.communicate(timeout=within_s)
        assert self.process.returncode == 0, f"the program failed ({self.process.returncode}):\n{out}\n{err}"
        assert not silent or not err, err
        return out

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def replicas(database_url: str, count: int = 2, **settings: str) -> Iterator[list[Replica]]:
    """Several servers on one database, started at the same time."""
    with contextlib.ExitStack() as exits:
        started = [Replica(database_url, **settings) for _ in range(count)]
        for replica in started:
            replica.start(wait=False)
            exits.push(replica.__exit__)
        for replica in started:
            replica.wait_ready()
        yield started
