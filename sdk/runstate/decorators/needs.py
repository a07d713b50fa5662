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
from runstate._transport import Space
from runstate._units import amount_to_minor
from runstate.decorators.budget import charged, checked_cost, checked_reserve, priced
from runstate.errors import AuthenticationError, ConfigError, RunstateError
from runstate.handles.budgets import BudgetReservation, found
from runstate.handles.lines import UNITS_MAX
from runstate.handles.mailboxes import ensured_id
from runstate.handles.tasks import TaskRequirements, UnitsRequirement

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
        budget_id, scale = await found(space, self.budget.name)
        reserve_minor = amount_to_minor(checked_reserve(self.budget.reserve, scale), scale)
        requirements["budgets"] = [{"name": self.budget.name, "reserveMinor": reserve_minor}]
        return Declared(requirements, Till(self.budget, budget_id, scale, reserve_minor))


@dataclass(frozen=True)
class Till:
    """The budget that the jobs of a queue are paid from."""

    spending: Spending
    budget_id: str
    scale: int
    reserve_minor: str

    def money(self, space: Space, admitted: dict[str, Any]) -> "Money | None":
        """What was reserved with a job. None for one that was submitted with other needs of its own: it is
        not paid from here."""
        if len(admitted["reservations"]) != 1:
            return None
        [reservation_id] = admitted["reservations"]
        view = {"reservationId": reservation_id, "reservedMinor": self.reserve_minor, "state": "ACTIVE"}
        reservation = BudgetReservation(space, self.budget_id, self.scale, view)
        return Money(self.spending, reservation, f"{admitted['taskId']}:{admitted['attempt']}")


@dataclass(frozen=True)
class Declared:
    """What a worker declares for the mailbox, and where its jobs are paid."""

    requirements: TaskRequirements
    till: Till | None

    async def mailbox_id(self, space: Space, name: str, attempts: int) -> str:
        """The id of the mailbox of that name, as it is declared. Refuses: NotFoundError for slots and limits
        that are not there."""
        try:
            return await ensured_id(space, name, max_attempts=attempts, requirements=self.requirements)
        except AuthenticationError:
            if self.requirements:
                raise
            # Needs that somebody else has declared stay, if this key may not clear them.
            return await ensured_id(space, name, max_attempts=attempts)


@dataclass(frozen=True)
class Money:
    """What was reserved for one attempt of a job; the name of the attempt makes that it is charged once."""

    spending: Spending
    reservation: BudgetReservation
    attempt: str

    def price(self, result: Any) -> "Price":
        """Of that result. To be called where the handler runs, for `cost` is the user's."""
        minor, wrong = priced(self.spending.cost, result, self.reservation)
        return Price(self, minor, None if wrong is None else error_text(wrong))


@dataclass(frozen=True)
class Price:
    """What a job that has succeeded is charged; `fault` says why that is not what its cost came to."""

    money: Money
    minor: str
    fault: str | None

    async def paid(self) -> None:
        """Charges it, and gives back what is left. What cannot be charged, for the server is away too long or
        the reservation has ended, is told in the log."""
        failures, until, money = 0, now() + _CHARGE_S_MAX, self.money
        while True:
            try:
                return await charged(money.reservation, self.minor, money.attempt)
            except RunstateError as error:
                if not _retry.is_transient(error) or now() > until:
                    name = money.spending.name
                    _log.error("job %s was not charged to %r: %s", money.attempt, name, error)
                    return None
            failures += 1
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
    reserve, cost = checked_reserve(named.get("reserve"), None), checked_cost(named.get("cost"))
    return Spending(check_name("name in budget=", named.get("name")), reserve, cost)


def _named(what: str, given: Any, fields: set[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not set(given) <= fields:
        raise ConfigError(f"{what}= has {', '.join(sorted(fields))}, not {given!r}")
    return given
