"""Work limits on the wire."""

from typing import Annotated

from pydantic import ConfigDict, Field

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import Id, Name
from runstate_server.web.schemas import View


class WorkLimitIn(Body):
    """name: unique in its scope."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "outstanding",
                    "scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47",
                    "maxOutstanding": 100,
                }
            ]
        }
    )

    name: Name
    scope_id: Id
    max_outstanding: Annotated[int, Field(ge=1, le=bounds.backlog_max)]


class WorkLimitView(View):
    """outstanding: the unfinished tasks that were submitted under it."""

    id: str
    name: str
    scope_id: str
    max_outstanding: int
    outstanding: int


class WorkLimitList(View):
    """Oldest first."""

    work_limits: list[WorkLimitView]
    next_cursor: str | None
