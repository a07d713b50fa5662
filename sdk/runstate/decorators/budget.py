"""budget: money reserved before each call of a function, and its price charged after.

Reserving and charging go on on the SDK's shared loop; the function itself runs where it was called."""

import asyncio
import concurrent.futures
import functools
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import Any, ParamSpec, TypeVar, cast

from runstate._background import shared
from runstate._config import check_name
from runstate._crew import is_async
from runstate._units import amount_to_minor, decimal_to_minor
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.decorators.wrapping import check_function
from runstate.errors import ConfigError, RunstateError
from runstate.handles.budgets import Asking, BudgetReservation, checked
from runstate.handles.leases import seen
from runstate.handles.lines import Errand, patiently, taken, taken_by_thread
from runstate.handles.scopes import ScopeHandle
from runstate.run import RunCore

P = ParamSpec("P")
R = TypeVar("R")

CURRENCY, SCALE = "USD", 2
AMOUNT_MAX = 10**18  # minor units
_SCALE_MAX = 9
_CURRENCY = re.compile("[A-Z]{3}")
_SETTLE_BY = timedelta(days=1)
_OUTAGE_S_MAX = 60.0
_VOIDED_S_MAX = 5.0


class Budget:
    """Decorates a function, plain or async: each call reserves money first, and is charged after."""

    def __init__(
        self,
        run: Callable[[], RunCore],
        name: str,
        *,
        reserve: Any,
        cost: Callable[[Any], Any] | None,
        limit: Any,
        currency: str,
        scale: int,
    ) -> None:
        self.name = check_name("name", name)
        self._run = run
        self._settings = budget_settings(name, limit, currency, scale)
        self._reserve = checked_reserve(reserve, None if limit is None else scale)
        self._cost = checked_cost(cost)

    def __repr__(self) -> str:
        return f"<budget {self.name!r}>"

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The function, called once its money is reserved. Refuses: BudgetExceededError when the budget has
        less left, and it was not called."""
        check_function("budget", function)
        return self._async_face(function) if is_async(function) else self._plain_face(function)

    def _plain_face(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            spending = _Spending(self._run(), self)
            money = taken_by_thread(spending.errand())
            try:
                result = function(*args, **kwargs)
            except BaseException:
                concurrent.futures.wait([shared.submit(given_back(money))], timeout=_VOIDED_S_MAX)
                raise
            price, wrong = priced(self._cost, result, money)
            shared.run(spending.charged(money, price))
            if wrong is not None:
                raise wrong
            return result

        return call

    def _async_face(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            spending = _Spending(self._run(), self)
            money = await taken(spending.errand())
            try:
                result = await cast("Any", function)(*args, **kwargs)
            except BaseException:
                giving_back = shared.begun(given_back(money))
                giving_back.add_done_callback(seen)
                await asyncio.wait({giving_back}, timeout=_VOIDED_S_MAX)
                raise
            price, wrong = priced(self._cost, result, money)
            charging = shared.begun(spending.charged(money, price))
            charging.add_done_callback(seen)
            await asyncio.wait({charging})  # it goes on when this call is cancelled: the money is spent
            charging.result()
            if wrong is not None:
                raise wrong
            return result

        return cast("Callable[P, R]", call)

    async def reserving(self, run: RunCore, scope: ScopeHandle) -> Asking:
        """The reservation of one call in that scope, still to be made. Creates or checks the budget."""
        space = space_of(run.account.client())
        await checked(space, self.name, *self._settings)
        # By this process's clock: a day, so that an hour of difference to the server's is no matter.
        settle_by = (datetime.now(timezone.utc) + _SETTLE_BY).isoformat()
        return Asking(space, scope.id, self.name, self._reserve, settle_by)


class _Spending:
    """The money of one call: reserved, then charged. A server that is away is waited for, up to a minute."""

    def __init__(self, run: RunCore, budget: Budget) -> None:
        self._run = run
        self._budget = budget
        self._asking: Asking | None = None

    def errand(self) -> Errand[BudgetReservation]:
        """Reserves the money in the run's scope."""
        return Errand(self._reserve, self._leave)

    async def charged(self, money: BudgetReservation, price_minor: str) -> None:
        """Charges the price, and gives back what is left. Also in a run that has ended."""
        await self._patiently(lambda: charged(money, price_minor))

    async def _reserve(self) -> BudgetReservation:
        async def step(scope: ScopeHandle) -> BudgetReservation:
            if self._asking is None:
                self._asking = await self._budget.reserving(self._run, scope)
            return await self._asking.reserve()

        return await self._patiently(lambda: self._run.call(step))

    async def _leave(self, money: BudgetReservation | None) -> None:
        if self._asking is not None:
            await self._asking.leave(money)

    async def _patiently(self, call: Callable[[], Awaitable[R]]) -> R:
        async def ask(_wait_ms: int) -> tuple[R]:
            return (await call(),)

        (answer,) = await until_answered(
            ask,
            timeout_s=_OUTAGE_S_MAX,
            what=f"the answer about the budget {self._budget.name!r}",
            on_outage=self._run.account.log_outage,
        )
        return answer


