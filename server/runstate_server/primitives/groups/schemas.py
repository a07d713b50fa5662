"""Task groups on the wire."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from runstate_server.foundation import bounds
from runstate_server.primitives.tasks.schemas import State as TaskState
from runstate_server.web.bodies import Body, UserJson
from runstate_server.web.fields import Id, Instant, Key, Priority
from runstate_server.web.requirements import Requirements
from runstate_server.web.schemas import View


class Condition(StrEnum):
    """When a group succeeds."""

    FIRST_ACCEPTED = "FIRST_ACCEPTED"
    N_ACCEPTED = "N_ACCEPTED"
    ALL_TERMINAL = "ALL_TERMINAL"


class State(StrEnum):
    """OPEN takes members, SEALED takes no more, FINALIZED has its outcome."""

    OPEN = "OPEN"
    SEALED = "SEALED"
    FINALIZED = "FINALIZED"


class Outcome(StrEnum):
    """What became of a group; a FAILURE has a reason."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


class Verdict(StrEnum):
    """Of one member's result."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"


class GroupIn(Body):
    """threshold: with N_ACCEPTED, which needs it; FIRST_ACCEPTED is a threshold of 1. expectedMembers: the
    group seals itself when so many have joined. parentScopeId: without it the group's scope is a run of its
    own."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "mailboxId": "0198c9a2-8a11-7c02-8f3e-5b7d9a1c2e60",
                    "condition": "N_ACCEPTED",
                    "threshold": 3,
                    "expectedMembers": 10,
                }
            ]
        }
    )

    mailbox_id: Id
    condition: Annotated[Condition, Field(strict=False)]
    threshold: Annotated[
        Annotated[int, Field(ge=1, le=bounds.group_members_max)] | None, Field(validate_default=True)
    ] = None
    expected_members: Annotated[int, Field(ge=1, le=bounds.group_expected_max)] | None = None
    deadline: Instant | None = None
    parent_scope_id: Id | None = None

    @field_validator("threshold")
    @classmethod
    def _threshold_fits(cls, threshold: int | None, known: ValidationInfo) -> int | None:
        condition = known.data.get("condition")
        if condition is Condition.N_ACCEPTED and threshold is None:
            raise ValueError("with N_ACCEPTED a threshold is needed")
        if condition is Condition.FIRST_ACCEPTED and threshold not in (None, 1):
            raise ValueError("with FIRST_ACCEPTED it is 1: use N_ACCEPTED for another")
        if condition is Condition.ALL_TERMINAL and threshold is not None:
            raise ValueError("with ALL_TERMINAL there is no threshold")
        return threshold

    @property
    def wanted(self) -> int | None:
        """How many have to be accepted; None when that is not what the group waits for."""
        return 1 if self.condition is Condition.FIRST_ACCEPTED else self.threshold


class MemberIn(Body):
    """taskKey: the same key in the group is the same task, whatever its input."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"taskKey": "review:1", "input": {"document": "draft-7"}}]}
    )

    task_key: Key
    input: UserJson = UserJson()
    deadline: Instant | None = None
    requirements: Requirements | None = None
    priority: Priority = 0


class JoinIn(Body):
    """A task that was submitted elsewhere: it is watched, and never cancelled by the group."""

    task_id: Id


class GroupOut(View):
    """scopeId: the group's own scope, in which its tasks live."""

    group_id: str
    scope_id: str
    state: State


class MemberOut(View):
    """replay: the taskKey was submitted before, this is the first task."""

    task_id: str
    replay: bool


class JoinOut(View):
    """The task that is now watched."""

    task_id: str


class Member(View):
    """verdict: null while there is none."""

    task_id: str
    task_key: str
    state: TaskState
    verdict: Verdict | None


class GroupView(View):
    """members: in the order of joining. outcomeReason: of a FAILURE."""

    id: str
    scope_id: str
    mailbox_id: str
    condition: Condition
    threshold: int | None
    expected_members: int | None
    state: State
    outcome: Outcome | None
    outcome_reason: str | None
    accepted: int
    rejected: int
    members: list[Member]
    deadline: str | None
    created_at: str
    finalized_at: str | None


class CloseOut(View):
    """Where the group stands now."""

    state: State
    outcome: Outcome | None
    outcome_reason: str | None


class VerdictOut(View):
    """late: the group was finalized before, and the verdict changed nothing."""

    verdict: Verdict
    late: bool
    group_state: State
    outcome: Outcome | None
    outcome_reason: str | None
