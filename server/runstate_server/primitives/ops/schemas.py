"""Reports on the wire."""

from runstate_server.primitives.barriers.schemas import BarrierView
from runstate_server.primitives.groups.schemas import Condition
from runstate_server.primitives.groups.schemas import State as GroupState
from runstate_server.primitives.mailboxes.schemas import Mode
from runstate_server.primitives.messages.schemas import Depth
from runstate_server.primitives.scopes.schemas import ScopeView
from runstate_server.primitives.timers.schemas import State as TimerState
from runstate_server.web.schemas import View


class Worker(View):
    """Who holds something now. keys: of claims and of once; grants and messages: their ids."""

    holder: str
    session: str
    keys: list[str]
    grants: list[str]
    messages: list[str]
    earliest_lease_expiry: str


class WaitingInRun(View):
    """permit: the key, name or id of what is waited for, whatever the kind; holder: null where the call does
    not say who waits; position: in the line of a pool or an allowance, from 1."""

    kind: str
    permit: str
    units: int | None
    holder: str | None
    since: str
    position: int | None


class Queue(View):
    """A mailbox with work in the run."""

    mailbox_id: str
    name: str
    mode: Mode
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_at: str | None


class TaskCounts(View):
    """How many tasks are in each state."""

    QUEUED: int
    RUNNING: int
    SUCCEEDED: int
    FAILED: int
    CANCELLED: int
    EXPIRED: int

    model_config = View.model_config | {"alias_generator": None}


class TimerInRun(View):
    """state: PENDING or FIRED."""

    id: str
    name: str | None
    scope_id: str
    state: TimerState
    fire_at: str
    fired_at: str | None


class GroupInRun(View):
    """members: how many have joined, of which so many are accepted and rejected."""

    id: str
    scope_id: str
    mailbox_id: str
    condition: Condition
    threshold: int | None
    expected_members: int | None
    state: GroupState
    members: int
    accepted: int
    rejected: int
    deadline: str | None
    created_at: str


class RunReport(View):
    """Of the scope that was asked about and all below it. Lists have 500 entries at most, counts stop at
    100,000. timers: that are to fire, or have fired and wait to be acknowledged, by their time. barriers:
    those that wait. groups: those without an outcome yet, the oldest first."""

    root_scope_id: str
    scope: ScopeView
    workers: list[Worker]
    waiting: list[WaitingInRun]
    queues: list[Queue]
    tasks: TaskCounts
    timers: list[TimerInRun]
    barriers: list[BarrierView]
    groups: list[GroupInRun]


class Blocker(View):
    """Who holds what is waited for; of a pool's units the first lease of each that ends."""

    holder: str
    session: str
    lease_expires_at: str


class Wait(View):
    """resource: a key, name or id; units: of a budget minor ones. cycle: the holders that wait for each other
    in a circle, from this one on; null when this wait closes none. why: the same for people, in a
    sentence."""

    kind: str
    resource: str
    units: int | None
    holder: str | None
    scope_id: str
    since: str
    blocked_by: list[Blocker]
    cycle: list[str] | None
    why: str


class Waits(View):
    """Those in a circle first, then the longest; 500 at most."""

    waits: list[Wait]


class Scopes(View):
    """runs: those of them that are roots."""

    active: int
    runs: int


class Held(View):
    """Under leases that are alive."""

    held: int


class Queues(Depth):
    """All mailboxes of the space together."""

    oldest_ready_at: str | None


class Unfinished(View):
    """Tasks that are not terminal."""

    QUEUED: int
    RUNNING: int

    model_config = View.model_config | {"alias_generator": None}


class Events(View):
    """Numbered in the journal; perSecond: over the last minute."""

    last_minute: int
    last_hour: int
    per_second: float


class Summary(View):
    """workers: distinct holders and sessions that hold something. countedUpTo: where a count stops."""

    scopes: Scopes
    claims: Held
    once: Held
    grants: Held
    queues: Queues
    tasks: Unfinished
    workers: int
    waits: int
    events: Events
    counted_up_to: int
