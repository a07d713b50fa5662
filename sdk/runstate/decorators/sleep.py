"""sleep: a wait that outlives the process that waits."""

from datetime import datetime
from typing import Any

from runstate._background import shared
from runstate._clock import now
from runstate._config import check_name
from runstate._units import duration_s
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.errors import ConfigError, ConflictError
from runstate.handles.scopes import ScopeHandle
from runstate.handles.timers import acknowledge, ended_view, named_timer, when
from runstate.run import RunCore


class SleepRun(RunCore):
    """The part of a Run that sleeps."""

    def sleep(
        self,
        name: str,
        duration: float | str | None = None,
        *,
        until: str | datetime | None = None,
    ) -> None:
        """As `runstate.sleep`, in this run instead of the default one."""
        shared.run(_Sleep(self, name, duration, until).over())

    async def asleep(
        self,
        name: str,
        duration: float | str | None = None,
        *,
        until: str | datetime | None = None,
    ) -> None:
        """As `sleep`."""
        await shared.arun(_Sleep(self, name, duration, until).over())


class _Sleep:
    """One caller that sleeps. On the shared loop."""

    def __init__(self, run: RunCore, name: str, duration: Any, until: Any) -> None:
        self._run = run
        self._name = check_name("name", name)
        self._timer_id: str | None = None
        if (duration is None) == (until is None):
            raise ConfigError("sleep takes a duration, or until=")
        if until is not None and not isinstance(until, (str, datetime)):
            raise ConfigError(f"until must be an instant (RFC 3339, or a datetime), not {until!r}")
        self._wakes_at = None if duration is None else now() + duration_s(duration)
        self._until = until if until is None else when(None, until)

    async def over(self) -> None:
        """Until it is time. A server that is away is waited for, however long that takes."""
        await until_answered(
            self._ask,
            timeout_s=None,
            what=f"the end of sleep {self._name!r}",
            on_outage=self._run.account.log_outage,
        )

    async def _ask(self, wait_ms: int) -> bool | None:
        return await self._run.call(lambda scope: self._slept(scope, wait_ms))

    async def _slept(self, scope: ScopeHandle, wait_ms: int) -> bool | None:
        space = space_of(self._run.account.client())
        view = None
        if self._timer_id is None:
            view = await named_timer(space, scope.id, self._name, self._time())
            self._timer_id = str(view["id"])
        if view is None or view["state"] == "PENDING":
            if await ended_view(space, self._timer_id, wait_ms) is None:
                return None
            view = await named_timer(space, scope.id, self._name, self._time())  # tells the token
        if view["state"] == "FIRED":
            await acknowledge(space, view["id"], view["token"])
        elif view["state"] != "ACKED":
            raise ConflictError(f"the timer of sleep {self._name!r} was cancelled")
        return True

    def _time(self) -> dict[str, Any]:
        """What the first caller of the name sets; what has passed since the call counts, too."""
        if self._wakes_at is not None:
            return when(max(0.0, self._wakes_at - now()), None)
        assert self._until is not None  # noqa: S101 - one of the two is given
        return self._until
