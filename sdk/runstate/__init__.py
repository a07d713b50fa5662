"""Runstate: do work once, across processes, threads and restarts. See `once` and `queue`, and `Runstate` for
everything else."""

from runstate._config import Config, resolve_config
from runstate._flags import ThreadSafeEvent
from runstate._units import decimal_to_minor, minor_to_decimal
from runstate.blocking import Runstate
from runstate.client import AsyncRunstate
from runstate.decorators.defaults import (
    Run,
    achild,
    aevents,
    afinish,
    arun_id,
    aserve,
    astatus,
    astop,
    child,
    configure,
    events,
    finish,
    once,
    queue,
    run,
    run_id,
    serve,
    slots,
    status,
    stop,
)
from runstate.decorators.queue import Job, Queue
from runstate.decorators.slots import Slots
from runstate.errors import (
    AuthenticationError,
    BudgetExceededError,
    ConfigError,
    ConflictError,
    CursorExpiredError,
    LeaseLostError,
    NotFoundError,
    OnceFailedError,
    RateLimitError,
    ResultTooLargeError,
    RunstateError,
    ScopeCancelledError,
    StoppedError,
    TaskFailedError,
    UnavailableError,
    WaitTimeoutError,
    map_error,
)
from runstate.handles.claims import ClaimLease, ClaimRef
from runstate.handles.diagnostics import DiagnosticsAPI
from runstate.handles.events import EventsAPI
from runstate.handles.mailboxes import MailboxesAdminAPI, MailboxRef
from runstate.handles.messages import Delivery
from runstate.handles.permits import PoolLease, PoolRef, PoolsAdminAPI
from runstate.handles.scopes import ScopeHandle, ScopesAPI
from runstate.handles.tasks import (
    AdmittedWork,
    BudgetRequirement,
    TaskRequirements,
    TaskTicket,
    UnitsRequirement,
)
from runstate.run import RunContext, Signal, context

__all__ = [
    "AdmittedWork",
    "AsyncRunstate",
    "AuthenticationError",
    "BudgetExceededError",
    "BudgetRequirement",
    "ClaimLease",
    "ClaimRef",
    "Config",
    "ConfigError",
    "ConflictError",
    "CursorExpiredError",
    "Delivery",
    "DiagnosticsAPI",
    "EventsAPI",
    "Job",
    "LeaseLostError",
    "MailboxRef",
    "MailboxesAdminAPI",
    "NotFoundError",
    "OnceFailedError",
    "PoolLease",
    "PoolRef",
    "PoolsAdminAPI",
    "Queue",
    "RateLimitError",
    "ResultTooLargeError",
    "Run",
    "RunContext",
    "Runstate",
    "RunstateError",
    "ScopeCancelledError",
    "ScopeHandle",
    "ScopesAPI",
    "Signal",
    "Slots",
    "StoppedError",
    "TaskFailedError",
    "TaskRequirements",
    "TaskTicket",
    "ThreadSafeEvent",
    "UnavailableError",
    "UnitsRequirement",
    "WaitTimeoutError",
    "achild",
    "aevents",
    "afinish",
    "arun_id",
    "aserve",
    "astatus",
    "astop",
    "child",
    "configure",
    "context",
    "decimal_to_minor",
    "events",
    "finish",
    "map_error",
    "minor_to_decimal",
    "once",
    "queue",
    "resolve_config",
    "run",
    "run_id",
    "serve",
    "slots",
    "status",
    "stop",
]
