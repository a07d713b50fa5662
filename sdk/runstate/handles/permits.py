"""Permit pools: at most so many units at the same time, first come, first served."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

from runstate._config import check_name, check_whole
from runstate._transport import Space
from runstate._waits import until_answered
from runstate.errors import ConflictError, LeaseLostError, NotFoundError, RunstateError, UnavailableError
from runstate.handles.leases import Lease, released, run_under, seconds
from runstate.handles.lines import UNITS_MAX, Errand, Request, Waiter, patiently, taken

T = TypeVar("T")

_ROOM = "permits"
_FULL = "CAPACITY_UNAVAILABLE"


class PoolLease(Lease):
    """Units of a pool that are ours, until they are released or the lease is lost; `lost_event` is set, on
    the loop that acquired it, once they are no longer ours."""

    def __init__(
        self, space: Space, what: str, lease_s: float, grant_id: str, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        super().__init__(space, ("grants", grant_id), what, lease_s, loop=loop)
        self.grant_id = grant_id

    def __repr__(self) -> str:
        return f"PoolLease(grant_id={self.grant_id!r})"


class PoolsAdminAPI:
    """The permit pools of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def ensure(self, name: str, *, capacity: int) -> dict[str, Any]:
        """The view of the pool of that name, created with `capacity` units if there is none. Refuses:
        ConflictError, naming both, when it has another size; AuthenticationError when it is missing and the
        key may not create it."""
        return await ensured(self._space, name, check_whole("capacity", capacity, 1, UNITS_MAX))


class PoolRef:
    """A pool, by its id or by its name (looked up at the first use), as one scope uses it."""

    def __init__(
        self, space: Space, scope_id: str, *, name: str | None = None, permit_id: str | None = None
    ) -> None:
        self._space = space
        self._name = None if name is None else check_name("name", name)
        self._id = permit_id
        self.scope_id = scope_id

    def __repr__(self) -> str:
        return f"PoolRef({self._name or self._id!r}, scope_id={self.scope_id!r})"

    async def status(self) -> dict[str, Any] | None:
        """The view: `unitsTotal`, `unitsUsed`, and `waiting`, how many stand in the line. None when there is
        no pool of this id."""
        pool_id = await self._found_id()
        try:
            return dict(await self._space.call("GET", _ROOM, pool_id))
        except NotFoundError:
            return None

    async def acquire(
        self, *, units: int = 1, lease_seconds: float = 30, wait: bool = True, timeout_ms: int = 60_000
    ) -> PoolLease:
        """Takes units. Where others want them too it stands in the line, up to `timeout_ms`:
        WaitTimeoutError, and it has left the line then, as when it is cancelled. Without `wait` it is
        refused then: ConflictError (CAPACITY_UNAVAILABLE). More than the pool has is refused at once."""
        place = Place(
            self._space,
            self.scope_id,
            f"{units} of {self._name or self._id!r}",
            units=check_whole("units", units, 1, UNITS_MAX),
            lease_s=lease_seconds,
            loop=asyncio.get_running_loop(),
        )

        async def ask(wait_ms: int) -> PoolLease | None:
            return await place.ask(await self._found_id(), wait_ms)

        async def at_once() -> PoolLease:
            pool_id = await self._found_id()
            while True:  # one whose answer took longer than the lease is over is asked for again
                lease = await place.acquired(pool_id, None)
                if lease is not None:
                    return lease

        async def patiently_taken() -> PoolLease:
            what = f"{units} of the pool {self._name or self._id!r}"
            return await until_answered(ask, timeout_s=timeout_ms / 1000, what=what)

        return await taken(Errand(patiently_taken if wait else at_once, place.leave))

    async def try_acquire(self, **kwargs: Any) -> dict[str, Any]:
        """`{"kind": "acquired", "lease": PoolLease}`, or, at once, `{"kind": "capacity-unavailable"}`."""
        try:
            return {"kind": "acquired", "lease": await self.acquire(**{**kwargs, "wait": False})}
        except ConflictError as error:
            if error.code != _FULL:
                raise
            return {"kind": "capacity-unavailable"}

    @overload
    async def run(self, fn: Callable[[PoolLease], Coroutine[Any, Any, T]], **kwargs: Any) -> T: ...

    @overload
    async def run(self, fn: Callable[[PoolLease], T], **kwargs: Any) -> T: ...

    async def run(self, fn: Callable[[PoolLease], Any], **kwargs: Any) -> Any:
        """`fn(lease)`, async or plain (then in a thread), while the units are ours; `kwargs` go to `acquire`.
        When the lease is lost an async `fn` is cancelled, a plain one abandoned, and LeaseLostError raised.
        The units are released in every case."""
        return await run_under(await self.acquire(**kwargs), fn)

    async def _found_id(self) -> str:
        if self._id is None:
            assert self._name is not None  # noqa: S101 - one of the two is given
            self._id = await pool_id(self._space, self._name)
        return self._id


