"""Runs the sweeps and the sequencer of this replica. Both are steps that any number of replicas may take at
once; what correctness needs happens in the calls themselves."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from runstate_server.foundation import bounds, db
from runstate_server.sweeps.schedule import Sweep

log = logging.getLogger("runstate.sweeps")
_REPLICA_EVERY_S = 5.0
_FLOOR_KEEPS_S = 60.0
_STEP = "journal_step"
# An instant given by the database is slept past by this much, so that the look finds it passed.
_PAST_S = 0.002
# Between two looks at timers, when the last one fired some, and when others had them in hand.
_PAUSE_S = 0.02
_LONG_PAUSE_S = 0.2


class Steps(Protocol):
    """What the loops need of the kernel."""

    async def step(self, function: str, *args: Any) -> Any:
        """One row of one function."""


class Sweeper:
    """Runs every sweep at its cadence until stopped; `lag_s` says how late each one started last.

    Between two rounds an alarm rings when the next timer is due: each round learns when that is, and who sets
    one here says so. One that was set elsewhere within the round is fired there.
    """

    def __init__(
        self,
        kernel: Steps,
        sweeps: Sequence[Sweep],
        *,
        interval_s: float,
        wake: Callable[[Sequence[str]], None],
        nudge: Callable[[], None],
    ) -> None:
        self._kernel = kernel
        self._sweeps = sweeps
        self._interval_s = interval_s
        self._wake = wake
        self._nudge = nudge
        self._task: asyncio.Task[None] | None = None
        self._alarm_at = math.inf
        self._alarm_moved = asyncio.Event()
        self._quiet_until = 0.0
        self.lag_s: dict[str, float] = {}
        self.swept: dict[str, int] = {s.function: 0 for s in sweeps}

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.create_task(self._loop(), name="sweeps")

    async def stop(self) -> None:
        """End; a step under way is cancelled and rolled back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def due_in(self, seconds: float) -> None:
        """Something that was set here is due in so many seconds."""
        self._rings_at(time.monotonic() + seconds + _PAST_S)

    def _rings_at(self, at: float) -> None:
        if at < self._alarm_at:
            self._alarm_at = at
            self._alarm_moved.set()

    async def _loop(self) -> None:
        turn = 0
        due_at = time.monotonic()
        while True:
            due = await self._due()
            if _STEP in due:
                self._nudge()  # events of a replica that died before it numbered them
            for sweep in self._sweeps:
                if sweep.function in due if sweep.every is None else turn % sweep.every == 0:
                    await self._run(sweep, due_at)
            turn += 1
            due_at = max(due_at + self._interval_s, time.monotonic())
            while await self._rings_before(due_at):
                await self._alarm()

    async def _rings_before(self, round_at: float) -> bool:
        """Sleep until the alarm rings, or the next round begins."""
        while True:
            self._alarm_moved.clear()
            at = max(self._alarm_at, self._quiet_until)
            left_s = min(at, round_at) - time.monotonic()
            if left_s <= 0:
                return at < round_at
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._alarm_moved.wait(), left_s)

    async def _alarm(self) -> None:
        """What is due to the moment, and nothing else."""
        rang_at = self._alarm_at
        due = await self._due()
        swept = [await self._run(s, rang_at) for s in self._sweeps if s.at_once and s.function in due]
        self._quiet_until = time.monotonic() + (_PAUSE_S if any(swept) or not due else _LONG_PAUSE_S)

    async def _due(self) -> Sequence[str]:
        """One statement that says what is due, and what will be next: all that an idle replica asks per
        round."""
        self._alarm_at = math.inf
        try:
            row = await self._kernel.step("sweeps_due")
        except Exception as error:
            if db.trouble(error) is None:
                log.exception("what is due could not be read")
            return ()
        if row["next_s"] is not None:
            self._rings_at(time.monotonic() + row["next_s"] + _PAST_S)
        names: Sequence[str] = row["due"]
        return names

    async def _run(self, sweep: Sweep, due_at: float) -> int:
        """Steps until one does not fill its batch, at most ten in a row, so that one duty never holds up the
        others. Returns how much it finished."""
        self.lag_s[sweep.function] = max(0.0, time.monotonic() - due_at)
        finished = 0
        for _ in range(10):
            try:
                row = await self._kernel.step(sweep.function, sweep.batch, *sweep.args)
            except Exception as error:
                if db.trouble(error) is None:
                    log.exception("sweep %s failed", sweep.function)
                break
            count = row[0]
            if count:
                finished += count
                self.swept[sweep.function] += count
                log.debug("sweep %s finished %d", sweep.function, count)
            if row.get("wake"):
                self._wake(row["wake"])
            if count < sweep.batch:
                break
        return finished


class Sequencer:
    """Numbers committed events: woken by this replica's own commits, and by the sweeper for those of replicas
    that died.

    The floor keeps a step flat while dead rows cannot be cleaned away (a long snapshot elsewhere): it trails
    a minute behind what was seen, and once a minute a step looks without it, so a straggler below it is late,
    never lost.
    """

    def __init__(self, kernel: Steps, *, wake: Callable[[Sequence[str]], None]) -> None:
        self._kernel = kernel
        self._wake = wake
        self._dirty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._floors: list[tuple[float, int]] = []
        self._floor = 0
        self._looked_whole_at = 0.0
        self.moved = 0

    def nudge(self) -> None:
        """Something was committed here."""
        self._dirty.set()

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.create_task(self._loop(), name="sequencer")

    async def stop(self) -> None:
        """End; a step under way is cancelled and rolled back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), timeout=_FLOOR_KEEPS_S)
            self._dirty.clear()
            try:
                moved = await self.step()
                while moved >= bounds.sequencer_batch:
                    moved = await self.step()
                if moved < 0:
                    self._dirty.set()  # the other replica's step may have looked before our commit
            except Exception as error:
                if db.trouble(error) is None:
                    log.exception("the sequencer failed")
                await asyncio.sleep(0.2)
                self._dirty.set()
            await asyncio.sleep(bounds.sequencer_pause_s)

    async def step(self) -> int:
        """Move one batch; returns how many, -1 when another replica is at it."""
        now = time.monotonic()
        whole = now - self._looked_whole_at > _FLOOR_KEEPS_S
        row = await self._kernel.step("journal_step", bounds.sequencer_batch, 0 if whole else self._floor)
        if row["moved"] >= 0:
            if whole:
                self._looked_whole_at = now
            self.moved += row["moved"]
            self._raise_floor(now, row["last_seq"])
            self._wake(row["wake"])
        return int(row["moved"])

    def _raise_floor(self, now: float, last_seq: int) -> None:
        if not self._floors or self._floors[-1][1] < last_seq:
            self._floors.append((now, last_seq))
        while self._floors and self._floors[0][0] < now - _FLOOR_KEEPS_S:
            self._floor = self._floors.pop(0)[1]
