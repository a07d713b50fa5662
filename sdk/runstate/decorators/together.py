"""together: everybody waits until so many workers have come."""

from runstate._background import shared
from runstate._config import check_name, check_whole
from runstate._transport import new_idempotency_key
from runstate._units import duration_s
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.handles.barriers import TARGET_MAX, Round, arrive, named_barrier_id
from runstate.handles.scopes import ScopeHandle
from runstate.run import RunCore


class TogetherRun(RunCore):
    """The part of a Run in which workers wait for each other."""

    def together(self, name: str, count: int, timeout: float | str | None = 60) -> None:
        """As `runstate.together`, in this run instead of the default one."""
        shared.run(_Meeting(self, name, count, timeout).held())

    async def atogether(self, name: str, count: int, timeout: float | str | None = 60) -> None:
        """As `together`."""
        await shared.arun(_Meeting(self, name, count, timeout).held())


class _Meeting:
    """One caller on its way to the barrier, and at it. On the shared loop."""

    def __init__(self, run: RunCore, name: str, count: int, timeout: float | str | None) -> None:
        self._run = run
        self._name = check_name("name", name)
        self._count = check_whole("count", count, 1, TARGET_MAX)
        self._timeout_s = None if timeout is None else duration_s(timeout, "timeout")
        self._barrier_id: str | None = None
        self._round: Round | None = None
        # One for all attempts: an arrival whose answer was lost is not counted again, after a reset either.
        self._arrival = new_idempotency_key()

    async def held(self) -> None:
        """Until all have come. A server that is away is waited for, up to the same timeout."""
        await until_answered(
            self._ask,
            timeout_s=self._timeout_s,
            what=f"the {self._count} of {self._name!r}",
            on_outage=self._run.account.log_outage,
        )

    async def _ask(self, wait_ms: int) -> bool | None:
        async def step(scope: ScopeHandle) -> bool | None:
            space = space_of(self._run.account.client())
            worker = space.transport.holder
            if self._barrier_id is None:
                self._barrier_id = await named_barrier_id(space, scope.id, self._name, self._count)
            if self._round is None:
                answer = await arrive(space, self._barrier_id, worker, idempotency_key=self._arrival)
                self._round = Round(space, self._barrier_id, answer["epoch"])
                if answer["state"] == "RELEASED":
                    return True
            view = await self._round.over(wait_ms)
            if view is not None and view["state"] == "CANCELLED":
                await arrive(space, self._barrier_id, worker)  # refused, with the reason why
            return None if view is None else True

        return await self._run.call(step)
