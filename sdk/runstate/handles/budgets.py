"""Budgets: money that is reserved before it is spent and settled after. Amounts are major units ("12.50"),
exact at the budget's scale."""

from typing import Any

from runstate._config import check_name
from runstate._transport import Space
from runstate._units import amount_to_minor, minor_to_decimal
from runstate.handles.lines import Errand, Request, patiently, taken

_ROOM = "budgets"
_CHECKED = "budgets, as asked for"


class BudgetsAdminAPI:
    """The budgets of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def ensure(self, name: str, *, currency: str, scale: int, limit: str) -> dict[str, Any]:
        """The view of the budget of that name, created if there is none: `limit` in major units, of which
        `scale` digits stand after the point. Refuses: ConflictError, naming both, when it has other settings;
        AuthenticationError when it is missing and the key may not create it."""
        return await ensured(self._space, name, currency, scale, amount_to_minor(limit, scale))


class BudgetRef:
    """A budget, by its name (looked up at the first use), as one scope uses it."""

    def __init__(self, space: Space, scope_id: str, name: str) -> None:
        self._space = space
        self._name = check_name("name", name)
        self.scope_id = scope_id

    def __repr__(self) -> str:
        return f"BudgetRef({self._name!r}, scope_id={self.scope_id!r})"

    async def status(self) -> dict[str, Any]:
        """The view: `limitMinor`, `reservedMinor`, `settledMinor`, `availableMinor` and `overrunMinor`, in
        minor units, and `reservations`. Refuses: NotFoundError."""
        budget_id, _ = await found(self._space, self._name)
        return dict(await self._space.call("GET", _ROOM, budget_id))

    async def reserve(self, *, amount: str, settle_by: str | None = None) -> "BudgetReservation":
        """Sets money aside. Past `settle_by` (RFC 3339) the reservation is STALE and its money back. Refuses:
        BudgetExceededError when the budget has less left. Cancelled, it leaves nothing reserved."""
        asking = Asking(self._space, self.scope_id, self._name, amount, settle_by)
        return await taken(Errand(asking.reserve, asking.leave))


class BudgetReservation:
    """Money that is set aside. `reserved_minor` and `state` are as of `reserve`."""

    def __init__(self, space: Space, budget_id: str, scale: int, view: dict[str, Any]) -> None:
        self._space = space
        self._budget_id = budget_id
        self.scale = scale
        self.id = str(view["reservationId"])
        self.reserved_minor = str(view["reservedMinor"])
        self.state = str(view["state"])

    def __repr__(self) -> str:
        return f"BudgetReservation({self.id!r}, reserved={self.reserved!r})"

    @property
    def reserved(self) -> str:
        """What was set aside, in major units."""
        return minor_to_decimal(self.reserved_minor, self.scale)

    async def settle(self, *, amount: str, usage_key: str) -> dict[str, Any]:
        """Charges `amount`, once for each `usage_key`; what is left stays reserved. Returns `entryId`,
        `reservedMinor` (what is left), `state`, `replay`, `chargedMinor`, `overrunMinor`. Refuses:
        ConflictError for more than is reserved, one that has ended, a key used for something else."""
        return await self.charge(amount_to_minor(amount, self.scale), usage_key)

    async def void(self, *, usage_key: str) -> dict[str, Any]:
        """Gives back what is left, once for each `usage_key`. Returns and refuses as `settle`."""
        body = {"reservationId": self.id, "workKey": usage_key}
        return dict(await self._space.call("POST", _ROOM, self._budget_id, "void", body=body))

    async def charge(
        self, amount_minor: str, usage_key: str, *, allow_overrun: bool | None = None
    ) -> dict[str, Any]:
        """For the SDK: `settle` in minor units; with `allow_overrun` more than is reserved is charged."""
        body = {
            "reservationId": self.id,
            "amountMinor": amount_minor,
            "workKey": usage_key,
            "allowOverrun": allow_overrun,
        }
        return dict(await self._space.call("POST", _ROOM, self._budget_id, "settle", body=body))


class Asking:
    """For the SDK: one reservation that is being made; given up, it leaves nothing reserved. On the SDK's own
    loop."""

    def __init__(self, space: Space, scope_id: str, name: str, amount: Any, settle_by: str | None) -> None:
        self._space = space
        self._scope_id = scope_id
        self._name = name
        self._amount = amount
        self._settle_by = settle_by
        self._request: Request | None = None
        self._budget: tuple[str, int] = ("", 0)

    async def reserve(self) -> BudgetReservation:
        """The reservation; called again after an UnavailableError it finds out what has happened. Refuses:
        BudgetExceededError, NotFoundError, the end of the scope."""
        if self._request is None:
            self._budget = budget_id, scale = await found(self._space, self._name)
            body = {
                "scopeId": self._scope_id,
                "holder": self._space.transport.holder,
                "amountMinor": amount_to_minor(self._amount, scale),
                "settleBy": self._settle_by,
            }
            self._request = Request(self._space, _ROOM, budget_id, "reserve", body=body)
        return BudgetReservation(self._space, *self._budget, await self._request.answer())

    async def leave(self, reservation: BudgetReservation | None) -> None:
        """Gives back what was reserved, or is about to be."""
        if reservation is None and self._request is not None:
            view = await self._request.outcome()
            reservation = None if view is None else BudgetReservation(self._space, *self._budget, view)
        if reservation is not None:
            given_up = reservation
            await patiently(lambda: given_up.void(usage_key=given_up.id))


async def found(space: Space, name: str) -> tuple[str, int]:
    """Id and scale of the budget of that name; looked up once, never created. Refuses: NotFoundError."""
    if (_ROOM, name) not in space.ids:
        _noted(space, await space.call("PUT", _ROOM, "by-name", name, body={}))
    return space.ids[_ROOM, name], space.settings[_ROOM, name][1]


async def ensured(space: Space, name: str, currency: str, scale: int, limit_minor: str) -> dict[str, Any]:
    """The view of the budget of that name, created with these settings if there is none. Refuses: as
    `BudgetsAdminAPI.ensure`."""
    body = {"currency": currency, "scale": scale, "limitMinor": limit_minor}
    view = dict(await space.call("PUT", _ROOM, "by-name", check_name("name", name), body=body))
    _noted(space, view)
    return view


async def checked(
    space: Space, name: str, currency: str | None, scale: int | None, limit_minor: str | None
) -> None:
    """The budget of that name is there and has these settings, those that are not None; with a limit it is
    created if there is none. Asked for once for each client."""
    wanted = (currency, scale, limit_minor)
    if wanted == (None, None, None):
        await found(space, name)
    elif space.settings.get((_CHECKED, name)) != wanted:
        body = {"currency": currency, "scale": scale, "limitMinor": limit_minor}
        _noted(space, await space.call("PUT", _ROOM, "by-name", name, body=body))
        space.settings[_CHECKED, name] = wanted


def _noted(space: Space, view: dict[str, Any]) -> None:
    space.ids[_ROOM, view["name"]] = view["id"]
    space.settings[_ROOM, view["name"]] = (view["currency"], view["scale"])
