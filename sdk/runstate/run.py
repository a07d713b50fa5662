"""A named run as this process sees it: joined at the first use, and remembered when it has ended.

Everything here that asks the server runs on the SDK's shared loop, one thread, so the state of a run needs no
lock. `Signal` and `context()` are for the user's side and may be used from any thread."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from runstate._background import shared
from runstate._config import RUN, check_name, default_run
from runstate._units import duration_s
from runstate.client import AsyncRunstate, space_of
from runstate.errors import ConflictError, RunstateError, ScopeCancelledError, StoppedError
from runstate.handles.scopes import ScopeHandle, create_scope, join_run

if TYPE_CHECKING:
    from typing_extensions import Self  # known to every type checker; needed by none of our code

T = TypeVar("T")

_OUTAGE_LOG_S = 30.0
_log = logging.getLogger("runstate")


class Signal:
    """Set, once and for all, when the work under way should stop: its lease is lost or its run has ended."""

    def __init__(
        self, *, home: asyncio.AbstractEventLoop | None = None, look: Callable[[], Any] | None = None
    ) -> None:
        # The loop that was running where a plain function was called (a notebook): code there is plain code.
        self._home = home
        self._look = look
        self._reason: RunstateError | None = None
        # A list and an assignment, no lock: one that another thread holds at fork() stays held in the child.
        self._wakers: list[Callable[[], Any]] = []

    @property
    def reason(self) -> RunstateError | None:
        """Why: LeaseLostError or StoppedError; None while not set."""
        if self._reason is None and self._look is not None:
            self._look()  # sets it when the lease has run out a moment ago
        return self._reason

    def is_set(self) -> bool:
        """Whether the work should stop."""
        return self.reason is not None

    def raise_if_set(self) -> None:
        """Raises the reason, if there is one."""
        if self.reason is not None:
            raise copy(self.reason)

    def wait(self, timeout: float | str | None = None) -> Any:
        """Waits until set or `timeout` (seconds, or "30s") has passed; whether it is set. Blocks in plain
        code, to be awaited in async code."""
        timeout_s = None if timeout is None else duration_s(timeout, "timeout")
        loop = running_loop()
        if loop is None or loop is self._home:
            woken = threading.Event()
            with self._wakes(woken.set):
                if not self.is_set():
                    woken.wait(timeout_s)
            return self.is_set()
        return self._awaited(loop, timeout_s)

    def set(self, reason: RunstateError) -> None:
        """For the SDK: sets it; the first reason stays."""
        if self._reason is None:
            self._reason = reason
        for wake in list(self._wakers):
            wake()

    async def _awaited(self, loop: asyncio.AbstractEventLoop, timeout_s: float | None) -> bool:
        woken = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop has been closed meanwhile
                loop.call_soon_threadsafe(woken.set)

        with self._wakes(wake):
            if not self.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(woken.wait(), timeout_s)
        return self.is_set()

    @contextlib.contextmanager
    def _wakes(self, wake: Callable[[], Any]) -> Any:
        # Registered before the caller looks, while `set` assigns before it wakes: no order of them misses it.
        self._wakers.append(wake)
        try:
            yield
        finally:
            self._wakers.remove(wake)


@dataclass(frozen=True)
class RunRef:
    """Which run: its scope id, and its name (None for a child without one)."""

    id: str
    name: str | None


@dataclass(frozen=True)
class RunContext:
    """What a function can know about the call it is in."""

    run: RunRef
    signal: Signal = field(repr=False)
    attempt: int
    key: str


current: ContextVar[RunContext | None] = ContextVar("runstate_context", default=None)


def context() -> RunContext | None:
    """The call this code runs in; None outside of one, and in threads that were not given its context."""
    return current.get()


class Account:
    """The decorators' settings, and the client made of them at first use, anew in a child after fork()."""

    def __init__(self, *, run: str | None = None, worker: str | None = None, **settings: Any) -> None:
        self._run = run
        self._worker = worker
        self._settings = settings
        self._client: AsyncRunstate | None = None
        self._pid = 0
        self._outage_logged_at = float("-inf")

    @property
    def run(self) -> str:
        """The name of the default run."""
        return self._run or default_run()

    def changed(self, settings: dict[str, Any]) -> "Account":
        """These settings with those that are not None replaced, and no client yet."""
        old = {"run": self._run, "worker": self._worker, **self._settings}
        return Account(**{**old, **{name: value for name, value in settings.items() if value is not None}})

    def client(self) -> AsyncRunstate:
        """The client; on the shared loop only. Refuses (ConfigError) missing settings."""
        if self._client is None or self._pid != os.getpid():
            _inherited.append(self._client)
            worker = self._worker or f"{socket.gethostname()}-{os.getpid()}"
            self._client = AsyncRunstate(**self._settings, holder=worker)
            self._pid = os.getpid()
        return self._client

    def log_outage(self, error: RunstateError) -> None:
        """Says, at most every 30 s, that waiting goes on although the server is away."""
        if time.monotonic() - self._outage_logged_at > _OUTAGE_LOG_S:
            self._outage_logged_at = time.monotonic()
            _log.warning("waiting, since the runstate server is away: %s", error)