class BudgetRun(RunCore):
    """The part of a Run that spends money."""

    def budget(
        self,
        name: str,
        reserve: Any,
        *,
        cost: Callable[[Any], Any] | None = None,
        limit: Any = None,
        currency: str = CURRENCY,
        scale: int = SCALE,
    ) -> Budget:
        """As `runstate.budget`, in this run instead of the default one."""
        return Budget(
            lambda: self, name, reserve=reserve, cost=cost, limit=limit, currency=currency, scale=scale
        )


async def charged(money: BudgetReservation, price_minor: str, usage_key: str | None = None) -> None:
    """Charges the price, more than is reserved too, and gives back what is left: once, however often it is
    called, under the reservation's own id or `usage_key`."""
    key = usage_key or money.id
    answer = await money.charge(price_minor, key, allow_overrun=True)
    if answer["state"] == "ACTIVE":
        await money.void(usage_key=key)


async def given_back(money: BudgetReservation) -> None:
    """Voids it, unless that cannot be done in half a minute; it is stale by itself in a day."""
    await patiently(lambda: money.void(usage_key=money.id))


def priced(
    cost: Callable[[Any], Any] | None, result: Any, money: BudgetReservation
) -> tuple[str, RunstateError | None]:
    """What a call costs in minor units, and what to raise after it is charged: what was reserved, and a
    ConfigError, when `cost` fails."""
    if cost is None:
        return money.reserved_minor, None
    try:
        price = amount_to_minor(cost(result), money.scale)
        if int(price) > AMOUNT_MAX:
            raise ConfigError(f"{price} minor units are more than an amount can be")  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - the work is done and has to be paid
        wrong = ConfigError(f"cost failed, so the reserve of {money.reserved} was charged: {error}")
        wrong.__cause__ = error
        return money.reserved_minor, wrong
    return price, None


def checked_reserve(reserve: Any, scale: int | None) -> Any:
    """The amount to reserve as it was given. Refuses (ConfigError) what is no amount, and nothing at all."""
    digits = amount_to_minor(reserve, _SCALE_MAX if scale is None else scale)
    most = AMOUNT_MAX if scale is not None else AMOUNT_MAX * 10**_SCALE_MAX
    if not 0 < int(digits) <= most:
        raise ConfigError(f"reserve must be more than 0 at the budget's scale, not {reserve!r}")
    return reserve


def checked_cost(cost: Any) -> Callable[[Any], Any] | None:
    """The function that tells a result's price. Refuses (ConfigError) what is none, and async ones."""
    if cost is not None and (not callable(cost) or is_async(cost)):
        raise ConfigError(f"cost must be a plain function of the result, not {cost!r}")
    return cast("Callable[[Any], Any] | None", cost)


def budget_settings(
    name: str, limit: Any, currency: Any, scale: Any
) -> tuple[str | None, int | None, str | None]:
    """Currency, scale and limit (minor units) to create a budget with or to check; None where a budget that
    exists is taken as it is. Refuses (ConfigError) what it cannot use."""
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise ConfigError(f'the currency of {name!r} is three capitals, such as "USD", not {currency!r}')
    decimal_to_minor("0", scale)
    if limit is not None:
        return currency, scale, amount_to_minor(limit, scale)
    given = currency if currency != CURRENCY else None, scale if scale != SCALE else None
    return (*given, None)
