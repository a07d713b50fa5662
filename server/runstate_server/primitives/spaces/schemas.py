"""Spaces and keys on the wire of the administrator."""

from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool

from runstate_server.foundation import bounds
from runstate_server.web.bodies import Body
from runstate_server.web.caller import Permission
from runstate_server.web.fields import Instant, Name, SpaceId
from runstate_server.web.schemas import View

_Count = Annotated[int, Field(ge=0, le=bounds.limit_max)]
_Permission = Annotated[Permission, Field(strict=False)]


class Limits(Body):
    """What a space may use; a limit that is left out is none."""

    requests_per_minute: _Count | None = None
    active_leases: _Count | None = None
    resources: _Count | None = None
    operations_per_month: _Count | None = None


class SpaceIn(Body):
    """id: made by the server when it is left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "acme", "name": "Acme, production"}]})

    id: SpaceId | None = None
    name: Name
    limits: Limits | None = None


class SpacePatch(Body):
    """limits: replace all limits; an empty object lifts them."""

    suspended: StrictBool | None = None
    limits: Limits | None = None


class KeyIn(Body):
    """alsoSpaces: further spaces that the key covers, for the administrator alone to give."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"label": "workers", "permissions": ["runtime", "observe"]}]}
    )

    label: Name
    permissions: Annotated[list[_Permission], Field(min_length=1, max_length=len(Permission))]
    expires_at: Instant | None = None
    also_spaces: Annotated[list[SpaceId], Field(max_length=bounds.key_spaces_max)] | None = None


class SpaceView(View):
    """A suspended space refuses every call of its keys."""

    id: str
    name: str
    suspended: bool
    limits: dict[str, int]
    created_at: str


class SpacePage(View):
    """Oldest first."""

    spaces: list[SpaceView]
    next_cursor: str | None


class KeyView(View):
    """spaces: all that the key covers; lastUsedAt: to the minute."""

    id: str
    label: str
    permissions: list[Permission]
    spaces: list[str]
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class NewKeyView(KeyView):
    """key: shown this once, only its hash is stored."""

    key: str


class KeyPage(View):
    """Oldest first, revoked ones too."""

    keys: list[KeyView]
    next_cursor: str | None
