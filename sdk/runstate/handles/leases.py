"""What the leases of claims, and of everything else that is held by a token alone, have in common."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any

from runstate._background import shared
from runstate._clock import now
from runstate._crew import is_async
from runstate._heartbeat import Heartbeat, granted_at
from runstate._threads import in_thread
from runstate._transport import Space, new_idempotency_key
from runstate.errors import LeaseLostError, RunstateError

_CANCELLED_S_MAX = 5.0
_RELEASE_S_MAX = 5.0


class Lease:
    """Something held, by `begin`, until it is released, lost or `aclose`d. Renewed by the SDK's own thread,
    about every third of `lease_s`, whatever the caller's loop does."""

    def __init__(
        self,
        space: Space,
        place: tuple[str, str],
        what: str,
        lease_s: float,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.expires_at = datetime.fromtimestamp(0).astimezone()
        self.lost_event = asyncio.Event()
        self._space = space
        self._place = place
        self._what = what
        self._lease_s = lease_s
        self._loop = loop or asyncio.get_running_loop()
        self._token = ""
        self._heartbeat: Heartbeat | None = None
        self._released = False
        self._release_key = new_idempotency_key()

    @property
    def is_lost(self) -> bool:
        """Whether the lease is no longer ours; true to the moment, from any thread. Released is not lost."""
        return self._lost() is not None

    def token(self) -> str:
        """What proves the lease to the server. A secret."""
        return self._token

    def raise_if_lost(self) -> None:
        """Raises LeaseLostError if the lease is no longer ours."""
        reason = self._lost()
        if reason is not None:
            raise LeaseLostError(f"{self._what} is lost: {reason.message}", code=reason.code) from reason

    async def renew(self, lease_seconds: float | None = None) -> None:
        """Extends the lease to `lease_seconds` from now, or by its own length; never shortens it. Refuses:
        LeaseLostError, also when it has only lapsed."""
        sent_at = now()
        await self._renewed(lease_seconds)
        if self._heartbeat is not None:
            self._heartbeat.extended(self._lease_s if lease_seconds is None else lease_seconds, sent_at)

    async def release(self, observation: Any = None) -> None:
        """Gives it up; `observation`, any JSON, is kept for the next owner to read. Again: a no-op. A release
        whose caller is cancelled goes on. Refuses: LeaseLostError, when it was lost before."""
        if self._released:
            return
        await self.aclose()
        releasing = shared.begun(self._release(observation))
        releasing.add_done_callback(seen)
        await asyncio.wait({releasing})
        releasing.result()

    async def aclose(self) -> None:
        """Renews no more, and does not release: the lease is lost when its time is over."""
        if self._heartbeat is not None:
            self._heartbeat.rest()

    async def _release(self, observation: Any) -> None:
        await self._space.call(
            "POST",
            *self._place,
            "release",
            body={"token": self._token, "observation": observation},
            idempotency_key=self._release_key,
        )
        self._released = True
        if self._heartbeat is not None:
            self._heartbeat.stop()

    async def begin(self, answer: dict[str, Any], asked_at: float) -> None:
        """For the SDK: holds what the server has granted. Raises what the server refuses, if it turns out to
        have lapsed on its way."""
        self._token = answer["token"]
        self.expires_at = instant(answer["leaseExpiresAt"])
        try:
            await shared.begun(self._begin(asked_at))
        except BaseException:  # nobody will have it: a wait that is given up leaves nothing behind
            if self._heartbeat is not None:
                self._heartbeat.stop()
            shared.begun(released(self)).add_done_callback(seen)
            raise

    async def _begin(self, asked_at: float) -> None:
        self._heartbeat = Heartbeat(
            self._beat,
            what=self._what,
            lease_s=self._lease_s,
            sent_at=await granted_at(self._beat, lease_s=self._lease_s, asked_at=asked_at),
            on_lost=self._on_lost,
        )
        self._heartbeat.start()

    async def _beat(self, attempt_s: float) -> None:
        await self._renewed(self._lease_s, attempt_ms=attempt_s * 1000, retries=0)

    async def _renewed(self, lease_s: float | None, **how: Any) -> None:
        body = {"token": self._token, "leaseSeconds": None if lease_s is None else seconds(lease_s)}
        answer = await self._space.call("POST", *self._place, "renew", body=body, **how)
        self.expires_at = instant(answer["leaseExpiresAt"])

    def _lost(self) -> RunstateError | None:
        return None if self._heartbeat is None else self._heartbeat.lost

    def _on_lost(self, _reason: RunstateError) -> None:
        with contextlib.suppress(RuntimeError):  # that loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self.lost_event.set)


async def run_under(lease: Lease, function: Callable[[Any], Any]) -> Any:
    """`function(lease)`, raced against the loss of the lease: LeaseLostError then, an async function is
    cancelled, a plain one, in its thread, abandoned. The lease is released in every case."""
    working = asyncio.ensure_future(_called(function, lease))
    lost = asyncio.ensure_future(lease.lost_event.wait())
    try:
        await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
        lease.raise_if_lost()
        return await working
    finally:
        lost.cancel()
        try:
            if not working.done():
                working.cancel()
                await asyncio.wait({working}, timeout=_CANCELLED_S_MAX)
            if working.done() and not working.cancelled():
                working.exception()  # seen: whoever lost the lease is told so instead
        finally:
            # On the SDK's loop: it goes its way also when this task is cancelled once more.
            releasing = asyncio.wrap_future(shared.submit(released(lease)))
            await asyncio.wait({releasing}, timeout=_RELEASE_S_MAX)


async def _called(function: Callable[[Any], Any], lease: Lease) -> Any:
    if is_async(function):
        return await function(lease)
    called = await asyncio.wrap_future(in_thread(lambda: function(lease), "runstate claim"))
    return await called if inspect.isawaitable(called) else called


async def released(lease: Lease) -> None:
    """Gives it up if it can be; else it was lost before, or lapses by itself."""
    with contextlib.suppress(RunstateError):
        await lease.release()


def loss(lease: Lease) -> RunstateError | None:
    """For the SDK: why the lease is no longer ours; None while it is."""
    return lease._lost()  # noqa: SLF001 - this module's own


def rest(lease: Lease) -> None:
    """For the SDK: renews no more, from any thread; it lapses."""
    if lease._heartbeat is not None:  # noqa: SLF001 - this module's own
        lease._heartbeat.rest()  # noqa: SLF001


def seen(done: "asyncio.Future[Any]") -> None:
    """A callback for what nobody may wait for: its error is nobody's; asyncio would print it as forgotten."""
    if not done.cancelled():
        done.exception()


def seconds(lease_s: float) -> float:
    """30, not 30.0: what the field is in every example and log line."""
    return int(lease_s) if float(lease_s).is_integer() else lease_s


def instant(text: str) -> datetime:
    """A time of the API. (3.10's fromisoformat does not know the Z.)"""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
