"""limit and take: at most so many in each window of time, over all processes.

Taking goes on on the SDK's shared loop; the function itself runs where it was called."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from runstate._config import check_name, check_whole
from runstate._transport import Space
from runstate._units import duration_s, per_s
from runstate.client import space_of
from runstate.decorators.wrapping import guarded
from runstate.errors import ConfigError
from runstate.handles.allowances import Turn, allowance_id, sized_allowance_id
from runstate.handles.lines import UNITS_MAX, Errand, taken, taken_by_thread
from runstate.handles.scopes import ScopeHandle
from runstate.run import RunCore

P = ParamSpec("P")
R = TypeVar("R")


class Limit:
    """Decorates a function, plain or async, each call of which first takes units of a quota."""

    def __init__(
        self,
        run: Callable[[], RunCore],
        name: str,
        *,
        size: int | None,
        per: Any,
        units: int,
        timeout: float | str,
    ) -> None:
        self.name = check_name("name", name)
        self._run = run
        self._size = quota_size(name, size, per)
        self._units = check_whole("units", units, 1, UNITS_MAX)
        self._timeout_s = duration_s(timeout, "timeout")
        if self._size is not None and self._units > self._size[0]:
            raise ConfigError(f"{self._units} units are more than the {self._size[0]} of the limit {name!r}")

    def __repr__(self) -> str:
        return f"<limit {self.name!r}>"

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The function, called once units have been taken. Refuses: WaitTimeoutError when there were none in
        time, and it was not called."""
        return guarded("limit", _Taking(self), function)

    def errand(self) -> Errand[dict[str, Any]]:
        """Takes the units in the run's scope, waiting in the quota's line. A server that is away is waited
        for, up to the same timeout."""
        run, turn = self._run(), Turn(self._units)

        async def ask(wait_ms: int) -> dict[str, Any] | None:
            async def step(scope: ScopeHandle) -> dict[str, Any] | None:
                space = space_of(run.account.client())
                return await turn.ask(space, scope.id, await self._found_id(space), wait_ms)

            return await run.call(step)

        return turn.errand(
            ask,
            timeout_s=self._timeout_s,
            what=f"{self._units} of the limit {self.name!r}",
            on_outage=run.account.log_outage,
        )

    async def _found_id(self, space: Space) -> str:
        if self._size is None:
            return await allowance_id(space, self.name)
        return await sized_allowance_id(space, self.name, *self._size)


class _Taking:
    """A block before which units are taken."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit

    def __enter__(self) -> None:
        taken_by_thread(self._limit.errand())

    async def __aenter__(self) -> None:
        await taken(self._limit.errand())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LimitRun(RunCore):
    """The part of a Run that keeps to limits."""

    def limit(
        self,
        name: str,
        max: int | None = None,  # noqa: A002 - what the contract calls it
        per: float | str | None = None,
        units: int = 1,
        timeout: float | str = 60,
    ) -> Limit:
        """As `runstate.limit`, in this run instead of the default one."""
        return Limit(lambda: self, name, size=max, per=per, units=units, timeout=timeout)

    def take(self, name: str, units: int = 1, timeout: float | str = 60) -> dict[str, Any]:
        """Takes units of the limit `name`, which must exist, waiting for the next windows up to `timeout`
        (seconds, or "2m"). Returns the consumption: `consumptionId`, `units`. Refuses: WaitTimeoutError,
        NotFoundError, StoppedError. What has been taken is not given back."""
        return taken_by_thread(self.limit(name, units=units, timeout=timeout).errand())

    async def atake(self, name: str, units: int = 1, timeout: float | str = 60) -> dict[str, Any]:
        """As `take`."""
        return await taken(self.limit(name, units=units, timeout=timeout).errand())


def quota_size(name: str, size: Any, per: Any) -> tuple[int, int] | None:
    """Units and seconds of a window, as given in the code; None when neither is."""
    if size is None and per is None:
        return None
    if size is None or per is None:
        raise ConfigError(f"the limit {name!r} needs max= and per= together, or neither")
    return check_whole("max", size, 1, UNITS_MAX), per_s(per)
