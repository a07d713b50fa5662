"""Long polls: look, sleep on topics holding nothing, look again.

A sleeper wakes by a topic, by the instant at which time alone changes the answer, by the end of its wait, by
the drain of the replica, and by its client hanging up. The client is looked for immediately before every look
that could grant, also where it has waited in line for a connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from runstate_server.kernel.call import Reply, UnwantedError, still_wanted
from runstate_server.wakeups.bus import ONE, Bus
from runstate_server.web.waiting import Describe, Stay, Waiters

# An instant given by the database is slept past by this much, so that the look finds it passed.
_PAST_S: Final = 0.005

Probe = Callable[[], Awaitable[Reply]]


class ClientGone(Exception):  # noqa: N818  not an error: nobody is left to answer
    """The caller hung up; nothing was granted for it."""


@dataclass(slots=True)
class Drain:
    """Set when this replica is stopping: long polls are answered at once."""

    event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def draining(self) -> bool:
        """Whether this replica is stopping."""
        return self.event.is_set()


@dataclass(slots=True)
class LongPolls:
    """The long polls of one process; `open` counts those asleep or looking."""

    bus: Bus
    drain: Drain
    open: int = 0
    waiters: Waiters = field(default_factory=Waiters)

    async def wait_until(
        self,
        probe: Probe,
        *,
        space_id: str,
        wait_s: float,
        receive: Callable[[], Awaitable[Any]],
        ready: Callable[[Reply], bool],
        waits: Describe | None = None,
    ) -> Reply:
        """The first reply that is `ready`, or the last one when the wait ends; with wait_s = 0 one look. A
        reply that is not ready names the topics to sleep on. `waits` says what is waited for, where somebody
        may be blocked by others. Raises ClientGone when the client hangs up first."""
        if wait_s <= 0:
            return self._leased(await probe())
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_s
        async with _hangup(receive) as gone:
            reply = await probe()
            if ready(reply):
                return self._leased(reply)
            self.open += 1
            try:
                with self._waiting(space_id, waits, reply) as stay:
                    with self.bus.subscribe(space_id, reply.sleep) as sleeper:
                        turns = [name for name in reply.sleep if name.startswith(ONE)]
                        while not self.drain.draining:
                            if gone.done():
                                raise ClientGone
                            sleeper.looks()
                            reply = await probe()
                            left_s = ends_at - loop.time()
                            if ready(reply) or left_s <= 0:
                                break
                            sleeper.saw_nothing()
                            await self.sleep(sleeper.event, self._sleep_s(reply, turns, left_s), gone)
                    if stay is not None and not ready(reply) and not self.drain.draining:
                        stay.may_return(loop.time())
            finally:
                self.open -= 1
        return self._leased(reply)

    def _waiting(
        self, space_id: str, waits: Describe | None, reply: Reply
    ) -> contextlib.AbstractContextManager[Stay | None]:
        if waits is None:
            return contextlib.nullcontext()
        return self.waiters.asleep(space_id, waits(reply))

    def _leased(self, reply: Reply) -> Reply:
        """What was granted names whom its lapse concerns and in how many seconds: sleepers that looked before
        the grant do not know of it."""
        if reply.changed and reply.again_s is not None:
            for name in reply.sleep:
                self.bus.alarm(name.removeprefix(ONE), reply.again_s + _PAST_S)
        return reply

    def _sleep_s(self, reply: Reply, turns: list[str], left_s: float) -> float:
        """How long to sleep at most. Where one sleeper suffices, the next instant is an alarm that all
        share."""
        if reply.again_s is None:
            return left_s
        if not turns:
            return min(left_s, reply.again_s + _PAST_S)
        for name in turns:
            self.bus.alarm(name.removeprefix(ONE), reply.again_s + _PAST_S)
        return left_s

    async def sleep(
        self, woken: asyncio.Event, for_s: float, gone: asyncio.Future[None] | None = None
    ) -> None:
        """Until woken, gone, draining or for_s seconds have passed."""
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(woken.wait()),
            asyncio.ensure_future(self.drain.event.wait()),
        ]
        try:
            ends = waits if gone is None else [*waits, gone]
            await asyncio.wait(ends, timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


@contextlib.asynccontextmanager
async def _hangup(receive: Callable[[], Awaitable[Any]]) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done once the client has disconnected; from then on calls that are still in line are
    given up (ClientGone). The request's body has been read before."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.ensure_future(watch())
    before = still_wanted.set(lambda: not task.done())
    try:
        yield task
    except UnwantedError:
        raise ClientGone from None
    finally:
        still_wanted.reset(before)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
