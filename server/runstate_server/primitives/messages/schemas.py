"""Messages on the wire."""

from enum import StrEnum

from pydantic import ConfigDict, StrictBool

from runstate_server.foundation import bounds
from runstate_server.primitives.mailboxes.schemas import MailboxView
from runstate_server.web.bodies import Body, UserJson
from runstate_server.web.fields import (
    BodyWaitMs,
    DelaySeconds,
    Holder,
    Id,
    Instant,
    Key,
    LeaseSeconds,
    Priority,
    Text,
    Token,
)
from runstate_server.web.schemas import View

_SCOPE = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"


class State(StrEnum):
    """DEAD has used its attempts up, or was rejected; it can be redriven."""

    READY = "READY"
    LEASED = "LEASED"
    ACKED = "ACKED"
    DEAD = "DEAD"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class SendIn(Body):
    """workKey: the same key in the scope and mailbox is the same message."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"scopeId": _SCOPE, "payload": {"company": "acme"}, "priority": 5}]}
    )

    scope_id: Id
    payload: UserJson = UserJson()
    work_key: Key | None = None
    deadline: Instant | None = None
    priority: Priority = 0
    delay_seconds: DelaySeconds = 0


class TakeIn(Body):
    """includeDescendants: of the scopes below scopeId too; waitMs: how long to wait while there is
    nothing."""

    scope_id: Id
    holder: Holder
    holder_session: Holder
    lease_seconds: LeaseSeconds = bounds.lease_s_default
    wait_ms: BodyWaitMs = 0
    include_descendants: StrictBool = False


class RenewIn(Body):
    """Without leaseSeconds the lease's own length is used."""

    token: Token
    lease_seconds: LeaseSeconds | None = None


class ResultIn(Body):
    """payload: the outcome of a task; with mailboxId it is sent on as a new message, in scopeId or the same
    scope."""

    payload: UserJson = UserJson()
    mailbox_id: Id | None = None
    scope_id: Id | None = None
    work_key: Key | None = None


class CompleteIn(Body):
    """result: what came of it."""

    token: Token
    result: ResultIn | None = None


class NackIn(Body):
    """retry: false makes it DEAD at once; delaySeconds instead of backoff; handBack: at once, attempt not
    counted."""

    token: Token
    retry: StrictBool
    error: Text | None = None
    delay_seconds: DelaySeconds | None = None
    hand_back: StrictBool = False


class SendOut(View):
    """replay: the workKey was sent before, this is the first message."""

    id: str
    replay: bool


class Delivered(View):
    """attempt: 1 in the first delivery; taskId: null for a plain message."""

    id: str
    payload: object
    attempt: int
    scope_id: str
    deadline: str | None
    task_id: str | None


class TakeOut(View):
    """One delivery, held by the token until leaseExpiresAt."""

    message: Delivered
    token: str
    lease_expires_at: str


class RenewOut(View):
    """The new end of the lease."""

    lease_expires_at: str


class CompleteOut(View):
    """replyId: the message that was sent on."""

    state: State
    reply_id: str | None = None


class NackOut(View):
    """availableAt: when it can be delivered again."""

    state: State
    attempt: int
    available_at: str | None = None


class RedriveOut(View):
    """Always READY."""

    state: State


class MessageView(View):
    """lastError: of the last nack that gave one."""

    id: str
    scope_id: str
    state: State
    attempt: int
    priority: int
    work_key: str | None
    task_id: str | None
    deadline: str | None
    holder: str | None
    lease_expires_at: str | None
    last_error: str | None
    created_at: str


class MessagePage(View):
    """Newest first."""

    messages: list[MessageView]
    next_cursor: str | None


class Depth(View):
    """Counted at this instant."""

    ready: int
    delayed: int
    leased: int
    dead: int


class MailboxDepthView(MailboxView):
    """A mailbox with what is in it."""

    depth: Depth
    oldest_ready_at: str | None
