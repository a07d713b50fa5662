"""Stop flags: set by whoever says so, seen by a wait on another thread or event loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

_LOOK_S = 0.05


class ThreadSafeEvent:
    """A flag that any thread or signal handler may set: for `consume(stop_event=...)` and `serve(signal=...)`
    of code without an event loop. Has the methods of threading.Event."""

    def __init__(self) -> None:
        self._set = False
        # A list and an assignment, no lock: a signal handler may interrupt the very code that would hold it.
        self._wakers: list[Callable[[], Any]] = []

    def set(self) -> None:
        """Sets the flag and wakes whoever waits for it."""
        self._set = True
        for wake in list(self._wakers):
            wake()

    def clear(self) -> None:
        """Takes the flag down again."""
        self._set = False

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the flag is set or `timeout` seconds have passed; whether it is set."""
        turnstile = threading.Lock()
        turnstile.acquire()
        with self._wakes(lambda: _opened(turnstile)):
            if not self._set:
                turnstile.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        return self._set

    async def awaited(self) -> None:
        """Waits until the flag is set, on any event loop."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop has been closed meanwhile
                loop.call_soon_threadsafe(woken.set)

        with self._wakes(wake):
            while not self._set:
                await woken.wait()
                woken.clear()

    @contextlib.contextmanager
    def _wakes(self, wake: Callable[[], Any]) -> Iterator[None]:
        # Registered before the caller looks, while `set` assigns before it wakes: no order of them misses it.
        self._wakers.append(wake)
        try:
            yield
        finally:
            self._wakers.remove(wake)


async def until_set(flag: Any, *, own_loop: bool) -> None:
    """Waits until `flag`, anything with `is_set()`, is set. `own_loop`: an asyncio.Event is of the loop that
    runs here; it and what else cannot be waited for from here is looked at now and then."""
    if isinstance(flag, ThreadSafeEvent):
        await flag.awaited()
    elif own_loop and isinstance(flag, asyncio.Event):
        await flag.wait()
    else:
        while not flag.is_set():  # noqa: ASYNC110 - it is somebody else's flag
            await asyncio.sleep(_LOOK_S)


def _opened(turnstile: threading.Lock) -> None:
    with contextlib.suppress(RuntimeError):  # two setters at the same moment
        turnstile.release()
