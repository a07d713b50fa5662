"""`runstate dev`, started as a person starts it, and what it prints for other shells."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import machine
from tests.support.processes import environment

_STOP_S_MAX = 20


@dataclass(frozen=True)
class Dev:
    """What it printed, and the variables of the export lines among that."""

    printed: str
    exports: dict[str, str]


@contextlib.contextmanager
def dev(
    command: Sequence[str | Path], folder: Path, *, cwd: Path | None = None, **variables: str
) -> Iterator[Dev]:
    """Run the command until the with block ends, its port free and its data in `folder`; begins when it
    serves."""
    variables |= {"RUNSTATE_PORT": str(machine.free_port()), "RUNSTATE_DATA_DIR": str(folder / "data")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment(**variables), stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        printed = ""
        while not printed.endswith("Ctrl-C stops it.\n"):
            line = process.stdout.readline()
            assert line, printed + (folder / "log").read_text()
            printed += line
        yield Dev(printed, dict(re.findall(r"(?m)^\s*export (RUNSTATE_\w+)=(\S+)$", printed)))
    finally:
        process.terminate()
        process.wait(_STOP_S_MAX)
        process.stdout.close()
