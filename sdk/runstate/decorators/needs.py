"""What the jobs of a queue need besides a worker: slots, units of a limit, money. A worker takes a job and
all of them in one step, or none."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runstate import _retry
from runstate._clock import now
from runstate._config import check_name, check_whole
from runstate._crew import error_text
from runstate._transport import Space, new_idempotency_key
from runstate._units import amount_to_minor
from runstate.errors import ConfigError, RunstateError
from runstate.handles.lines import UNITS_MAX
from runstate.handles.tasks import TaskRequirements, UnitsRequirement

_SCALE_MAX = 9
_BUDGETS = "budgets"
_CHARGE_S_MAX = 60.0
_log = logging.getLogger("runstate")


@dataclass(frozen=True)
class Spending:
    """What a job may cost: reserved before it begins, charged when it has succeeded. `cost(result)` says how
    much, in major units; without it that is the reserve."""

    name: str
    reserve: Any
    cost: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Needs:
    """As `queue` was given them."""

    slots: UnitsRequirement | None = None
    limit: UnitsRequirement | None = None
    budget: Spending | None = None

    async def declared(self, space: Space) -> "Declared":
        """As the server takes them. Refuses: NotFoundError for a budget that is not there, ConfigError for a
        reserve that its scale cannot hold."""
        requirements: TaskRequirements = {}
        if self.slots is not None:
            requirements["pools"] = [self.slots]
        if self.limit is not None:
            requirements["quotas"] = [self.limit]
        if self.budget is None:
            return Declared(requirements, None)
        view = await space.call("PUT", _BUDGETS, "by-name", self.budget.name, body={})
        reserve_minor = amount_to_minor(self.budget.reserve, view["scale"])
        requirements["budgets"] = [{"name": self.budget.name, "reserveMinor": reserve_minor}]
        return Declared(requirements, Till(self.budget, view["id"], view["scale"], reserve_minor))


@dataclass(frozen=True)
class Declared:
    """What a worker declares for the mailbox, and the till that it pays at, if there is one."""

    requirements: TaskRequirements
    till: "Till | None"


@dataclass(frozen=True)
class Price:
    """What a job that has succeeded is charged; `fault` says why that is not what its cost came to."""

    till: "Till"
    minor: str
    fault: str | None = None

    async def paid(self, space: Space, admitted: dict[str, Any]) -> None:
        """Charges it to the reservation that was taken with the job, once for each attempt. What cannot be
        charged, for the server is away too long or the reservation has ended, is told in the log."""
        reservations, task_id = admitted["reservations"], admitted["taskId"]
        if (
            len(reservations) != 1
        ):  # a job that was submitted with needs of its own is not paid from this till
            return
        try:
            await self.till.charged(space, reservations[0], f"{task_id}:{admitted['attempt']}", self.minor)
        except RunstateError as error:
            _log.error("job %s was not charged to %r: %s", task_id, self.till.spending.name, error)


@dataclass(frozen=True)
class Till:
    """The budget that jobs are paid from."""

    spending: Spending
    budget_id: str
    scale: int
    reserve_minor: str

    def price(self, result: Any) -> Price:
        """Of that result; where the handler runs, for `cost` is the user's. When `cost` fails it is the
        reserve, and that is the job's fault."""
        if self.spending.cost is None:
            return Price(self, self.reserve_minor)
        try:
            return Price(self, amount_to_minor(self.spending.cost(result), self.scale))
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises
            return Price(
                self, self.reserve_minor, f"ConfigError: cost= of the queue failed: {error_text(error)}"
            )

    async def charged(self, space: Space, reservation_id: str, work_key: str, minor: str) -> None:
        """Charges it and gives back what is left of the reservation, once for each `work_key`. More than was
        reserved is charged too, as far as the budget has it. Raises what the server refuses."""
        body = {"reservationId": reservation_id, "workKey": work_key}
        answer: dict[str, Any] = {"state": "ACTIVE"}
        if minor != "0":
            spent = {**body, "amountMinor": minor, "allowOverrun": True}
            answer = await self._posted(space, "settle", spent)
        if answer["state"] == "ACTIVE":
            await self._posted(space, "void", body)

    async def _posted(self, space: Space, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        key, failures, until = new_idempotency_key(), 0, now() + _CHARGE_S_MAX
        while True:
            try:
                answer = await space.call(
                    "POST", _BUDGETS, self.budget_id, verb, body=body, idempotency_key=key
                )
            except RunstateError as error:
                if not _retry.is_transient(error) or now() > until:
                    raise
                failures += 1
            else:
                return dict(answer)
            await asyncio.sleep(_retry.attempt_pause_s(failures))


def checked_needs(slots: Any, limit: Any, budget: Any) -> Needs:
    """What `slots=`, `limit=` and `budget=` of a queue say. Refuses (ConfigError) what says nothing clear."""
    return Needs(_units("slots", slots), _units("limit", limit), _spending(budget))


def _units(what: str, given: Any) -> UnitsRequirement | None:
    if given is None:
        return None
    if isinstance(given, str):
        given = {"name": given}
    named = _named(what, given, {"name", "units"})
    units = check_whole(f"units in {what}=", named.get("units", 1), 1, UNITS_MAX)
    return {"name": check_name(f"name in {what}=", named.get("name")), "units": units}


def _spending(given: Any) -> Spending | None:
    if given is None:
        return None
    named = _named("budget", given, {"name", "reserve", "cost"})
    cost = named.get("cost")
    if cost is not None and not callable(cost):
        raise ConfigError("cost in budget= must be a function of the result that returns an amount")
    amount_to_minor(named.get("reserve"), _SCALE_MAX)  # the budget's own scale is known to its worker only
    return Spending(check_name("name in budget=", named.get("name")), named["reserve"], cost)


def _named(what: str, given: Any, fields: set[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not set(given) <= fields:
        raise ConfigError(f"{what}= has {', '.join(sorted(fields))}, not {given!r}")
    return given
