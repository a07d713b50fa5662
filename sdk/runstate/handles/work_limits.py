"""Work limits: at most so many unfinished tasks of a scope and what is below it."""

from typing import Any

from runstate._config import check_name, check_whole
from runstate._transport import Space
from runstate.errors import AuthenticationError, ConflictError
from runstate.handles.lines import UNITS_MAX

_ROOM = "work-limits"


class WorkLimitsAdminAPI:
    """The work limits of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def ensure(self, name: str, *, scope_id: str, max_outstanding: int) -> dict[str, Any]:
        """The view of the limit of that name in that scope, created if there is none; tasks are submitted
        under it by `submit(work_limit=name)`. Refuses: ConflictError, naming both, when it has another size;
        AuthenticationError when it is missing and the key may not create it."""
        size = check_whole("max_outstanding", max_outstanding, 1, UNITS_MAX)
        check_name("name", name)
        found = await self._found(name, scope_id)
        if found is None:
            try:
                body = {"name": name, "scopeId": scope_id, "maxOutstanding": size}
                return dict(await self._space.call("POST", _ROOM, body=body))
            except (ConflictError, AuthenticationError):  # somebody was faster, or may do it instead of us
                found = await self._found(name, scope_id)
                if found is None:
                    raise
        if found["maxOutstanding"] != size:
            raise ConflictError(
                f"work limit {name!r} of scope {scope_id} is {found['maxOutstanding']}, not {size}"
            )
        return found

    async def _found(self, name: str, scope_id: str) -> dict[str, Any] | None:
        views = (await self._space.call("GET", _ROOM))["workLimits"]
        return next(
            (dict(each) for each in views if (each["name"], each["scopeId"]) == (name, scope_id)), None
        )
