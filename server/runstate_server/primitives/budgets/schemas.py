"""Budgets on the wire. Amounts are decimal digits of minor units, never numbers."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import Holder, Id, Instant, Key, Minor, Name, PositiveMinor
from runstate_server.web.schemas import View

_Currency = Annotated[str, Field(pattern="^[A-Z]{3}$")]
_Scale = Annotated[int, Field(ge=0, le=bounds.scale_max)]


class State(StrEnum):
    """STALE: past its settleBy; it can still be settled or voided."""

    ACTIVE = "ACTIVE"
    SETTLED = "SETTLED"
    VOIDED = "VOIDED"
    STALE = "STALE"


class Kind(StrEnum):
    """A line of the ledger; overrun: what a settle could not charge."""

    RESERVE = "reserve"
    SETTLE = "settle"
    OVERRUN = "overrun"
    VOID = "void"
    STALE = "stale"


class BudgetIn(Body):
    """scale: how many digits after the point the minor units are; holdStale: keep the money of reservations
    that are past their settleBy."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "model-usd", "currency": "USD", "scale": 2, "limitMinor": "2500"}]
        }
    )

    name: Name
    currency: _Currency
    scale: _Scale
    limit_minor: Minor
    hold_stale: bool = False


class SettingsIn(Body):
    """With currency, scale and limitMinor: create the budget, or check that it has what is given."""

    currency: _Currency | None = None
    scale: _Scale | None = None
    limit_minor: Minor | None = None
    hold_stale: bool | None = None


class LimitIn(Body):
    """The new limit, not below what is settled and reserved."""

    limit_minor: Minor


class ReserveIn(Body):
    """settleBy: the reservation is stale from then on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47",
                    "holder": "worker-1",
                    "amountMinor": "40",
                }
            ]
        }
    )

    scope_id: Id
    holder: Holder
    amount_minor: PositiveMinor
    settle_by: Instant | None = None


class SettleIn(Body):
    """workKey: settles once, however often it is sent; allowOverrun: charge more than is reserved."""

    reservation_id: Id
    amount_minor: Minor
    work_key: Key
    allow_overrun: bool = False


class VoidIn(Body):
    """workKey: as for settle."""

    reservation_id: Id
    work_key: Key


class BudgetView(View):
    """availableMinor: the limit less what is reserved and settled; overrunMinor: spent beyond the limit."""

    id: str
    name: str
    currency: str
    scale: int
    limit_minor: str
    reserved_minor: str
    settled_minor: str
    available_minor: str
    overrun_minor: str


class ReservationView(View):
    """reservedMinor: what it holds of the budget at this instant."""

    id: str
    scope_id: str
    holder: str
    reserved_minor: str
    state: State
    settle_by: str | None
    created_at: str


class BudgetSeen(BudgetView):
    """reservations: the open ones, and those that ended in the last 24 hours."""

    reservations: list[ReservationView]


class BudgetList(View):
    """Oldest first."""

    budgets: list[BudgetView]
    next_cursor: str | None


class ReserveOut(View):
    """What is reserved."""

    reservation_id: str
    reserved_minor: str
    state: State


class SettleOut(View):
    """reservedMinor: what is left of the reservation; replay: the workKey was used before, this is its first
    outcome."""

    entry_id: str
    reserved_minor: str
    state: State
    replay: bool
    charged_minor: str
    overrun_minor: str


class EntryView(View):
    """amountMinor: reserved, charged, given back or, of an overrun, not had."""

    id: str
    kind: Kind
    amount_minor: str
    reservation_id: str
    scope_id: str
    work_key: str | None
    created_at: str


class EntryList(View):
    """Oldest first."""

    entries: list[EntryView]
    next_cursor: str | None
