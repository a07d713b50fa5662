"""Once on the wire."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body, UserJson
from runstate_server.web.fields import Holder, Id, Key, LeaseSeconds, Text, Token
from runstate_server.web.schemas import View


class State(StrEnum):
    """Stored states; ACQUIRED on the wire is HELD by the caller."""

    OPEN = "OPEN"
    HELD = "HELD"
    DONE = "DONE"
    FAILED = "FAILED"


class _OfKey(Body):
    scope_id: Id
    key: Key


class AcquireIn(_OfKey):
    """leaseSeconds: how long the key is held without a renewal."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47",
                    "key": "research:07fad54f7446269afc481e306a48f046",
                    "holder": "worker-1",
                    "holderSession": "3f6c1d",
                    "leaseSeconds": 30,
                }
            ]
        }
    )

    holder: Holder
    holder_session: Holder
    lease_seconds: LeaseSeconds = bounds.lease_s_default


class RenewIn(_OfKey):
    """leaseSeconds: from now on; never shortens the lease."""

    token: Token
    lease_seconds: LeaseSeconds = bounds.lease_s_default


class CompleteIn(_OfKey):
    """result: any JSON, null when absent."""

    token: Token
    result: UserJson = UserJson()


class FailIn(_OfKey):
    """error: text for people, cut at 2,000 characters; maxAttempts: how many failures make the key FAILED."""

    token: Token
    error: Text
    max_attempts: Annotated[int, Field(ge=1, le=bounds.attempts_max)]


class AcquireOut(View):
    """Members without a value are absent."""

    state: str
    attempts: int
    token: str | None = None
    lease_expires_at: str | None = None
    result: object = None
    last_error: str | None = None


class OnceView(View):
    """Members without a value are absent."""

    state: State
    attempts: int
    result: object = None
    last_error: str | None = None
    holder: str | None = None
    lease_expires_at: str | None = None


class RenewOut(View):
    """The new end of the lease."""

    lease_expires_at: str


class CompleteOut(View):
    """Always DONE."""

    state: State


class FailOut(View):
    """OPEN, or FAILED when the attempts are used up."""

    state: State
    attempts: int
