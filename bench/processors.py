"""How busy the processors were, and with whom. Linux: read from /proc."""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Processor seconds so far, or cores when it is a difference over time: of the clients that have ended,
    of the server, of PostgreSQL with all its processes."""

    clients: float
    server: float
    postgres: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.clients, self.server, self.postgres))

    @classmethod
    def now(cls, *, server: int, postgres: int) -> Self:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(ended.ru_utime + ended.ru_stime, _seconds(server), _with_children(postgres))

    def since(self, before: Self, seconds: float) -> "Usage":
        return Usage(
            (self.clients - before.clients) / seconds,
            (self.server - before.server) / seconds,
            (self.postgres - before.postgres) / seconds,
        )


def _fields(pid: int | str) -> list[str]:
    """The fields of /proc/pid/stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _seconds(pid: int | str, *, ended_children: bool = False) -> float:
    used = _fields(pid)[11 : 15 if ended_children else 13]
    return sum(map(int, used)) / TICKS_PER_S


def _with_children(pid: int) -> float:
    total = _seconds(pid, ended_children=True)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if _fields(stat.parent.name)[1] == str(pid):
                total += _seconds(stat.parent.name)
        except OSError:
            continue  # ended meanwhile; its parent has it
    return total