class Place:
    """For the SDK: one caller before a pool. First it tries to acquire, as it may be alone; then it stands in
    the line. On the SDK's own loop."""

    def __init__(
        self,
        space: Space,
        scope_id: str,
        what: str,
        *,
        units: int,
        lease_s: float,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._space = space
        self._what = what
        self._lease_s = lease_s
        self._loop = loop
        self._asked = {"scopeId": scope_id, "units": units}
        self._waiter: Waiter | None = None
        self._acquiring: Request | None = None
        self._lease: PoolLease | None = None

    async def ask(self, pool_id: str, wait_ms: int) -> PoolLease | None:
        """The lease, or None if it is not our turn within `wait_ms`."""
        if self._waiter is None or self._acquiring is not None:
            lease = await self._tried(pool_id)
            if lease is not None or wait_ms == 0:
                return lease
        if self._waiter is None:
            body = {**self._asked, "holder": self._space.transport.holder}
            self._waiter = Waiter(self._space, (_ROOM, pool_id), "permit-waiters", body)
        view = await self._waiter.look(wait_ms)
        return await self._tried(pool_id) if view["state"] == "SIGNALED" else None

    async def acquired(self, pool_id: str, waiter_id: str | None) -> PoolLease | None:
        """One acquire: the lease, or None if it had lapsed before its reply came. Raises what it is refused
        with; after UnavailableError the same call finds out what has happened."""
        if self._acquiring is None:
            body = {**self._asked, **self._space.holder(), "leaseSeconds": seconds(self._lease_s)}
            self._acquiring = Request(
                self._space, _ROOM, pool_id, "acquire", body={**body, "waiterId": waiter_id}
            )
        try:
            answer = await self._acquiring.answer()
        except RunstateError as error:
            if not isinstance(error, UnavailableError):
                self._acquiring = None
            raise
        what = f"the lease of {self._what}"
        self._lease = PoolLease(self._space, what, self._lease_s, answer["grantId"], self._loop)
        sent_at, self._acquiring = self._acquiring.sent_at, None
        if self._waiter is not None:
            self._waiter.forget()
        try:
            await self._lease.begin(answer, sent_at)
        except LeaseLostError:
            return None
        return self._lease

    async def leave(self, lease: PoolLease | None) -> None:
        """Gives up what was taken, or is about to be, and the place in the line."""
        lease = lease or self._lease
        if lease is not None:
            await released(lease)
        if self._acquiring is not None and (answer := await self._acquiring.outcome()) is not None:
            given = {"token": answer["token"]}
            await patiently(
                lambda: self._space.call("POST", "grants", answer["grantId"], "release", body=given)
            )
        if self._waiter is not None:
            await self._waiter.leave()

    async def _tried(self, pool_id: str) -> PoolLease | None:
        waiter_id = None if self._waiter is None else self._waiter.id
        try:
            return await self.acquired(pool_id, waiter_id)
        except ConflictError as error:
            if self._waiter is not None and error.code == "CONFLICT":
                self._waiter.forget()  # it has ended, for it was not looked after: to the end of the line
            elif error.code != _FULL:  # else others wait, or we came too late and wait anew
                raise
            return None


async def pool_id(space: Space, name: str) -> str:
    """The id of the pool of that name; looked up once, never created. Refuses: NotFoundError."""
    if (_ROOM, name) not in space.ids:
        space.ids[_ROOM, name] = str((await space.call("PUT", _ROOM, "by-name", name, body={}))["id"])
    return space.ids[_ROOM, name]


async def sized_pool_id(space: Space, name: str, units: int) -> str:
    """The id of the pool of that name and size, created if there is none; asked for once. See `ensured`."""
    if space.settings.get((_ROOM, name)) != units:
        await ensured(space, name, units)
    return space.ids[_ROOM, name]


async def ensured(space: Space, name: str, units: int) -> dict[str, Any]:
    """The view of the pool of that name, created with so many units if there is none. Refuses: ConflictError
    when it has another size; AuthenticationError when it is missing and the key may not create it."""
    body = {"units": units}
    view = dict(await space.call("PUT", _ROOM, "by-name", check_name("name", name), body=body))
    space.ids[_ROOM, name] = view["id"]
    space.settings[_ROOM, name] = units
    return view
