"""Who is next for a connection, when there are fewer than callers: spaces in turn, and within a space first
come, first served. A space that keeps the server busy costs the others one statement of waiting, not its
whole line."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass


class Turns:
    """So many turns at once."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # that of whose turn is next stands first

    @contextlib.asynccontextmanager
    async def turn(self, line: str, *, within_s: float) -> AsyncIterator[None]:
        """A turn, had within so many seconds. Raises TimeoutError."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(line, within_s)
        try:
            yield
        finally:
            self._pass_on()

    @property
    def waiting(self) -> int:
        """How many wait for a turn."""
        return sum(map(len, self._lines.values()))

    async def _wait(self, line: str, within_s: float) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(line, deque()).append(mine)
        try:
            async with asyncio.timeout(within_s):
                await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                self._pass_on()  # it came at the very moment at which nobody waited any more
            else:
                self._leave(line, mine)
            raise

    def _leave(self, line: str, mine: "asyncio.Future[None]") -> None:
        waiting = self._lines.get(line, deque())
        with contextlib.suppress(ValueError):  # it has been passed over already
            waiting.remove(mine)
        if not waiting:
            self._lines.pop(line, None)

    def _pass_on(self) -> None:
        """The turn goes to the first of the next line, and that line to the end of them."""
        while self._lines:
            line, waiting = next(iter(self._lines.items()))
            del self._lines[line]
            first = waiting.popleft()
            if waiting:
                self._lines[line] = waiting
            if not first.done():  # else it has just been given up
                first.set_result(None)
                return
        self._free += 1


@dataclass(slots=True)
class _Crowd:
    turns: Turns
    count: int = 0


class Crowds:
    """At most so many calls at once that lock one row, such as a budget's: the others wait here, first come,
    first served, and hold no connection that somebody else could use."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at: dict[Hashable, _Crowd] = {}

    @contextlib.asynccontextmanager
    async def place(self, row: Hashable | None, *, within_s: float) -> AsyncIterator[None]:
        """A place at the row, had within so many seconds; at once where no row is named. Raises
        TimeoutError."""
        if row is None:
            yield
            return
        crowd = self._at.setdefault(row, _Crowd(Turns(self._most)))
        crowd.count += 1
        try:
            async with crowd.turns.turn("", within_s=within_s):
                yield
        finally:
            crowd.count -= 1
            if not crowd.count:
                self._at.pop(row, None)
