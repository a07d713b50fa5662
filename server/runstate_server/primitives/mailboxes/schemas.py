"""Mailboxes on the wire."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import Name
from runstate_server.web.requirements import Requirements
from runstate_server.web.schemas import View

_Attempts = Annotated[int, Field(ge=1, le=bounds.attempts_max)]
_Backlog = Annotated[int, Field(ge=1, le=bounds.backlog_max)]


class Mode(StrEnum):
    """WORK: competing consumers; INBOX: each scope strictly in order of arrival."""

    WORK = "WORK"
    INBOX = "INBOX"


class SettingsIn(Body):
    """What is left out keeps its value, or gets its default at creation (WORK, no limit, 5 attempts, nothing
    required). Empty requirements clear what was required."""

    mode: Annotated[Mode | None, Field(strict=False)] = None
    backlog_limit: _Backlog | None = None
    max_attempts: _Attempts | None = None
    requirements: Requirements | None = None


class MailboxIn(SettingsIn):
    """name: unique in the space."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "research", "maxAttempts": 5}]})

    name: Name


class MailboxView(View):
    """backlogLimit: null when there is none."""

    id: str
    name: str
    mode: Mode
    backlog_limit: int | None
    max_attempts: int
    requirements: dict[str, object] | None
    created_at: str


class MailboxList(View):
    """Oldest first."""

    mailboxes: list[MailboxView]
    next_cursor: str | None
