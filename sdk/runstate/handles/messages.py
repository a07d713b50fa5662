"""Messages: one delivery of one, held under a lease until it is settled."""

import asyncio
import concurrent.futures
import contextlib
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from runstate import _retry
from runstate._background import shared
from runstate._clock import now
from runstate._heartbeat import Heartbeat, granted_at
from runstate._transport import Space, new_idempotency_key
from runstate.errors import LeaseLostError, RunstateError, UnavailableError
from runstate.handles.leases import seconds

OnLost = Callable[[RunstateError], Any]

_REPLAY_MS_MAX = 500


class Held:
    """For the SDK: the lease of one delivery. Settled once; renewed if asked to `keep` it."""

    def __init__(self, space: Space, message_id: str, token: str, lease_s: float) -> None:
        self.id = message_id
        self.settled = False
        self._space = space
        self._token = token
        self._lease_s = lease_s
        self._settling: concurrent.futures.Future[None] | None = None
        self._keys: dict[str, str] = {}
        self._heartbeat: Heartbeat | None = None

    @property
    def lost(self) -> RunstateError | None:
        """Why a lease that is kept is no longer ours; None while it is, or if it is not kept."""
        return None if self._heartbeat is None else self._heartbeat.lost

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The renewals, of a lease that is kept."""
        return self._heartbeat

    async def keep(
        self,
        asked_at: float,
        on_lost: OnLost,
        watch: Callable[[Heartbeat], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Renews it until it is settled, lost, or nobody refers to it. `watch` goes on beside that. On the
        SDK's own loop. Raises what the server refuses, if the lease has lapsed on its way here."""
        space, message_id, token, lease_s = self._space, self.id, self._token, self._lease_s

        async def beat(attempt_s: float) -> None:  # refers to nothing that a dropped delivery must not keep
            body = {"token": token, "leaseSeconds": seconds(lease_s)}
            await space.call(
                "POST", "messages", message_id, "renew", body=body, attempt_ms=attempt_s * 1000, retries=0
            )

        self._heartbeat = heartbeat = Heartbeat(
            beat,
            what=f"the lease of message {message_id}",
            lease_s=lease_s,
            sent_at=await granted_at(beat, lease_s=lease_s, asked_at=asked_at),
            on_lost=on_lost,
        )
        weakref.finalize(self, heartbeat.stop).atexit = False
        heartbeat.start(None if watch is None else watch(heartbeat))

    async def renew(self, lease_s: float | None) -> None:
        """Extends the lease once, by its own length without `lease_s`."""
        sent_at = now()
        body = {"token": self._token, "leaseSeconds": None if lease_s is None else seconds(lease_s)}
        await self._space.call("POST", "messages", self.id, "renew", body=body)
        if self._heartbeat is not None:
            self._heartbeat.extended(self._lease_s if lease_s is None else lease_s, sent_at)

    async def settle(self, verb: str, **how: Any) -> None:
        """`complete` or `nack`; a no-op once it is settled. One that is under way, on whatever loop, is
        waited for, and counts if it succeeds. May be repeated after a failure: the same again is the same
        request, under the same idempotency key."""
        while self._settling is not None:
            await asyncio.wait({asyncio.wrap_future(self._settling)})
        if self.settled:
            return
        settling: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._settling = settling
        settling.set_running_or_notify_cancel()  # whoever waits for it and gives up must not take it along
        key = self._keys.setdefault(f"{verb} {how!r}", new_idempotency_key())
        try:
            await self._space.call(
                "POST", "messages", self.id, verb, body={"token": self._token, **how}, idempotency_key=key
            )
        except LeaseLostError:
            self.let_go()
            raise
        else:
            self.let_go()
        finally:
            self._settling = None
            settling.set_result(None)

    async def settle_in_time(self, verb: str, **how: Any) -> None:
        """As `settle`, again and again while the server is away or asks for patience and the lease, which is
        kept, lasts. Returns quietly when it is lost."""
        failures = 0
        while self.lost is None:
            try:
                return await self.settle(verb, **how)
            except LeaseLostError:
                return None
            except RunstateError as error:
                if not _retry.is_not_yet(error):
                    raise
                failures += 1
            await asyncio.sleep(_retry.attempt_pause_s(failures))
        return self.let_go()

    def let_go(self) -> None:
        """Nothing more is done about it: it is settled, or lapses."""
        self.settled = True
        if self._heartbeat is not None:
            self._heartbeat.stop()


