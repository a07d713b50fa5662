"""Events: every state change of a space, in order, from a cursor on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from runstate import _retry
from runstate._config import check_number
from runstate._flags import until_set
from runstate._transport import Space
from runstate.errors import ConfigError, RunstateError

WAIT_S = 5
WAIT_S_MAX = 30  # the server holds a watch for 8 s at most, whatever is asked
_PAUSE_S = 0.5  # after an answer that brought nothing and was not held


class EventsAPI:
    """The journal of a space. Needs the permission `observe`."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def list(self, *, cursor: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """One page, oldest first: {"events", "nextCursor"}; without a cursor from the oldest kept event.
        Raises CursorExpiredError when events after the cursor are no longer kept."""
        return dict(await self._space.call("GET", "events", query={"cursor": cursor, "limit": limit}))

    async def watch(
        self,
        *,
        cursor: str | None = None,
        types: Sequence[str] | None = None,
        aggregate: Mapping[str, str] | None = None,
        scope_id: str | None = None,
        limit: int | None = None,
        wait_seconds: float | None = None,
        stop_event: Any = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Every event from the cursor on (without one: from the oldest kept), and then each as it comes, with
        its own "cursor", from which another watch goes on after it.

        Only those of `types`, of `aggregate` ({"type", "id"}), of the subtree of `scope_id`, if given. Ends
        at once when `stop_event` is set (an asyncio.Event, ThreadSafeEvent or threading.Event). A server that
        is away is waited for. Each request is held for `wait_seconds`, and brings at most `limit` events.
        Raises CursorExpiredError and whatever else the server refuses."""
        query = {
            "types": None if types is None else _types(types),
            "aggregate": None if aggregate is None else _aggregate(aggregate),
            "scopeId": scope_id,
            "limit": limit,
            "waitSeconds": _wait_s(wait_seconds),
        }
        stopping = asyncio.ensure_future(_until_stopped(stop_event))
        try:
            async for page in self._pages(query, cursor, stopping):
                for event in page["events"]:
                    event.setdefault("cursor", page["nextCursor"])
                    if stopping.done():
                        return
                    yield event
        finally:
            stopping.cancel()

    async def _pages(
        self, query: Mapping[str, Any], cursor: str | None, stopping: "asyncio.Future[Any]"
    ) -> AsyncIterator[dict[str, Any]]:
        """Page after page, until `stopping` is done; a server that is away is asked again."""
        failures = 0
        while not stopping.done():
            pause_s = 0.0
            try:
                page = await _unless(stopping, self._page({**query, "cursor": cursor}))
            except RunstateError as error:
                if not _retry.is_not_yet(error):
                    raise
                failures += 1
                pause_s = _retry.wait_pause_s(failures, error.retry_after_ms)
            else:
                if page is None:
                    return
                failures = 0
                yield page
                if not page["events"] and page["nextCursor"] == cursor and not query["waitSeconds"]:
                    pause_s = _PAUSE_S
                cursor = page["nextCursor"]
            if pause_s:
                await asyncio.wait({stopping}, timeout=pause_s)

    async def _page(self, query: Mapping[str, Any]) -> dict[str, Any]:
        held_ms = self._space.transport.config.request_timeout_ms + query["waitSeconds"] * 1000
        return dict(await self._space.call("GET", "watch", query=query, attempt_ms=held_ms))


async def _until_stopped(flag: Any) -> None:
    if flag is None:
        await asyncio.get_running_loop().create_future()
    else:
        await until_set(flag, own_loop=True)


async def _unless(stopping: "asyncio.Future[Any]", asked: Any) -> Any:
    """What `asked` brings, or None as soon as `stopping` is done; it is cancelled then."""
    asking = asyncio.ensure_future(asked)
    try:
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        return None
    finally:
        if not asking.done():
            asking.cancel()
            with contextlib.suppress(BaseException):
                await asyncio.wait({asking})


def _wait_s(wait_seconds: float | None) -> float:
    return check_number("wait_seconds", WAIT_S if wait_seconds is None else wait_seconds, 0, WAIT_S_MAX)


def _types(types: Any) -> str:
    if isinstance(types, str) or not all(isinstance(each, str) and "," not in each for each in types):
        raise ConfigError(f"types must be a list of event types such as 'task.succeeded', not {types!r}")
    if not types:
        raise ConfigError("types must not be empty; leave it out for every type")
    return ",".join(types)


def _aggregate(aggregate: Any) -> str:
    if not isinstance(aggregate, Mapping) or set(aggregate) != {"type", "id"}:
        raise ConfigError(f'aggregate must be {{"type": ..., "id": ...}}, not {aggregate!r}')
    return f"{aggregate['type']}:{aggregate['id']}"
