"""slots: at most so many at the same time, over all processes, around a function or a block.

Taking and giving back go on on the SDK's shared loop; the function itself runs where it was called."""

import asyncio
import concurrent.futures
import contextlib
import os
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import ParamSpec, TypeVar

from runstate._background import shared
from runstate._config import check_name, check_number, check_whole
from runstate._transport import Space
from runstate._units import duration_s
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.decorators.wrapping import guarded
from runstate.errors import ConfigError
from runstate.handles.leases import loss, released, rest, seen
from runstate.handles.lines import UNITS_MAX, Errand, taken, taken_by_thread
from runstate.handles.permits import Place, PoolLease, pool_id, sized_pool_id
from runstate.handles.scopes import ScopeHandle
from runstate.run import RunCore

P = ParamSpec("P")
R = TypeVar("R")

_LEASE_S_MIN, _LEASE_S_MAX = 1, 3600
_RELEASE_S_MAX = 5.0


class Slots:
    """Units of a pool, to be held around a function, as a decorator, or around a block, by `with` or `async
    with`, which give the PoolLease. One object may be used by many threads and tasks, and inside itself."""

    def __init__(
        self,
        run: Callable[[], RunCore],
        name: str,
        *,
        size: int | None,
        units: int,
        timeout: float | str,
        lease: float | str,
    ) -> None:
        self.name = check_name("name", name)
        self._run = run
        self._size = None if size is None else check_whole("max", size, 1, UNITS_MAX)
        self._all: list[_Held] = []
        self.units = check_whole("units", units, 1, UNITS_MAX)
        self.timeout_s = duration_s(timeout, "timeout")
        self.lease_s = check_number("lease", duration_s(lease, "lease"), _LEASE_S_MIN, _LEASE_S_MAX)
        if self._size is not None and self.units > self._size:
            raise ConfigError(f"{self.units} units are more than the {self._size} of the slots {name!r}")

    def __repr__(self) -> str:
        return f"<slots {self.name!r}>"

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The function, plain or async, called while units are held. Refuses: WaitTimeoutError when they did
        not come in time; LeaseLostError, after the function has returned, when they were lost meanwhile."""
        return guarded("slots", self, function)

    def __enter__(self) -> PoolLease:
        held = _Held(self._run(), self, None)
        lease = held.lease = taken_by_thread(held.errand())
        return self._enter(held, lease)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._last_entered()
        if not held.is_inherited:
            concurrent.futures.wait([shared.submit(held.given_back())], timeout=_RELEASE_S_MAX)
            held.checked(error)

    async def __aenter__(self) -> PoolLease:
        held = _Held(self._run(), self, asyncio.get_running_loop())
        lease = held.lease = await taken(held.errand())
        return self._enter(held, lease)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._last_entered()
        if not held.is_inherited:
            giving_back = shared.begun(held.given_back())
            giving_back.add_done_callback(seen)
            await asyncio.wait({giving_back}, timeout=_RELEASE_S_MAX)
            held.checked(error)

    async def pool_id(self, space: Space) -> str:
        """The pool's id; with a size in the code it is created, or checked, once for each client."""
        return await (
            pool_id(space, self.name) if self._size is None else sized_pool_id(space, self.name, self._size)
        )

    def _enter(self, held: "_Held", lease: PoolLease) -> PoolLease:
        self._all.append(held)
        _inside.set((*_inside.get(), held))
        return lease

    def _last_entered(self) -> "_Held":
        """What this thread or task has entered last. A block may be left elsewhere, as those in generators
        are: units are all alike, so then it is what anybody has entered last."""
        # No lock: one that another thread holds at fork() stays held in the child for ever. An append, a
        # removal and a pop of a list are each one step.
        for held in reversed(_inside.get()):
            with contextlib.suppress(ValueError):  # of other slots, or left elsewhere
                self._all.remove(held)
                break
        else:
            held = self._all.pop()
        _inside.set(tuple(each for each in _inside.get() if each is not held))
        return held


class _Held:
    """The units of one call or block: asked for, held, given back."""

    def __init__(self, run: RunCore, slots: Slots, loop: asyncio.AbstractEventLoop | None) -> None:
        self._run = run
        self._slots = slots
        self._loop = loop
        self._pid = os.getpid()
        self._place: Place | None = None
        self._lease: PoolLease | None = None

    @property
    def is_inherited(self) -> bool:
        """Whether it is the parent process that has it: the child of a fork() leaves the block as well."""
        return self._pid != os.getpid()

    @property
    def lease(self) -> PoolLease | None:
        """What is held."""
        return self._lease

    @lease.setter
    def lease(self, lease: PoolLease) -> None:
        self._lease = lease
        # An interrupt can come before the block is entered: then only the collector is left to let it go.
        weakref.finalize(self, rest, lease).atexit = False

    def errand(self) -> Errand[PoolLease]:
        """Takes the units in the run's scope, waiting in the pool's line. A server that is away is waited
        for, up to the same timeout."""
        return Errand(self._take, self._leave)

    async def given_back(self) -> None:
        """Releases them; if that cannot be done they lapse."""
        if self._lease is not None:
            await released(self._lease)

    def checked(self, error: BaseException | None) -> None:
        """Raises LeaseLostError, or StoppedError, if the units were lost before they were given back, unless
        the block has ended with an error of its own."""
        reason = None if self._lease is None else loss(self._lease)
        if self._lease is None or reason is None or error is not None:
            return
        stopped = self._run.ending(reason)
        if stopped is not None:
            raise stopped
        self._lease.raise_if_lost()

    async def _take(self) -> PoolLease:
        return await until_answered(
            self._ask,
            timeout_s=self._slots.timeout_s,
            what=f"{self._slots.units} of the slots {self._slots.name!r}",
            on_outage=self._run.account.log_outage,
        )

    async def _ask(self, wait_ms: int) -> PoolLease | None:
        async def step(scope: ScopeHandle) -> PoolLease | None:
            slots, space = self._slots, space_of(self._run.account.client())
            found = await slots.pool_id(space)
            if self._place is None:
                self._place = Place(
                    space,
                    scope.id,
                    f"{slots.units} of the slots {slots.name!r}",
                    units=slots.units,
                    lease_s=slots.lease_s,
                    loop=self._loop,
                )
            return await self._place.ask(found, wait_ms)

        return await self._run.call(step)

    async def _leave(self, lease: PoolLease | None) -> None:
        if self._place is not None:
            await self._place.leave(lease)


class SlotsRun(RunCore):
    """The part of a Run that lends out slots."""

    def slots(
        self,
        name: str,
        max: int | None = None,  # noqa: A002 - what the contract calls it
        units: int = 1,
        timeout: float | str = 60,
        lease: float | str = 30,
    ) -> Slots:
        """As `runstate.slots`, in this run instead of the default one."""
        return Slots(lambda: self, name, size=max, units=units, timeout=timeout, lease=lease)


_inside: ContextVar[tuple[_Held, ...]] = ContextVar("runstate_slots_inside", default=())