class Delivery:
    """A message, or the task it stands for, that is ours until it is settled or its lease ends. Settling
    twice is a no-op. Refusals of all verbs: LeaseLostError once it is no longer ours, ScopeCancelledError
    once its run has ended."""

    def __init__(self, held: Held, data: Any, attempt: int, scope_id: str) -> None:
        self.data = data
        self.id = held.id
        self.attempt = attempt
        self.scope_id = scope_id
        self._held = held

    def __repr__(self) -> str:
        return f"Delivery(id={self.id!r}, attempt={self.attempt})"

    async def complete(self, result: dict[str, Any] | None = None) -> None:
        """Done. `result`: `payload`, any JSON, is what a task keeps as its outcome; with `mailboxId` it is
        sent on as a new message, in `scopeId` or this scope, under `workKey`."""
        await self._held.settle("complete", result=result)

    async def retry(self) -> None:
        """Not done: to be delivered again after a while, or dead if this was the last attempt."""
        await self._held.settle("nack", retry=True)

    async def reject(self) -> None:
        """Not to be tried again: dead, with the reason `rejected`."""
        await self._held.settle("nack", retry=False)

    async def renew(self, lease_seconds: float | None = None) -> None:
        """Extends the lease to `lease_seconds` from now, or by its own length; never shortens it."""
        await self._held.renew(lease_seconds)


class Taking:
    """One recv or admit. Given up, at whatever instant, it leaves nothing leased. On the SDK's own loop."""

    def __init__(self, space: Space, path: tuple[str, ...], body: dict[str, Any], wait_ms: int) -> None:
        self.asked_at = now()
        self._space = space
        self._path = path
        self._body = body
        self._wait_ms = wait_ms
        self._key = new_idempotency_key()
        self._found: dict[str, Any] | None = None
        self._is_open = False

    async def answer(self) -> dict[str, Any] | None:
        """What the server gives out; None when it has nothing."""
        self._is_open = True
        try:
            self._found = await self._posted(wait_ms=self._wait_ms)
        except RunstateError as error:
            self._is_open = isinstance(
                error, UnavailableError
            )  # then it may have been given out all the same
            raise
        self._is_open = False
        return self._found

    async def leave(self, _taken: Any) -> None:
        """Hands back what was given out, or may have been: a request that was cut short is sent again, for so
        long as the answer to one that was granted takes; else hanging up takes nothing."""
        with contextlib.suppress(RunstateError):
            if self._is_open:
                self._found = await self._posted(attempt_ms=_REPLAY_MS_MAX, retries=0)
            if self._found is not None:
                message_id = self._found.get("messageId") or self._found["message"]["id"]
                body = {"token": self._found["token"], "retry": True, "handBack": True}
                await self._space.call("POST", "messages", message_id, "nack", body=body)

    async def _posted(self, **how: Any) -> dict[str, Any] | None:
        answer: dict[str, Any] | None = await self._space.call(
            "POST", *self._path, body=self._body, idempotency_key=self._key, **how
        )
        return answer


def held_of(delivery: Delivery) -> Held:
    """For the SDK: the lease of a delivery."""
    return delivery._held  # noqa: SLF001 - this module's own


def delivered(space: Space, answer: dict[str, Any], lease_s: float) -> Delivery:
    """For the SDK: the delivery that a recv was answered with."""
    message = answer["message"]
    held = Held(space, message["id"], answer["token"], lease_s)
    return Delivery(held, message["payload"], message["attempt"], message["scopeId"])


async def kept(held: Held, asked_at: float, on_lost: OnLost) -> bool:
    """`held.keep` for callers on any loop; False when it had lapsed before it came."""
    try:
        await shared.begun(held.keep(asked_at, on_lost))
    except LeaseLostError:
        return False
    return True