class RunCore:
    """One run, by its name or by its scope id. Constructing it asks the server nothing."""

    def __init__(
        self,
        account: Account,
        *,
        name: str | None = None,
        deadline: str | datetime | None = None,
        scope_id: str | None = None,
    ) -> None:
        self.account = account
        self._name = name
        self._deadline = deadline
        self._scope_id = scope_id
        self._joining: asyncio.Task[str] | None = None
        self._ended: StoppedError | None = None
        self._signals: weakref.WeakSet[Signal] = weakref.WeakSet()
        self._children: weakref.WeakSet[RunCore] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name or self._scope_id or 'the default run'!r})"

    @property
    def name(self) -> str | None:
        """The run's name; None for a child without one."""
        return self._name if self._name is not None or self._scope_id is not None else self.account.run

    def run_id(self) -> str:
        """The id of the run's scope. Joins or creates the run if this process has not yet."""
        return shared.run(self.joined())

    async def arun_id(self) -> str:
        """As `run_id`."""
        return await shared.arun(self.joined())

    def status(self) -> dict[str, Any]:
        """What goes on in the run and below it: "scope" (its view), "workers" (who holds what), "waiting",
        "queues", "tasks" (counts by state). Refuses: AuthenticationError for a key without the permission
        `observe`."""
        return shared.run(self.call(self._status))

    async def astatus(self) -> dict[str, Any]:
        """As `status`."""
        return await shared.arun(self.call(self._status))

    def child(self, name: str | None = None, deadline: str | datetime | None = None) -> "Self":
        """A new run below this one, ended with it; it may end earlier, alone."""
        return shared.run(self._child(name, deadline))

    async def achild(self, name: str | None = None, deadline: str | datetime | None = None) -> "Self":
        """As `child`."""
        return await shared.arun(self._child(name, deadline))

    def stop(self) -> None:
        """Cancels the run for everybody: waiting calls end, what comes in later is refused. Every later call
        on this object raises StoppedError."""
        shared.run(self._end_it(ScopeHandle.cancel, "has been stopped"))

    async def astop(self) -> None:
        """As `stop`."""
        await shared.arun(self._end_it(ScopeHandle.cancel, "has been stopped"))

    def finish(self) -> None:
        """As `stop`, for a run that has done what it was for: it counts as completed."""
        shared.run(self._end_it(ScopeHandle.complete, "has finished"))

    async def afinish(self) -> None:
        """As `finish`."""
        await shared.arun(self._end_it(ScopeHandle.complete, "has finished"))

    async def joined(self) -> str:
        """The scope id, on the shared loop; callers at the same time share a request. Raises StoppedError."""
        if self._ended is not None:
            raise copy(self._ended)
        if self._scope_id is None:
            joining = self._joining
            if joining is None or joining.done() or joining.get_loop() is not asyncio.get_running_loop():
                joining = self._joining = shared.spawn(self._join())
                joining.add_done_callback(lambda done: done.cancelled() or done.exception())
            # Shielded: a caller that gives up must not take the others' request with it.
            self._scope_id = await asyncio.shield(joining)
        return self._scope_id

    async def call(self, step: Callable[[ScopeHandle], Awaitable[T]]) -> T:
        """`step` with the run's scope, on the shared loop. When the server says that the run has ended, this
        object remembers it and raises StoppedError, now and ever after."""
        try:
            scope_id = await self.joined()
            return await step(ScopeHandle(space_of(self.account.client()), scope_id))
        except RunstateError as error:
            stopped = self.ending(error)
            if stopped is None:
                raise
            raise stopped from error

    def ending(self, error: RunstateError) -> StoppedError | None:
        """What to raise for `error` if it says that this run has ended; its signals are set then."""
        if isinstance(error, StoppedError):
            return None
        if isinstance(error, ScopeCancelledError):
            return self._remember("has ended", error.code)
        if error.code == "DEADLINE_EXCEEDED":
            return self._remember("has passed its deadline", error.code)
        return None

    def is_same(self, other: "RunCore") -> bool:
        """Whether both objects stand for one run, as far as is known without asking."""
        mine, theirs = self._scope_id, other._scope_id  # noqa: SLF001 - another of its kind
        return self is other or (mine is not None and mine == theirs)

    def watched_by(self, signal: Signal) -> None:
        """Has `signal` set when this object learns that the run has ended; only on the shared loop."""
        self._signals.add(signal)

    async def _status(self, scope: ScopeHandle) -> dict[str, Any]:
        return await self.account.client().diagnostics.run(scope.id)

    async def _join(self) -> str:
        self._name = name = self.name or RUN  # settled now: the environment may change
        return (await join_run(space_of(self.account.client()), name, self._deadline)).id

    async def _child(self, name: str | None, deadline: str | datetime | None) -> "Self":
        if name is not None:
            check_name("name", name)

        async def create(scope: ScopeHandle) -> ScopeHandle:
            space = space_of(self.account.client())
            return await create_scope(space, name=name, parent_id=scope.id, deadline=deadline)

        below = type(self)(self.account, name=name, scope_id=(await self.call(create)).id)
        self._children.add(below)
        return below

    async def _end_it(self, verb: Callable[[ScopeHandle], Awaitable[Any]], how: str) -> None:
        try:
            await self.call(verb)
        except ConflictError as error:  # it ended before, the other way
            raise self._remember("has ended already", "SCOPE_CANCELLED") from error
        self._remember(how, "SCOPE_CANCELLED")

    def _remember(self, how: str, code: str) -> StoppedError:
        if self._ended is None:
            name = self.name
            self._ended = StoppedError(
                f"the run {self._scope_id if name is None else name!r} {how}", code=code
            )
            for signal in list(self._signals):
                signal.set(self._ended)
            for below in list(self._children):
                below._remember("has ended with the run above it", code)  # noqa: SLF001 - another of its kind
        return copy(self._ended)


_inherited: list[
    AsyncRunstate | None
] = []  # clients of the parent process: dropping one would close its sockets


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
