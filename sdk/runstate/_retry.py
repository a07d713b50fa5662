"""May it be tried again, and after how long? Pure: no clock, no network.

Three questions, kept apart. An *attempt* without a usable answer is repeated by the transport, with the same
Idempotency-Key. A *wait* takes some answers as "not yet". A *renewal* survives whatever is not a refusal."""

import random

from runstate.errors import RunstateError, UnavailableError

WAIT_PAUSE_S_MAX = 10.0
_FIRST_PAUSE_S = 0.1
_ATTEMPT_PAUSE_S_MAX = 2.0
_UNANSWERED = frozenset({502, 503, 504})  # what a proxy says when no server answered
_RATE_LIMITED = 429
_SERVER_FAULT = 500


def may_repeat_answer(status: int, *, has_envelope: bool) -> bool:
    """Whether this answer came from something in front of the server, so that the call may be sent again."""
    return status in _UNANSWERED and not has_envelope


def is_not_yet(error: RunstateError) -> bool:
    """Whether a wait goes on after this: the server is away, or asks for patience that will be rewarded."""
    return isinstance(error, UnavailableError) or (error.status == _RATE_LIMITED and error.retryable)


def is_transient(error: RunstateError) -> bool:
    """Whether a renewal that met this has not been refused: network, 503, 429 or a fault of the server."""
    return (
        isinstance(error, UnavailableError) or error.status == _RATE_LIMITED or error.status >= _SERVER_FAULT
    )


def attempt_pause_s(failures: int) -> float:
    """Seconds before the next attempt of one call, jittered; `failures` counts from 1."""
    return _jittered(min(_ATTEMPT_PAUSE_S_MAX, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16)))


def wait_pause_s(failures: int, retry_after_ms: int | None) -> float:
    """Seconds before a wait asks again, at most 10, jittered; the server's own guess counts if given."""
    pause = _jittered(min(WAIT_PAUSE_S_MAX, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16)))
    if retry_after_ms is None:
        return pause
    return min(WAIT_PAUSE_S_MAX, retry_after_ms / 1000 + pause / 4)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries out; no secret depends on it
