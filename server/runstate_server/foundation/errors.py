"""The error table: every code that leaves the server, its status, whether waiting can help, and its meaning.

Bodies, documentation and the SDK's classes follow this table; SQL functions name codes of it.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Retry(StrEnum):
    """What a caller may do about a refusal."""

    NEVER = "never"  # the same call will be refused again
    LATER = "later"  # contention that time or others can clear


class Code(StrEnum):
    """The codes that clients match on."""

    VALIDATION_FAILED = "VALIDATION_FAILED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    ENTITLEMENT_EXCEEDED = "ENTITLEMENT_EXCEEDED"
    SPACE_SUSPENDED = "SPACE_SUSPENDED"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    CLAIM_HELD = "CLAIM_HELD"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    SCOPE_CANCELLED = "SCOPE_CANCELLED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    STALE_CLAIM = "STALE_CLAIM"
    CAPACITY_UNAVAILABLE = "CAPACITY_UNAVAILABLE"
    BACKLOG_FULL = "BACKLOG_FULL"
    BARRIER_RELEASED = "BARRIER_RELEASED"
    BARRIER_CANCELLED = "BARRIER_CANCELLED"
    INSUFFICIENT_BUDGET = "INSUFFICIENT_BUDGET"
    CURSOR_EXPIRED = "CURSOR_EXPIRED"
    RATE_LIMITED = "RATE_LIMITED"
    ALLOWANCE_EXHAUSTED = "ALLOWANCE_EXHAUSTED"
    ALLOWANCE_COOLDOWN = "ALLOWANCE_COOLDOWN"
    CONCURRENCY_LIMITED = "CONCURRENCY_LIMITED"
    OPERATIONS_EXHAUSTED = "OPERATIONS_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: HTTP status, whether waiting can help, meaning."""

    status: int
    retry: Retry
    meaning: str


TABLE: dict[Code, Row] = {
    Code.VALIDATION_FAILED: Row(400, Retry.NEVER, "the request is malformed or a value is out of bounds"),
    Code.UNAUTHENTICATED: Row(401, Retry.NEVER, "no valid API key came with the request"),
    Code.FORBIDDEN: Row(403, Retry.NEVER, "the key does not cover this space or lacks a permission"),
    Code.ENTITLEMENT_EXCEEDED: Row(403, Retry.NEVER, "the space has as many resources as its limits allow"),
    Code.SPACE_SUSPENDED: Row(403, Retry.NEVER, "the space is suspended"),
    Code.NOT_FOUND: Row(404, Retry.NEVER, "no such thing in this space"),
    Code.CONFLICT: Row(409, Retry.NEVER, "the thing is in another state or has other settings"),
    Code.CLAIM_HELD: Row(409, Retry.LATER, "another holder has this key"),
    Code.IDEMPOTENCY_CONFLICT: Row(409, Retry.NEVER, "the Idempotency-Key belongs to another request"),
    Code.SCOPE_CANCELLED: Row(409, Retry.NEVER, "the scope was cancelled or completed"),
    Code.DEADLINE_EXCEEDED: Row(409, Retry.NEVER, "a deadline on the scope's chain has passed"),
    Code.STALE_CLAIM: Row(409, Retry.NEVER, "the token no longer holds the lease"),
    Code.CAPACITY_UNAVAILABLE: Row(409, Retry.LATER, "not enough units are free"),
    Code.BACKLOG_FULL: Row(409, Retry.LATER, "the queue or work limit is full"),
    Code.BARRIER_RELEASED: Row(409, Retry.NEVER, "the barrier was released before this arrival"),
    Code.BARRIER_CANCELLED: Row(409, Retry.NEVER, "the barrier was cancelled"),
    Code.INSUFFICIENT_BUDGET: Row(409, Retry.NEVER, "the budget has less left than was asked for"),
    Code.CURSOR_EXPIRED: Row(410, Retry.NEVER, "the events after this cursor are no longer kept"),
    Code.RATE_LIMITED: Row(429, Retry.LATER, "the space makes more requests a minute than its limit"),
    Code.ALLOWANCE_EXHAUSTED: Row(429, Retry.LATER, "the window's units are used up"),
    Code.ALLOWANCE_COOLDOWN: Row(429, Retry.LATER, "the allowance is cooling down"),
    Code.CONCURRENCY_LIMITED: Row(429, Retry.LATER, "the space holds as many leases as its limit allows"),
    Code.OPERATIONS_EXHAUSTED: Row(429, Retry.NEVER, "the space's operations of this month are used up"),
    Code.UNAVAILABLE: Row(503, Retry.LATER, "the database is away or the replica is draining"),
    Code.INTERNAL: Row(500, Retry.NEVER, "a defect of the server; the log has it under the request id"),
}


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818  a refusal is an answer, not a failure of the program
    """An answer of the error table raised from Python. `status` is given only where HTTP wants another one
    (405, 413)."""

    code: Code
    message: str
    retry_after_s: float | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def http_status(self) -> int:
        """The status this refusal is sent with."""
        return self.status if self.status is not None else TABLE[self.code].status
