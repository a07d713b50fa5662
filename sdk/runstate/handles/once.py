"""Once: one recorded result per key of a scope."""

from typing import Any

from runstate._transport import Space


class OnceRef:
    """One key of one scope. `state` in its answers is OPEN, ACQUIRED, HELD, DONE or FAILED."""

    def __init__(self, space: Space, scope_id: str, key: str) -> None:
        self._space = space
        self.scope_id = scope_id
        self.key = key

    async def acquire(self, *, lease_seconds: float = 30) -> dict[str, Any]:
        """ACQUIRED with a `token`, or HELD by another, DONE with a `result`, FAILED with `lastError`."""
        body = {**self._place(), **self._space.holder(), "leaseSeconds": _seconds(lease_seconds)}
        return dict(await self._space.call("POST", "once", "acquire", body=body))

    async def view(self, *, wait_ms: int = 0) -> dict[str, Any]:
        """The state now; with `wait_ms` (at most 30,000) as soon as it is no longer HELD."""
        return dict(await self._space.call("GET", "once", query=self._place(), wait_ms=wait_ms))

    async def renew(
        self,
        token: str,
        *,
        lease_seconds: float,
        attempt_ms: float | None = None,
        retries: int | None = None,
    ) -> dict[str, Any]:
        """Extends the lease to `lease_seconds` from now. Refuses: STALE_CLAIM, also if it only lapsed."""
        body = {**self._place(), "token": token, "leaseSeconds": _seconds(lease_seconds)}
        return dict(
            await self._space.call("POST", "once", "renew", body=body, attempt_ms=attempt_ms, retries=retries)
        )

    async def complete(
        self, token: str, result: Any, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Records `result` for good. Refuses: STALE_CLAIM, and more than 65,536 bytes."""
        body = {**self._place(), "token": token, "result": result}
        return dict(
            await self._space.call("POST", "once", "complete", body=body, idempotency_key=idempotency_key)
        )

    async def fail(
        self, token: str, error: str, *, max_attempts: int, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Records a failure: OPEN for the next caller, or FAILED once `max_attempts` are recorded."""
        body = {**self._place(), "token": token, "error": error, "maxAttempts": max_attempts}
        return dict(
            await self._space.call("POST", "once", "fail", body=body, idempotency_key=idempotency_key)
        )

    def _place(self) -> dict[str, Any]:
        return {"scopeId": self.scope_id, "key": self.key}


def _seconds(lease_seconds: float) -> float:
    # 30, not 30.0: what the field is in every example and log line.
    return int(lease_seconds) if float(lease_seconds).is_integer() else lease_seconds
