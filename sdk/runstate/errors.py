"""One class per kind of refusal.

RunstateError
├── ConfigError             settings or arguments this SDK cannot use
├── AuthenticationError     the key is unknown, or not allowed to do this
├── NotFoundError
├── ConflictError           the state of things does not permit it
│   └── BudgetExceededError
├── ScopeCancelledError     the scope was cancelled or completed
│   └── StoppedError        the run of this call has been stopped, has finished or has expired
├── LeaseLostError          the lease ran out or was taken over: stop, your result is refused
├── RateLimitError
├── UnavailableError        no usable answer from the server; the outcome may be unknown
├── WaitTimeoutError        (also TimeoutError) a wait ran out
├── CursorExpiredError
├── OnceFailedError         every allowed attempt of a once has failed
├── TaskFailedError         a job has ended without a result
└── ResultTooLargeError     an input or a result over the size limit
"""

import re
from typing import Any

_TOO_LARGE = re.compile(r"exceeds \d+ bytes")


class RunstateError(Exception):
    """What the server or this SDK refused. `status` is the HTTP status, 0 when the SDK itself raised it;
    `retryable` says that waiting can clear it; `retry_after_ms` is the server's guess of how long."""

    code: str = "ERROR"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int = 0,
        request_id: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = type(self).code if code is None else code
        self.status = status
        self.request_id = request_id
        self.retry_after_ms = retry_after_ms

    @property
    def retryable(self) -> bool:
        """Whether this is contention that waiting can clear."""
        return self.code in _RETRYABLE

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, code={self.code!r}, status={self.status})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are copied and pickled by calling the class with `args`; ours take keywords besides.
        return _bare, (type(self), self.args), self.__dict__.copy()


class ConfigError(RunstateError):
    """Settings or arguments that this SDK cannot use; nothing was asked of the server."""

    code = "CONFIG_ERROR"


class AuthenticationError(RunstateError):
    """The key is unknown or expired, does not cover the space, or lacks a permission."""

    code = "UNAUTHENTICATED"


class NotFoundError(RunstateError):
    """There is no such thing in this space."""

    code = "NOT_FOUND"


class ConflictError(RunstateError):
    """The present state of the thing does not permit this."""

    code = "CONFLICT"


class BudgetExceededError(ConflictError):
    """The budget has less left than was asked for."""

    code = "INSUFFICIENT_BUDGET"


class ScopeCancelledError(RunstateError):
    """The scope, or one above it, has been cancelled or completed."""

    code = "SCOPE_CANCELLED"


class StoppedError(ScopeCancelledError):
    """The run this call belongs to has been stopped, has finished or has passed its deadline."""


class LeaseLostError(RunstateError):
    """The lease ran out or was taken over. Whatever was done under it is not recorded."""

    code = "LEASE_LOST"


class RateLimitError(RunstateError):
    """Too much in too little time; see `retryable` and `retry_after_ms`."""

    code = "RATE_LIMITED"


class UnavailableError(RunstateError):
    """The server could not answer, or (status 0) could not be reached. A change may have been made or not."""

    code = "UNAVAILABLE"


class WaitTimeoutError(RunstateError, TimeoutError):
    """A wait ran out before what it waited for came."""

    code = "WAIT_TIMEOUT"


class CursorExpiredError(RunstateError):
    """The events after this cursor are no longer kept."""

    code = "CURSOR_EXPIRED"


class OnceFailedError(RunstateError):
    """Every allowed attempt has failed; the message is the last error recorded, `attempts` counts them."""

    code = "ONCE_FAILED"

    def __init__(self, message: str, *, attempts: int = 0, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.attempts = attempts


class TaskFailedError(RunstateError):
    """The job `job_id` has ended without a result. `reason` is the last error of its handler, or what else
    ended it: `lease_expired`, `cancelled` or the reason given there; the message says the same. Of a `gather`
    those of the job that failed last; `threshold_unreachable`, and no job, when the others were rejected."""

    code = "TASK_FAILED"

    def __init__(
        self, message: str, *, job_id: str | None = None, reason: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.job_id = job_id
        self.reason = reason


class ResultTooLargeError(RunstateError):
    """An input or a result is larger than the server keeps."""

    code = "RESULT_TOO_LARGE"


_CLASSES: dict[str, type[RunstateError]] = {
    "UNAUTHENTICATED": AuthenticationError,
    "FORBIDDEN": AuthenticationError,
    "ENTITLEMENT_EXCEEDED": AuthenticationError,
    "SPACE_SUSPENDED": AuthenticationError,
    "NOT_FOUND": NotFoundError,
    "CONFLICT": ConflictError,
    "IDEMPOTENCY_CONFLICT": ConflictError,
    "DEADLINE_EXCEEDED": ConflictError,
    "BARRIER_RELEASED": ConflictError,
    "BARRIER_CANCELLED": ConflictError,
    "CLAIM_HELD": ConflictError,
    "CAPACITY_UNAVAILABLE": ConflictError,
    "BACKLOG_FULL": ConflictError,
    "INSUFFICIENT_BUDGET": BudgetExceededError,
    "SCOPE_CANCELLED": ScopeCancelledError,
    "STALE_CLAIM": LeaseLostError,
    "LEASE_RENEWALS_EXHAUSTED": LeaseLostError,
    "CURSOR_EXPIRED": CursorExpiredError,
    "RATE_LIMITED": RateLimitError,
    "SERVICE_RATE_LIMITED": RateLimitError,
    "ALLOWANCE_EXHAUSTED": RateLimitError,
    "ALLOWANCE_COOLDOWN": RateLimitError,
    "CONCURRENCY_LIMITED": RateLimitError,
    "OPERATIONS_EXHAUSTED": RateLimitError,
    "UNAVAILABLE": UnavailableError,
}

_RETRYABLE = frozenset(
    {
        "CLAIM_HELD",
        "CAPACITY_UNAVAILABLE",
        "BACKLOG_FULL",
        "RATE_LIMITED",
        "SERVICE_RATE_LIMITED",
        "ALLOWANCE_EXHAUSTED",
        "ALLOWANCE_COOLDOWN",
        "CONCURRENCY_LIMITED",
    }
)


def map_error(
    code: str,
    status: int,
    message: str,
    request_id: str | None = None,
    retry_after_ms: int | None = None,
) -> RunstateError:
    """The exception for one error envelope of the server; an unknown code keeps it, on the plain class."""
    kind = _CLASSES.get(code, RunstateError)
    if status == 400 and _TOO_LARGE.search(message):  # noqa: PLR2004 - the one status the contract names here
        kind = ResultTooLargeError
    return kind(message, code=code, status=status, request_id=request_id, retry_after_ms=retry_after_ms)


def _bare(kind: type[RunstateError], args: tuple[Any, ...]) -> RunstateError:
    # An instance whose __dict__ the caller (copy or pickle) fills in. OSError, a parent of WaitTimeoutError,
    # does not keep the arguments of __new__.
    error = kind.__new__(kind, *args)
    error.args = args
    return error
