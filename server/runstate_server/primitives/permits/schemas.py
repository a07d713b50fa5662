"""Permits on the wire."""

from enum import StrEnum

from pydantic import ConfigDict

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body, UserJson
from runstate_server.web.fields import Holder, Id, LeaseSeconds, Name, Token, TtlSeconds, Units
from runstate_server.web.schemas import View


class State(StrEnum):
    """What a waiter in the line is."""

    WAITING = "WAITING"
    SIGNALED = "SIGNALED"
    GRANTED = "GRANTED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class PoolIn(Body):
    """A new pool."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "browsers", "units": 3}]})

    name: Name
    units: Units


class SizeIn(Body):
    """units: create the pool with them, or check that it has as many."""

    units: Units | None = None


class ResizeIn(Body):
    """The new size."""

    units: Units


class AcquireIn(Body):
    """waiterId: the waiter that was signalled, for as many units."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47",
                    "units": 1,
                    "holder": "worker-1",
                    "holderSession": "3f6c1d",
                    "leaseSeconds": 30,
                }
            ]
        }
    )

    scope_id: Id
    units: Units
    holder: Holder
    holder_session: Holder
    lease_seconds: LeaseSeconds = bounds.lease_s_default
    waiter_id: Id | None = None


class WaitIn(Body):
    """ttlSeconds: the waiter expires when it is not looked after for so long."""

    scope_id: Id
    units: Units
    holder: Holder
    ttl_seconds: TtlSeconds = bounds.ttl_s_default


class CancelIn(Body):
    """Nothing is needed."""


class RenewIn(Body):
    """Without leaseSeconds the lease's own length is used."""

    token: Token
    lease_seconds: LeaseSeconds | None = None


class ReleaseIn(Body):
    """observation: any JSON, kept with the grant."""

    token: Token
    observation: UserJson = UserJson()


class PoolOut(View):
    """A pool that was created."""

    id: str
    name: str
    units_total: int


class PoolView(View):
    """unitsUsed: lent out; waiting: how many stand in the line."""

    id: str
    name: str
    units_total: int
    units_used: int
    waiting: int


class PoolSeen(PoolView):
    """observation: what the last release that carried one told; null when none did."""

    observation: object


class PoolSized(PoolView):
    """units: as unitsTotal."""

    units: int


class PoolList(View):
    """nextCursor: null at the end."""

    permits: list[PoolView]
    next_cursor: str | None


class GrantOut(View):
    """What was lent, and until when."""

    grant_id: str
    token: str
    units: int
    lease_expires_at: str


class WaitOut(View):
    """position: from 1; null for one that has ended."""

    waiter_id: str
    state: State
    position: int | None


class WaiterView(WaitOut):
    """With what it waits for."""

    units: int


class StateOut(View):
    """What the waiter is now."""

    state: State


class RenewOut(View):
    """The new end of the lease."""

    lease_expires_at: str


class ReleaseOut(View):
    """Always true."""

    released: bool
