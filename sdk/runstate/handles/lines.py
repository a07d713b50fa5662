"""Waiting in a line of the server's, for units of a pool or a quota, so that whoever gives up, at whatever
instant, leaves nothing behind: no place in the line, and nothing taken that nobody knows of.

All of it happens on the SDK's own loop, one thread, so that "it was taken" and "it is given up" come one
after the other, and a call goes on although its caller's loop has gone."""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from runstate import _retry
from runstate._background import shared
from runstate._clock import now
from runstate._transport import Space, new_idempotency_key
from runstate.errors import NotFoundError, RunstateError, UnavailableError
from runstate.handles.leases import seen

T = TypeVar("T")

UNITS_MAX = 2**53 - 1  # what every JSON parser carries exactly; the server has the bound that counts
TTL_S = 30  # a waiter that has died stands in the way of those behind it no longer than this
_OVER = frozenset({"EXPIRED", "CANCELLED"})
_LEAVE_S_MAX = 30.0
_LEFT_S_MAX = 2.0  # how long who gives up waits for what is left behind to be gone


class Request:
    """One POST whose outcome must be known: it goes on when the wait for it is given up, and is sent again,
    the same under the same idempotency key, after a reply that was lost."""

    def __init__(self, space: Space, *path: str, body: dict[str, Any]) -> None:
        self.sent_at = now()
        self._space = space
        self._path = path
        self._body = body
        self._key = new_idempotency_key()
        self._sending: asyncio.Task[Any] | None = None

    async def answer(self) -> dict[str, Any]:
        """The answer. Refuses: what the server refuses; UnavailableError leaves it open what has happened,
        and the next call of this finds out."""
        if self._sending is None:
            self._sending = shared.spawn(
                self._space.call("POST", *self._path, body=self._body, idempotency_key=self._key)
            )
            self._sending.add_done_callback(seen)
        sending = self._sending
        await asyncio.wait({sending})
        try:
            return dict(sending.result())
        except UnavailableError:
            self._sending = None
            raise

    async def outcome(self) -> dict[str, Any] | None:
        """The answer, waited for through an outage of half a minute; None when it was refused."""
        return await patiently(self.answer)


class Waiter:
    """A place in a line: joined at the first look, and kept by looking. `room` is where the line is."""

    def __init__(self, space: Space, room: tuple[str, str], lookout: str, body: dict[str, Any]) -> None:
        self.id: str | None = None
        self._space = space
        self._room = room
        self._lookout = lookout
        self._body = {**body, "ttlSeconds": TTL_S}
        self._joining: Request | None = None

    async def look(self, wait_ms: int) -> dict[str, Any]:
        """What has become of it: `state` and more. As soon as it is not WAITING, or after `wait_ms`. One that
        was dropped joins again with the next look. Refuses: the end of the scope."""
        if self.id is None:
            view = await self._joined()
            if view["state"] != "WAITING":
                return view
        assert self.id is not None  # noqa: S101 - it has joined
        try:
            view = dict(await self._space.call("GET", self._lookout, self.id, wait_ms=wait_ms))
        except NotFoundError:
            view = {"state": "EXPIRED"}
        if view["state"] in _OVER:
            self.forget()
        return view

    def forget(self) -> None:
        """It has ended: there is nothing to leave."""
        self.id = None

    async def leave(self) -> dict[str, Any] | None:
        """Out of the line, if it is in it, or is about to be. Returns what had become of it before, if it had
        ended, or has been served while it was leaving."""
        if self._joining is not None and await self._joining.outcome() is not None:
            await self._joined()
        waiter_id = self.id
        if waiter_id is None:
            return None
        left = await patiently(lambda: self._space.call("POST", self._lookout, waiter_id, "cancel", body={}))
        self.forget()
        if left is None or left["state"] in _OVER:
            return None
        view = await patiently(lambda: self._space.call("GET", self._lookout, waiter_id))
        return None if view is None else dict(view)

    async def _joined(self) -> dict[str, Any]:
        if self._joining is None:
            self._joining = Request(self._space, *self._room, "wait", body=self._body)
        try:
            view = await self._joining.answer()
        except RunstateError as error:
            if not isinstance(error, UnavailableError):
                self._joining = None
            raise
        self._joining = None
        self.id = view["waiterId"]
        return view


class Errand(Generic[T]):
    """Something to be taken, by `take`, and what to do, by `leave`, when it, or the taking of it, is given
    up. `leave` gets what was taken, None if that is not known."""

    def __init__(
        self, take: Callable[[], Awaitable[T]], leave: Callable[[T | None], Awaitable[None]]
    ) -> None:
        self._take = take
        self._leave = leave
        self._given_up = False
        self._taken: T | None = None
        self._taking: asyncio.Future[T] | None = None

    async def run(self) -> T:
        """What is taken; on the SDK's own loop."""
        if self._given_up:
            raise asyncio.CancelledError
        self._taking = asyncio.ensure_future(self._take())
        self._taken = await self._taking
        return self._taken

    async def give_up(self) -> None:
        """Ends the taking, and leaves; on the SDK's own loop."""
        self._given_up = True
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
            if not self._taking.cancelled() and self._taking.exception() is None:
                self._taken = self._taking.result()
        await self._leave(self._taken)


async def taken(errand: Errand[T]) -> T:
    """What the errand takes, waited for on the caller's own loop. Cancelled, or refused, it is given up."""
    taking = shared.begun(errand.run())
    taking.add_done_callback(seen)
    try:
        await asyncio.wait({taking})
        return taking.result()
    except GeneratorExit:  # the caller is being thrown away: nothing can be waited for any more
        shared.submit(errand.give_up())
        raise
    except BaseException:
        leaving = shared.begun(errand.give_up())
        leaving.add_done_callback(seen)
        await asyncio.wait({leaving}, timeout=_LEFT_S_MAX)
        raise


def taken_by_thread(errand: Errand[T]) -> T:
    """As `taken`, waited for by blocking this thread. Interrupted, or refused, it is given up."""
    taking = shared.submit(errand.run())
    try:
        return taking.result()
    except BaseException:
        concurrent.futures.wait([shared.submit(errand.give_up())], timeout=_LEFT_S_MAX)
        raise
    finally:
        del taking  # it holds the error, whose traceback holds this frame


async def patiently(call: Callable[[], Awaitable[T]]) -> T | None:
    """What `call` returns, asked again while the server is away, for half a minute; None if it is refused."""
    failures, until = 0, now() + _LEAVE_S_MAX
    while True:
        try:
            return await call()
        except RunstateError as error:
            failures += 1
            if not _retry.is_transient(error) or now() > until:
                return None
        await asyncio.sleep(_retry.attempt_pause_s(failures))
