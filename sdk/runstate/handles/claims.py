"""Claims: own a key. One holder at a time; each later owner has a larger `generation`."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

from runstate._clock import now
from runstate._config import check_name
from runstate._transport import Space, new_idempotency_key
from runstate._waits import until_answered
from runstate.errors import ConflictError, LeaseLostError, RunstateError, UnavailableError
from runstate.handles.leases import Lease, released, run_under, seconds
from runstate.handles.lines import Errand, patiently, taken

T = TypeVar("T")

_KEY_CHARS_MAX = 512
_HELD = "CLAIM_HELD"
_REPLAY_MS_MAX = 500


class ClaimLease(Lease):
    """A key that is ours. `generation` is the number to hand to what is written to under it, so that it can
    refuse earlier owners; `lost_event` is set, on the loop that acquired it, once it is no longer ours."""

    def __init__(
        self, space: Space, key: str, lease_s: float, generation: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(space, ("claims", key), f"the claim {key!r}", lease_s, loop=loop)
        self.key = key
        self.generation = generation

    def __repr__(self) -> str:
        return f"ClaimLease(key={self.key!r}, generation={self.generation!r})"


class ClaimRef:
    """One key of one scope. Local: nothing is asked of the server until a verb is called."""

    def __init__(self, space: Space, scope_id: str, key: str) -> None:
        self._space = space
        self.scope_id = scope_id
        self.key = check_name("key", key, _KEY_CHARS_MAX)

    def __repr__(self) -> str:
        return f"ClaimRef(scope_id={self.scope_id!r}, key={self.key!r})"

    async def acquire(
        self, *, lease_seconds: float = 30, wait: bool = False, timeout_ms: int = 30_000
    ) -> ClaimLease:
        """Takes the key. Refuses: ConflictError (CLAIM_HELD) when somebody has it, this client too. With
        `wait` it waits for the key, and for a lease that the space's limit allows, up to `timeout_ms`:
        WaitTimeoutError. Cancelled, at whatever instant, it leaves the key free."""
        asking = _Asking(self._space, self._body(lease_seconds), self.key, lease_seconds)

        async def at_once() -> ClaimLease:
            while True:
                lease = await asking.once(None)
                if lease is not None:
                    return lease

        async def waited_for() -> ClaimLease:
            what = f"the claim {self.key!r}"
            return await until_answered(asking.patiently, timeout_s=timeout_ms / 1000, what=what, poll_s=0.3)

        return await taken(Errand(waited_for if wait else at_once, asking.leave))

    async def try_acquire(self, **kwargs: Any) -> dict[str, Any]:
        """`{"kind": "acquired", "lease": ClaimLease}`, or `{"kind": "busy"}` where `acquire` with the same
        arguments is refused because somebody has the key."""
        try:
            return {"kind": "acquired", "lease": await self.acquire(**kwargs)}
        except ConflictError as error:
            if error.code != _HELD:
                raise
            return {"kind": "busy"}

    @overload
    async def run(self, fn: Callable[[ClaimLease], Coroutine[Any, Any, T]], **kwargs: Any) -> T: ...

    @overload
    async def run(self, fn: Callable[[ClaimLease], T], **kwargs: Any) -> T: ...

    async def run(self, fn: Callable[[ClaimLease], Any], **kwargs: Any) -> Any:
        """`fn(lease)`, async or plain (then in a thread), while the key is ours; `kwargs` go to `acquire`.
        When the lease is lost an async `fn` is cancelled, a plain one abandoned, and LeaseLostError raised.
        The key is released in every case."""
        return await run_under(await self.acquire(**kwargs), fn)

    def _body(self, lease_s: float) -> dict[str, Any]:
        return {
            "key": self.key,
            "scopeId": self.scope_id,
            **self._space.holder(),
            "leaseSeconds": seconds(lease_s),
        }


class _Asking:
    """One acquire, which may need several requests. After a reply that was lost the same request is sent
    again, under the same idempotency key, so that a lease that was granted is found, not leaked. On the SDK's
    own loop; the lease is for the loop that this was made on."""

    def __init__(self, space: Space, body: dict[str, Any], key: str, lease_s: float) -> None:
        self._space = space
        self._body = body
        self._key = key
        self._lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._pending: tuple[str, int | None, float] | None = None
        self._lease: ClaimLease | None = None

    async def patiently(self, wait_ms: int) -> ClaimLease | None:
        """The lease, or None if the key is still held after `wait_ms`."""
        try:
            return await self.once(wait_ms, retries=0)
        except ConflictError as error:
            if error.code != _HELD:
                raise
            return None

    async def once(self, wait_ms: int | None, *, retries: int | None = None) -> ClaimLease | None:
        """The lease; None if it had lapsed before its reply came. Raises what it is refused with."""
        if self._pending is None:
            self._pending = (new_idempotency_key(), wait_ms, now())
        idempotency_key, wait_ms, asked_at = self._pending
        try:
            answer = await self._space.call(
                "POST",
                "claims",
                body={**self._body, "waitMs": wait_ms},
                wait_ms=wait_ms or 0,
                idempotency_key=idempotency_key,
                retries=retries,
            )
        except RunstateError as error:
            if not isinstance(error, UnavailableError):  # then it may have been granted all the same
                self._pending = None
            raise
        self._lease = ClaimLease(self._space, self._key, self._lease_s, answer["generation"], self._loop)
        self._pending = None
        try:
            await self._lease.begin(answer, asked_at)
        except LeaseLostError:
            return None
        return self._lease

    async def leave(self, lease: ClaimLease | None) -> None:
        """Gives up what was taken, or may have been: a request that was cut short is sent again, for so long
        as the answer to one that was granted takes; else hanging up takes nothing."""
        lease = lease or self._lease
        if lease is not None:
            await released(lease)
        if self._pending is None:
            return
        idempotency_key, wait_ms, _ = self._pending
        with contextlib.suppress(RunstateError):
            answer = await self._space.call(
                "POST",
                "claims",
                body={**self._body, "waitMs": wait_ms},
                idempotency_key=idempotency_key,
                attempt_ms=_REPLAY_MS_MAX,
                retries=0,
            )
            given = {"token": answer["token"]}
            await patiently(lambda: self._space.call("POST", "claims", self._key, "release", body=given))
