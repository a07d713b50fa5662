"""Tasks on the wire."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.primitives.messages.schemas import TakeIn
from runstate_server.web.bodies import Body, UserJson
from runstate_server.web.fields import DelaySeconds, Holder, Id, Instant, Key, Name, Priority, Text
from runstate_server.web.requirements import Requirements
from runstate_server.web.schemas import View


class State(StrEnum):
    """SUCCEEDED, FAILED, CANCELLED and EXPIRED are terminal; a FAILED task can be redriven."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class SubmitIn(Body):
    """taskKey: the same key in the scope and mailbox is the same task, whatever its input; workLimit: the
    nearest of that name on the scope's chain bounds it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47",
                    "mailboxId": "0198c9a2-8a11-7c02-8f3e-5b7d9a1c2e60",
                    "taskKey": "research:acme",
                    "input": {"company": "acme"},
                }
            ]
        }
    )

    scope_id: Id
    mailbox_id: Id
    task_key: Key
    input: UserJson = UserJson()
    deadline: Instant | None = None
    subscriber_id: Holder | None = None
    priority: Priority = 0
    delay_seconds: DelaySeconds = 0
    work_limit: Name | None = None
    requirements: Requirements | None = None


class BatchIn(Body):
    """All of them are submitted, or none."""

    tasks: Annotated[list[SubmitIn], Field(min_length=1, max_length=bounds.batch_tasks_max)]


class AdmitIn(TakeIn):
    """max: with more than 1 the answer is a list."""

    mailbox_id: Id
    max: Annotated[int, Field(ge=1, le=bounds.admit_max)] = 1


class CancelIn(Body):
    """reason: kept as the task's outcomeReason."""

    reason: Text | None = None


class JoinIn(Body):
    """A subscriber, and the scope in which it waits."""

    subscriber_id: Holder
    scope_id: Id


class DetachIn(Body):
    """Detaching the last subscriber does not cancel the task."""

    subscriber_id: Holder


class SubmitOut(View):
    """replay: the taskKey was submitted before, this is the first task."""

    task_id: str
    replay: bool
    state: State


class BatchOut(View):
    """In the order of the request."""

    tasks: list[SubmitOut]


class TaskView(View):
    """outcome: what the worker recorded; outcomeReason: of a task that did not succeed."""

    id: str
    scope_id: str
    mailbox_id: str
    task_key: str
    state: State
    attempt: int
    max_attempts: int
    input: object
    outcome: object
    outcome_reason: str | None
    priority: int
    deadline: str | None
    requirements: dict[str, object] | None
    subscribers: int
    group_ids: list[str]
    message_id: str
    created_at: str
    started_at: str | None
    finished_at: str | None


class TaskPage(View):
    """Newest first."""

    tasks: list[TaskView]
    next_cursor: str | None


class Admitted(View):
    """One task, held by the token until leaseExpiresAt, with the resources taken for it."""

    task_id: str
    task_key: str
    message_id: str
    scope_id: str
    payload: object
    attempt: int
    token: str
    lease_expires_at: str
    grants: list[dict[str, object]]
    consumptions: list[dict[str, object]]
    reservations: list[str]


class AdmittedList(View):
    """The answer when max is over 1."""

    admitted: list[Admitted]


class SubscribersOut(View):
    """How many subscribers the task has now."""

    subscribers: int
