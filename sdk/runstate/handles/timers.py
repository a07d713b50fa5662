"""Timers: instants that the server keeps, through restarts of everybody."""

import contextlib
from datetime import datetime
from typing import Any

from runstate._transport import Space
from runstate._waits import until_answered
from runstate.errors import ConfigError, ConflictError, RunstateError, ScopeCancelledError, map_error
from runstate.handles.leases import instant

_FIRED = frozenset({"FIRED", "ACKED"})
_CONFLICT = 409


class TimerHandle:
    """One timer. `scope_id`: the scope it was set, or looked up, in. `fire_at`: its time, a datetime; None
    where the handle was made of an id alone."""

    def __init__(self, space: Space, scope_id: str, timer_id: str, fire_at: datetime | None = None) -> None:
        self._space = space
        self.id = timer_id
        self.scope_id = scope_id
        self.fire_at = fire_at

    def __repr__(self) -> str:
        return f"TimerHandle({self.id!r})"

    async def wait(self, *, timeout_ms: int = 30_000, poll_ms: int = 250) -> dict[str, Any]:
        """`{"fired_at": datetime}` once the timer has fired, and acknowledges it. Asks every `poll_ms` where
        the server cannot hold the question. Refuses: ConflictError when it was cancelled, and when its
        scope's deadline came first (DEADLINE_EXCEEDED); ScopeCancelledError when its scope has ended;
        WaitTimeoutError."""
        view = await until_answered(
            self._over,
            timeout_s=timeout_ms / 1000,
            what=f"the time of timer {self.id}",
            poll_s=poll_ms / 1000,
        )
        if view["state"] not in _FIRED:
            raise await self._why_not(view)
        if view["state"] == "FIRED":
            # Whoever polls the scope need not be told of it any more. If that fails, they are: no harm.
            with contextlib.suppress(RunstateError):
                await self._acknowledge(view["scopeId"])
        return {"fired_at": instant(view["firedAt"])}

    async def cancel(self) -> dict[str, Any]:
        """Cancels it; again is a no-op. Returns the view. Refuses: ConflictError when it has fired."""
        return dict(await self._space.call("POST", "timers", self.id, "cancel", body={}))

    async def _over(self, wait_ms: int) -> dict[str, Any] | None:
        return await ended_view(self._space, self.id, wait_ms)

    async def _acknowledge(self, scope_id: str) -> None:
        """By the token, which is told to whoever polls the scope."""
        polled = await self._space.call("POST", "timers", "poll", body={"scopeId": scope_id})
        for timer in polled["timers"]:
            if timer["id"] == self.id:
                await acknowledge(self._space, self.id, timer["token"])

    async def _why_not(self, view: dict[str, Any]) -> RunstateError:
        if view["state"] == "EXPIRED":
            text = f"the deadline of its scope came before timer {self.id}"
            return map_error("DEADLINE_EXCEEDED", _CONFLICT, text)
        scope = await self._space.call("GET", "scopes", view["scopeId"])
        if scope["effective"] != "ACTIVE":
            return ScopeCancelledError(
                f"scope {scope['id']} is {scope['effective']}: timer {self.id} does not fire",
                status=_CONFLICT,
            )
        return ConflictError(f"timer {self.id} was cancelled", status=_CONFLICT)


class TimersAPI:
    """The timers of one scope."""

    def __init__(self, space: Space, scope_id: str) -> None:
        self._space = space
        self._scope_id = scope_id

    async def create(
        self, *, after_seconds: float | None = None, at: str | datetime | None = None
    ) -> TimerHandle:
        """A new timer, `after_seconds` from now or `at` an instant (RFC 3339, or a datetime with a time
        zone): one of them, at most 366 days ahead. Refuses: an ended scope."""
        body = {"scopeId": self._scope_id, **when(after_seconds, at)}
        view = await self._space.call("POST", "timers", body=body)
        return TimerHandle(self._space, self._scope_id, view["id"], instant(view["fireAt"]))

    def get(self, timer_id: str) -> TimerHandle:
        """A timer whose id is known. Local, so `fire_at` is None."""
        return TimerHandle(self._space, self._scope_id, timer_id)


def when(after_s: float | None, at: str | datetime | None) -> dict[str, Any]:
    """The time of a timer as the API takes it. Refuses (ConfigError) both and neither, and a datetime without
    a time zone."""
    if (after_s is None) == (at is None):
        raise ConfigError("a timer has one time: give a number of seconds from now, or an instant")
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ConfigError(f"an instant needs a time zone: {at.isoformat()} has none")
        at = at.isoformat()
    return {"afterSeconds": after_s} if at is None else {"at": at}


async def ended_view(space: Space, timer_id: str, wait_ms: int) -> dict[str, Any] | None:
    """The view of a timer that is no longer pending; None if it is after `wait_ms`, at most 30,000."""
    view = dict(await space.call("GET", "timers", timer_id, wait_ms=wait_ms))
    return None if view["state"] == "PENDING" else view


async def named_timer(space: Space, scope_id: str, name: str, time: dict[str, Any]) -> dict[str, Any]:
    """The view of the scope's timer of that name, with its token if it has fired. If there is none, it is set
    to that time."""
    return dict(await space.call("PUT", "timers", "by-name", name, body={"scopeId": scope_id, **time}))


async def acknowledge(space: Space, timer_id: str, token: str) -> None:
    """Takes note that it has fired, for everybody."""
    await space.call("POST", "timers", timer_id, "ack", body={"token": token})
