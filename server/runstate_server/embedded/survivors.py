"""What a killed owner left running."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from runstate_server.embedded.error import EmbeddedError

PATIENCE_S = 10.0  # per signal
POLL_S = 0.02


def stop_survivors(pgdata: Path) -> None:
    """Stop what a killed owner left running on this very folder. We hold its lock: nobody else wants it."""
    if not pgdata.exists():
        return
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        until = time.monotonic() + PATIENCE_S
        told: set[int] = set()
        while left := set(_survivors(pgdata)):
            main = _postmaster_pid(pgdata)
            # A living postmaster ends its children; orphans need no other word than to go at once.
            for pid in ({main} if signum == signal.SIGINT and main in left else left) - told:
                told.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum if main in left or signum == signal.SIGKILL else signal.SIGQUIT)
            if time.monotonic() > until:
                break
            time.sleep(POLL_S)
        else:
            return
    raise EmbeddedError(f"a PostgreSQL of an earlier run will not leave {pgdata} (processes {sorted(left)})")


def _postmaster_pid(pgdata: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((pgdata / "postmaster.pid").read_text().split()[0])
    return None


def _survivors(pgdata: Path) -> Iterator[int]:
    """The postgres processes whose working folder this is.
    Without /proc: the one that the pid file names, if its command line says so.
    """
    if not Path("/proc/self/cwd").exists():
        pid = _postmaster_pid(pgdata)
        said = subprocess.run(["/bin/ps", "-p", str(pid), "-o", "command="], capture_output=True, check=False)
        if pid and os.fsencode(f"postgres -D {pgdata}") in said.stdout:
            yield pid
        return
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            ours = entry.name.isdigit() and (entry / "comm").read_bytes().strip() == b"postgres"
            if ours and (entry / "cwd").samefile(pgdata):
                yield int(entry.name)
