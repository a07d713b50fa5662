"""Barriers: everybody waits until so many have arrived."""

from typing import Any

from runstate._config import check_name, check_whole
from runstate._transport import Space
from runstate._waits import until_answered
from runstate.errors import ConflictError

TARGET_MAX = 10_000
_KEY_CHARS_MAX = 512


class BarrierHandle:
    """One barrier by its id. Local: nothing is asked of the server until a verb is called."""

    def __init__(self, space: Space, barrier_id: str) -> None:
        self._space = space
        self._epoch: int | None = None  # in which this handle has arrived, until it has waited for its end
        self.id = barrier_id

    def __repr__(self) -> str:
        return f"BarrierHandle({self.id!r})"

    async def arrive(self, *, key: str) -> dict[str, Any]:
        """Counts `key`, once however often it arrives; the last one releases the barrier. Returns `{"state",
        "arrivals", "epoch"}`. Refuses: ConflictError (BARRIER_RELEASED) for a key that comes too late."""
        answer = await arrive(self._space, self.id, key)
        self._epoch = answer["epoch"]
        return answer

    async def status(self) -> dict[str, Any]:
        """The barrier's view: `{"id", "name", "scopeId", "state", "epoch", "arrivals", "target"}`."""
        return dict(await self._space.call("GET", "barriers", self.id))

    async def wait(self, *, timeout_ms: int = 60_000, poll_ms: int = 250) -> dict[str, Any]:
        """The view once the barrier is RELEASED, or has been reset since this handle arrived (else since this
        call): `epoch` tells. Asks every `poll_ms` where the server cannot hold the question. Refuses:
        ConflictError (BARRIER_CANCELLED) when its scope ended before, WaitTimeoutError."""
        view = await until_answered(
            Round(self._space, self.id, self._epoch).over,
            timeout_s=timeout_ms / 1000,
            what=f"the release of barrier {self.id}",
            poll_s=poll_ms / 1000,
        )
        self._epoch = None
        if view["state"] == "CANCELLED":
            raise ConflictError(
                f"barrier {self.id} was cancelled: its scope ended with {view['arrivals']} of "
                f"{view['target']} arrived",
                code="BARRIER_CANCELLED",
            )
        return view


class BarriersAPI:
    """The barriers of one scope."""

    def __init__(self, space: Space, scope_id: str) -> None:
        self._space = space
        self._scope_id = scope_id

    async def create(self, *, target: int) -> BarrierHandle:
        """A new barrier, for which `target` have to arrive, 1 to 10,000. Refuses: an ended scope."""
        body = {"scopeId": self._scope_id, "target": check_whole("target", target, 1, TARGET_MAX)}
        view = await self._space.call("POST", "barriers", body=body)
        return BarrierHandle(self._space, view["id"])

    def get(self, barrier_id: str) -> BarrierHandle:
        """A barrier whose id is known. Local."""
        return BarrierHandle(self._space, barrier_id)


class Round:
    """One epoch of a barrier, waited for: the one given, else the one that is found at the first look."""

    def __init__(self, space: Space, barrier_id: str, epoch: int | None) -> None:
        self._space = space
        self._id = barrier_id
        self._epoch = epoch

    async def over(self, wait_ms: int) -> dict[str, Any] | None:
        """The view once the epoch is over, or the barrier cancelled; None if it is not after `wait_ms`."""
        if self._epoch is None:
            view = await self._look(0)
            self._epoch = view["epoch"]
            if view["state"] != "WAITING":
                return view
        view = await self._look(wait_ms)
        return None if (view["state"], view["epoch"]) == ("WAITING", self._epoch) else view

    async def _look(self, wait_ms: int) -> dict[str, Any]:
        return dict(await self._space.call("GET", "barriers", self._id, wait_ms=wait_ms))


async def arrive(
    space: Space, barrier_id: str, key: str, *, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Counts `key`, by POST /barriers/{id}/arrive."""
    body = {"arrivalKey": check_name("key", key, _KEY_CHARS_MAX)}
    return dict(
        await space.call("POST", "barriers", barrier_id, "arrive", body=body, idempotency_key=idempotency_key)
    )


async def named_barrier_id(space: Space, scope_id: str, name: str, target: int) -> str:
    """The id of the scope's barrier of that name, created if there is none. Refuses: ConflictError, naming
    both, when it has another target."""
    body = {"scopeId": scope_id, "target": target}
    return str((await space.call("PUT", "barriers", "by-name", name, body=body))["id"])
