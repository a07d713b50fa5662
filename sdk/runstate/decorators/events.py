"""The events of a run, as they come."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from runstate._background import shared
from runstate._flags import ThreadSafeEvent, until_set
from runstate.run import RunCore

_ENDS = ("scope.cancelled", "scope.completed", "scope.expired")


class EventsRun(RunCore):
    """A run whose events can be followed."""

    def events(self, types: Sequence[str] | None = None, signal: Any = None) -> Iterator[dict[str, Any]]:
        """The run's events and those of all below it, from the oldest kept one on, and then each as it comes;
        ends when the run has ended, or `signal` (a ThreadSafeEvent, or another flag with is_set()) is set."""
        stop = ThreadSafeEvent()
        watching = None if signal is None else shared.submit(_pass_on(signal, stop, own_loop=False))
        following = self._follow(shared.run(self.joined()), types, stop)
        try:
            while (event := shared.run(_next(following))) is not None:
                yield event
        finally:
            stop.set()
            if watching is not None:
                watching.cancel()
            shared.run(_closed(following))

    async def aevents(
        self, types: Sequence[str] | None = None, signal: Any = None
    ) -> AsyncIterator[dict[str, Any]]:
        """As `events`."""
        stop = ThreadSafeEvent()
        watching = None if signal is None else asyncio.ensure_future(_pass_on(signal, stop, own_loop=True))
        following = self._follow(await shared.arun(self.joined()), types, stop)
        try:
            while (event := await shared.arun(_next(following))) is not None:
                yield event
        finally:
            stop.set()
            if watching is not None:
                watching.cancel()
            await shared.arun(_closed(following))

    async def _follow(
        self, scope_id: str, types: Sequence[str] | None, stop_event: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Watches for the run's end too, whether or not its types are asked for."""
        wanted = None if types is None else list(dict.fromkeys([*types, *_ENDS]))
        events = self.account.client().events
        async for event in events.watch(types=wanted, scope_id=scope_id, stop_event=stop_event):
            if types is None or event["type"] in types:
                yield event
            if event["type"] in _ENDS and event["aggregate"] == {"type": "scope", "id": scope_id}:
                return


async def _next(following: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any] | None:
    return await anext(following, None)


async def _closed(following: AsyncGenerator[dict[str, Any], None]) -> None:
    await following.aclose()


async def _pass_on(signal: Any, stop: ThreadSafeEvent, *, own_loop: bool) -> None:
    await until_set(signal, own_loop=own_loop)
    stop.set()
