"""Claims on the wire."""

from enum import StrEnum

from pydantic import ConfigDict

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body, UserJson
from runstate_server.web.fields import BodyWaitMs, Holder, Id, Key, LeaseSeconds, Token
from runstate_server.web.schemas import View


class State(StrEnum):
    """What a key reads as; a lapsed lease is FREE."""

    HELD = "HELD"
    FREE = "FREE"


class AcquireIn(Body):
    """waitMs: how long to wait for the key while another holds it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": "company:acme",
                    "scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47",
                    "holder": "worker-1",
                    "holderSession": "3f6c1d",
                    "leaseSeconds": 30,
                }
            ]
        }
    )

    key: Key
    scope_id: Id
    holder: Holder
    holder_session: Holder
    lease_seconds: LeaseSeconds = bounds.lease_s_default
    wait_ms: BodyWaitMs = 0


class RenewIn(Body):
    """Without leaseSeconds the lease's own length is used."""

    token: Token
    lease_seconds: LeaseSeconds | None = None


class ReleaseIn(Body):
    """observation: any JSON for the next owner to read; null or left out keeps the last one."""

    token: Token
    observation: UserJson = UserJson()


class AcquireOut(View):
    """generation: the fencing number, decimal digits."""

    key: str
    scope_id: str
    generation: str
    token: str
    lease_expires_at: str


class RenewOut(View):
    """The new end of the lease."""

    lease_expires_at: str
    generation: str


class ReleaseOut(View):
    """Always true."""

    released: bool


class ClaimView(View):
    """generation: of the present or last owner, null when there never was one."""

    key: str
    scope_id: str
    state: State
    holder: str | None
    generation: str | None
    lease_expires_at: str | None
    observation: object
