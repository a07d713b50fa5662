"""Who administers: the operator by the admin token, or a key with `space_admin` in its own space."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from runstate_server.foundation.errors import Code, Refusal
from runstate_server.web.caller import KeyRing, KnownKey, Permission, bearer
from runstate_server.web.exchange import RoomRoute

_WHO: Final = "x-administrator"
OPERATOR: Final[dict[str, Any]] = {_WHO: "operator"}
SPACE_ADMIN: Final[dict[str, Any]] = {_WHO: "operator or space_admin"}


@dataclass(frozen=True, slots=True)
class Administrator:
    """`key` is None for the operator."""

    key: KnownKey | None

    def need_operator(self, what: str) -> None:
        """Refuses: FORBIDDEN to anyone but the operator."""
        if self.key is not None:
            raise Refusal(Code.FORBIDDEN, f"only the admin token may {what}")

    def need_space(self, space_id: str) -> None:
        """Refuses: FORBIDDEN to a key that does not cover the space or lacks `space_admin`;
        SPACE_SUSPENDED."""
        if self.key is None:
            return
        suspended = self.key.spaces.get(space_id)
        if suspended is None:
            raise Refusal(
                Code.FORBIDDEN, "this key does not cover the space of the path, or there is no such space"
            )
        if Permission.SPACE_ADMIN.value not in self.key.permissions:
            raise Refusal(Code.FORBIDDEN, f"this key lacks the permission {Permission.SPACE_ADMIN.value!r}")
        if suspended:
            raise Refusal(Code.SPACE_SUSPENDED, f"space {space_id} is suspended")


async def identify(keys: KeyRing, token: str | None, authorization: str | None) -> Administrator:
    """Refuses: UNAUTHENTICATED. Without a configured token everything the operator alone may do is
    FORBIDDEN."""
    secret = bearer(authorization)
    if token is not None and hmac.compare_digest(secret.encode(), token.encode()):
        return Administrator(None)
    try:
        return Administrator(await keys.known(authorization))
    except Refusal:
        if token is None:
            raise Refusal(Code.FORBIDDEN, "this server has no admin token (RUNSTATE_ADMIN_TOKEN)") from None
        raise


def administrator(request: Request) -> Administrator:
    """Who sent this request."""
    found: Administrator = request.scope["runstate.administrator"]
    return found


class AdminRoute(RoomRoute):
    """A route of the administration. Calls carry no Idempotency-Key; one that is sent is not looked at."""

    def authorizer(self) -> Callable[[Request], None]:
        """The check of `_WHO`."""
        operator_alone = (self.openapi_extra or {})[_WHO] == OPERATOR[_WHO]

        def check(request: Request) -> None:
            who = administrator(request)
            if operator_alone:
                who.need_operator("administer spaces")
            else:
                who.need_space(request.path_params["space_id"])

        return check
