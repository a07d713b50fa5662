"""What became of a job that has ended without a result."""

from typing import Any

from runstate.errors import ConflictError, RunstateError, ScopeCancelledError, TaskFailedError

_HANDLER_ERROR = "handler_error: "
ENDED_WITH_SCOPE = frozenset({"scope_cancelled", "scope_completed", "deadline"})


def reason_of(view: dict[str, Any]) -> str:
    """Why the task of that view has ended: what its handler last said, or what else ended it."""
    return (view["outcomeReason"] or "").removeprefix(_HANDLER_ERROR)


def failure(view: dict[str, Any]) -> TaskFailedError:
    """What callers of a job get when it has ended without a result."""
    reason = reason_of(view)
    if reason != (view["outcomeReason"] or ""):
        return TaskFailedError(reason, job_id=view["id"], reason=reason)
    message = f"job {view['id']} is {view['state']}" + (f": {reason}" if reason else "")
    return TaskFailedError(message, job_id=view["id"], reason=reason)


def scope_ended(what: str, effective: str) -> RunstateError:
    """The refusal that a scope with that `effective` state gives."""
    text = f"{what} is {effective}"
    if effective == "EXPIRED":
        return ConflictError(text, code="DEADLINE_EXCEEDED")
    return ScopeCancelledError(text)
