"""Tasks: messages whose outcome is kept."""

from dataclasses import dataclass
from typing import Any, TypedDict

from runstate._transport import Space
from runstate._waits import until_answered
from runstate.handles.messages import Delivery

_LIVE = frozenset({"QUEUED", "RUNNING"})


class UnitsRequirement(TypedDict):
    """So many units of the pool or quota of that name."""

    name: str
    units: int


class BudgetRequirement(TypedDict):
    """So much of the budget of that name, in minor units, as digits."""

    name: str
    reserveMinor: str


class TaskRequirements(TypedDict, total=False):
    """What a worker takes together with a task, all or nothing: at most 4 pools, 4 quotas, 2 budgets."""

    pools: list[UnitsRequirement]
    quotas: list[UnitsRequirement]
    budgets: list[BudgetRequirement]


class TaskTicket:
    """One task by its id. Local: nothing is asked of the server until a verb is called."""

    def __init__(self, space: Space, task_id: str) -> None:
        self._space = space
        self.id = task_id

    def __repr__(self) -> str:
        return f"TaskTicket({self.id!r})"

    async def status(self) -> dict[str, Any]:
        """The task's view."""
        return dict(await self._space.call("GET", "tasks", self.id))

    async def result(self, *, timeout_ms: int = 30_000, poll_ms: int = 250) -> dict[str, Any]:
        """`{"state", "outcome", "reason"}` once the task is SUCCEEDED, FAILED, CANCELLED or EXPIRED. Asks
        every `poll_ms` where the server cannot hold the question. Refuses: WaitTimeoutError."""
        return await until_answered(
            self._terminal,
            timeout_s=timeout_ms / 1000,
            what=f"the result of task {self.id}",
            poll_s=poll_ms / 1000,
        )

    async def await_admission(self, *, timeout_ms: int = 30_000, poll_ms: int = 250) -> dict[str, Any]:
        """The task's view once a worker has taken it, or it has ended without. Asks every `poll_ms`. Refuses:
        WaitTimeoutError."""
        return await until_answered(
            self._admitted,
            timeout_s=timeout_ms / 1000,
            what=f"the admission of task {self.id}",
            poll_s=poll_ms / 1000,
        )

    async def cancel(self, reason: str | None = None) -> dict[str, Any]:
        """Cancels it, unless it has ended; whoever works on it is refused from now on. Returns the view."""
        return dict(await self._space.call("POST", "tasks", self.id, "cancel", body={"reason": reason}))

    async def join(self, subscriber_id: str, scope_id: str) -> dict[str, Any]:
        """Notes that somebody waits for it. Returns `{"subscribers"}`, how many there are."""
        body = {"subscriberId": subscriber_id, "scopeId": scope_id}
        return dict(await self._space.call("POST", "tasks", self.id, "join", body=body))

    async def detach(self, subscriber_id: str) -> dict[str, Any]:
        """Takes that note back; without subscribers the task goes on."""
        body = {"subscriberId": subscriber_id}
        return dict(await self._space.call("POST", "tasks", self.id, "detach", body=body))

    async def _terminal(self, wait_ms: int) -> dict[str, Any] | None:
        view = await ended_view(self._space, self.id, wait_ms)
        if view is None:
            return None
        return {"state": view["state"], "outcome": view["outcome"], "reason": view["outcomeReason"]}

    async def _admitted(self, _wait_ms: int) -> dict[str, Any] | None:
        view = await self.status()
        return None if view["state"] == "QUEUED" else view


async def ended_view(space: Space, task_id: str, wait_ms: int) -> dict[str, Any] | None:
    """The view of a task that has ended; None if it has not after `wait_ms`, at most 30,000."""
    view = dict(await space.call("GET", "tasks", task_id, wait_ms=wait_ms))
    return None if view["state"] in _LIVE else view


@dataclass(frozen=True)
class AdmittedWork:
    """A task that has been taken, with the resources taken for it; renewed until it is settled, or this
    object is dropped."""

    task: TaskTicket
    delivery: Delivery
    resources: dict[str, Any]
    attempt: int
