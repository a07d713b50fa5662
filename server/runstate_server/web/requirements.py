"""What a task needs before it can run, on the wire: of itself, or of all in its mailbox."""

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field, field_validator

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.fields import Name, PositiveMinor, Units


class UnitsNeed(Body):
    """So many units of the pool or allowance of that name."""

    name: Name
    units: Units


class MoneyNeed(Body):
    """So much of the budget of that name, reserved in its minor units."""

    name: Name
    reserve_minor: PositiveMinor


_Units = Annotated[list[UnitsNeed], Field(max_length=bounds.needs_units_max)]
_Money = Annotated[list[MoneyNeed], Field(max_length=bounds.needs_money_max)]


class Requirements(Body):
    """Taken together with the task, or not at all. Each name once in its list."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"pools": [{"name": "browsers", "units": 1}]}],
        }
    )

    pools: _Units | None = None
    quotas: _Units | None = None
    budgets: _Money | None = None

    @field_validator("pools", "quotas", "budgets")
    @classmethod
    def _each_once(cls, needs: list[Any] | None) -> list[Any] | None:
        seen: set[str] = set()
        for need in needs or ():
            if need.name in seen:
                raise ValueError(f"{need.name!r} is named twice")
            seen.add(need.name)
        return needs

    @property
    def text(self) -> str:
        """As it is kept: compact JSON, lists that are empty left out, the others by name. Equal needs are
        equal texts."""
        lists = self.model_dump(by_alias=True)
        kept = {
            kind: sorted(needs, key=lambda need: str(need["name"])) for kind, needs in lists.items() if needs
        }
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def own(requirements: Requirements | None) -> str | None:
    """Of a task: None when it names nothing, so that its mailbox's count."""
    return None if requirements is None or requirements.text == "{}" else requirements.text
