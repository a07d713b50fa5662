"""What the demo plays on: two servers behind one address, and the callers, whose word is kept."""

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self

from tests.support.crowd import Caller, Ear, Telling
from tests.support.site import LOOK_S, Site

LEASE_S = 3


class GaveUp(Exception):  # noqa: N818  not a false claim: the account could not be finished
    """A process ended that should not have, or the demo took too long."""


class Stage:
    """A context manager: everything it started is gone when it is left."""

    def __init__(self, callers: int) -> None:
        self._count = callers
        self._ear: Ear = queue.SimpleQueue()
        self.site = Site()
        self.callers: dict[str, Caller] = {}
        self.gone: set[str] = set()  # killed by the demo, so their end is no surprise
        self.told: list[Telling] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            exits.enter_context(self.site)
            self.run_id = self.site.run_id()
            for number in range(1, self._count + 1):
                name = f"caller-{number}"
                caller = Caller(name, lease_s=LEASE_S, variables=self.site.variables, ear=self._ear)
                exits.callback(caller.end)
                self.callers[name] = caller
            for name in self.callers:
                self.until(name, "ready")
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def ask(self, names: Sequence[str], company: str, *, work_s: float) -> None:
        """A new scene: what was told before is forgotten."""
        self.told.clear()
        for name in names:
            self.callers[name].ask(company, work_s)

    def hear(self, enough: Callable[[list[Telling]], object], patience_s: float | None = None) -> bool:
        """Listen until `enough` has been told (True), or patience ends (False; None: the demo's own)."""
        ends_at = None if patience_s is None else time.monotonic() + patience_s
        while not enough(self.told):
            left_s = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            try:
                telling = self._ear.get(timeout=left_s)
            except queue.Empty:
                return False
            if telling.what == "ended" and telling.who not in self.gone:
                raise GaveUp(f"{telling.who} ended by itself; its errors stand above")
            self.told.append(telling)
        return True

    def until(self, who: str | None, what: str) -> Telling:
        """Listen until `who` (None: anybody) has told `what`."""
        self.hear(lambda told: any(t.what == what and who in (None, t.who) for t in told))
        return next(t for t in self.told if t.what == what and who in (None, t.who))

    def until_all(self, names: Sequence[str], *whats: str) -> None:
        """Listen until each of them has told one of these."""
        self.hear(lambda told: set(names) <= {t.who for t in told if t.what in whats})

    def until_asleep(self, count: int, patience_s: float = 2.0) -> list[int]:
        """Long polls at each server, as soon as there are `count` altogether or patience ends."""
        ends_at = time.monotonic() + patience_s
        while sum(found := self.site.open_polls()) < count and time.monotonic() < ends_at:
            time.sleep(LOOK_S)
        return found


def instant(text: str) -> float:
    """A time of the wire as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
