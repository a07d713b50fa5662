"""Allowances, which the SDK calls quotas: so many units in each window of time, first come, first served."""

from collections.abc import Awaitable, Callable
from typing import Any

from runstate._config import check_name, check_whole
from runstate._transport import Space
from runstate._waits import until_answered
from runstate.errors import NotFoundError, RateLimitError, RunstateError, UnavailableError, WaitTimeoutError
from runstate.handles.lines import UNITS_MAX, Errand, Request, Waiter, taken

WINDOW_S_MAX = 86_400
_ROOM = "allowances"
_SPENT = frozenset({"ALLOWANCE_EXHAUSTED", "ALLOWANCE_COOLDOWN"})


class AllowancesAdminAPI:
    """The quotas of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def ensure(self, name: str, *, units_per_window: int, window_seconds: int) -> dict[str, Any]:
        """The view of the quota of that name, created with `units_per_window` units in each window of
        `window_seconds` if there is none. Refuses: ConflictError, naming both, when it has another size;
        AuthenticationError when it is missing and the key may not create it."""
        units = check_whole("units_per_window", units_per_window, 1, UNITS_MAX)
        window_s = check_whole("window_seconds", window_seconds, 1, WINDOW_S_MAX)
        return await ensured(self._space, name, units, window_s)


class AllowanceRef:
    """A quota, by its id or by its name (looked up at the first use), as one scope uses it."""

    def __init__(
        self, space: Space, scope_id: str, *, name: str | None = None, allowance_id: str | None = None
    ) -> None:
        self._space = space
        self._name = None if name is None else check_name("name", name)
        self._id = allowance_id
        self.scope_id = scope_id

    def __repr__(self) -> str:
        return f"AllowanceRef({self._name or self._id!r}, scope_id={self.scope_id!r})"

    async def status(self) -> dict[str, Any] | None:
        """The view: `unitsLimit`, `consumed` and `remaining` in the window that began at `windowStart`,
        `cooldownUntil`, and `waiting`, how many stand in the line. None when there is no quota of this id."""
        allowance_id = await self._found_id()
        try:
            return dict(await self._space.call("GET", _ROOM, allowance_id))
        except NotFoundError:
            return None

    async def try_take(self, *, units: int = 1) -> dict[str, Any]:
        """`{"kind": "consumed", "consumption"}`, or, at once, `{"kind": "exhausted"}`: too few are left in
        this window, others wait for them, or nothing is granted for a while."""
        turn = Turn(units)

        async def consumed() -> dict[str, Any]:
            return await turn.consumed(self._space, self.scope_id, await self._found_id())

        try:
            return {"kind": "consumed", "consumption": await taken(Errand(consumed, turn.leave))}
        except RateLimitError as error:
            if error.code not in _SPENT:
                raise
            return {"kind": "exhausted"}

    async def take(self, *, units: int = 1, wait: bool = True, timeout_ms: int = 30_000) -> dict[str, Any]:
        """Takes units of this window or, standing in the line, of the next one that has them. Returns the
        consumption: `consumptionId`, `units`. Refuses: WaitTimeoutError when there were none in time, at once
        without `wait`; it has left the line then, as when it is cancelled. More than a window has is refused
        at once. What has been taken is not given back."""
        what = f"{units} of the quota {self._name or self._id!r}"
        if not wait:
            found = await self.try_take(units=units)
            if found["kind"] == "exhausted":
                raise WaitTimeoutError(f"{what} are not left in this window")
            return dict(found["consumption"])
        turn = Turn(units)

        async def ask(wait_ms: int) -> dict[str, Any] | None:
            return await turn.ask(self._space, self.scope_id, await self._found_id(), wait_ms)

        return await taken(turn.errand(ask, timeout_s=timeout_ms / 1000, what=what))

    async def cooldown(self, seconds: int, reason: str | None = None) -> dict[str, Any]:
        """Nothing is granted to anybody for so long, 1 to 86,400 s; never shortens a longer one. Returns
        `{"cooldownUntil"}`."""
        body = {"seconds": check_whole("seconds", seconds, 1, WINDOW_S_MAX), "reason": reason}
        return dict(await self._space.call("POST", _ROOM, await self._found_id(), "cooldown", body=body))

    async def _found_id(self) -> str:
        if self._id is None:
            assert self._name is not None  # noqa: S101 - one of the two is given
            self._id = await allowance_id(self._space, self._name)
        return self._id


class Turn:
    """For the SDK: one caller before a quota. First it tries to consume, as there may be units left; then it
    stands in the line. On the SDK's own loop."""

    def __init__(self, units: int) -> None:
        self._units = check_whole("units", units, 1, UNITS_MAX)
        self._waiter: Waiter | None = None
        self._consuming: Request | None = None

    def errand(
        self,
        ask: Callable[[int], Awaitable[dict[str, Any] | None]],
        *,
        timeout_s: float,
        what: str,
        on_outage: Callable[[RunstateError], Any] | None = None,
    ) -> Errand[dict[str, Any]]:
        """Asks until there is a consumption, up to `timeout_s`. One that comes while it gives up counts."""

        async def take() -> dict[str, Any]:
            try:
                return await until_answered(ask, timeout_s=timeout_s, what=what, on_outage=on_outage)
            except WaitTimeoutError:
                view = None if self._waiter is None else await self._waiter.leave()
                if view is None or view["state"] != "GRANTED":
                    raise
                return self._granted(view)

        return Errand(take, self.leave)

    async def ask(
        self, space: Space, scope_id: str, allowance_id: str, wait_ms: int
    ) -> dict[str, Any] | None:
        """The consumption, or None if there are no units for us within `wait_ms`."""
        if self._waiter is None:
            try:
                return await self.consumed(space, scope_id, allowance_id)
            except RateLimitError as error:
                if error.code not in _SPENT:
                    raise
            if wait_ms == 0:
                return None
            body = self._body(space, scope_id)
            self._waiter = Waiter(space, (_ROOM, allowance_id), "allowance-waiters", body)
        view = await self._waiter.look(wait_ms)
        if view["state"] != "GRANTED":
            return None
        self._waiter.forget()
        return self._granted(view)

    async def consumed(self, space: Space, scope_id: str, allowance_id: str) -> dict[str, Any]:
        """One consume. Raises what it is refused with; after UnavailableError the same call finds out what
        has happened."""
        if self._consuming is None:
            body = self._body(space, scope_id)
            self._consuming = Request(space, _ROOM, allowance_id, "consume", body=body)
        try:
            answer = await self._consuming.answer()
        except RunstateError as error:
            if not isinstance(error, UnavailableError):
                self._consuming = None
            raise
        self._consuming = None
        return answer

    async def leave(self, _consumption: dict[str, Any] | None) -> None:
        """Gives up the place in the line. What has been consumed stays so."""
        if self._waiter is not None:
            await self._waiter.leave()

    def _granted(self, view: dict[str, Any]) -> dict[str, Any]:
        return {"consumptionId": view["consumptionId"], "units": self._units}

    def _body(self, space: Space, scope_id: str) -> dict[str, Any]:
        return {"scopeId": scope_id, "units": self._units, "holder": space.transport.holder}


async def allowance_id(space: Space, name: str) -> str:
    """The id of the quota of that name; looked up once, never created. Refuses: NotFoundError."""
    if (_ROOM, name) not in space.ids:
        space.ids[_ROOM, name] = str((await space.call("PUT", _ROOM, "by-name", name, body={}))["id"])
    return space.ids[_ROOM, name]


async def sized_allowance_id(space: Space, name: str, units: int, window_s: int) -> str:
    """The id of the quota of that name and size, created if there is none; asked for once. See `ensured`."""
    if space.settings.get((_ROOM, name)) != (units, window_s):
        await ensured(space, name, units, window_s)
    return space.ids[_ROOM, name]


async def ensured(space: Space, name: str, units: int, window_s: int) -> dict[str, Any]:
    """The view of the quota of that name, created with so many units in each window if there is none.
    Refuses: ConflictError when it has another size; AuthenticationError when it is missing and the key may
    not create it."""
    body = {"unitsLimit": units, "windowSeconds": window_s}
    view = dict(await space.call("PUT", _ROOM, "by-name", check_name("name", name), body=body))
    space.ids[_ROOM, name] = view["id"]
    space.settings[_ROOM, name] = (units, window_s)
    return view
