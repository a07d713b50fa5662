"""The one seam between Python and the kernel's functions: one call, one round trip, one transaction.

Repeats what was certainly rolled back, and what a lost connection left open when repeating is safe, for a
bounded time; then answers UNAVAILABLE. Hands wake-up topics on once the call has committed.
"""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from runstate_server.foundation import db
from runstate_server.foundation.errors import Code, Refusal

AGAIN: Final = "AGAIN"  # a kernel's instruction: make the expiring call if it names one, then repeat
_PAUSE_S: Final = (0.01, 0.4)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """An Idempotency-Key with the fingerprint of the request that it belongs to."""

    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What a kernel function answered; the fields are those of kernel/types.sql."""

    status: int | None
    code: str | None
    facts: dict[str, Any]
    payloads: tuple[str, ...]
    wake: tuple[str, ...]
    sleep: tuple[str, ...]
    changed: bool
    replayed: bool
    again_s: float | None
    expire: uuid.UUID | None

    @classmethod
    def of(cls, row: Any) -> "Reply":
        """The reply in a row of the driver."""
        return cls(
            row["status"],
            row["code"],
            json.loads(row["facts"]),
            tuple(row["payloads"] or ()),
            tuple(row["wake"] or ()),
            tuple(row["sleep"] or ()),
            row["changed"],
            row["replayed"],
            row["again_s"],
            row["expire"],
        )


Woken = Callable[[Sequence[str]], None]
T = TypeVar("T")


class Kernel:
    """Runs kernel functions of one build on the pool.

    `committed` is called with the topics of every call that changed something, after its commit.
    """

    def __init__(self, pool: Any, *, schema: str, outage_wait_s: float, committed: Woken) -> None:
        self.pool = pool
        self.schema = schema
        self._outage_wait_s = outage_wait_s
        self._committed = committed
        self._statements: dict[tuple[str, int], str] = {}

    async def call(
        self, function: str, *args: Any, idempotency: Idempotency | None = None, repeatable: bool = False
    ) -> Reply:
        """One call. The space is the first argument. `repeatable`: the function takes no idempotency key and
        does no harm when it runs twice (reads), so a lost connection is simply tried again.
        Refuses: UNAVAILABLE when the database is away for longer than the outage wait, or the outcome is
        unknown."""
        deadline = time.monotonic() + self._outage_wait_s
        while True:
            reply, repaired = await self._attempts(function, args, idempotency, repeatable=repeatable)
            if reply.changed or reply.wake:
                self._committed(reply.wake)
            if reply.expire is not None:
                await self._expire(args[0], reply.expire)
            if reply.code != AGAIN:
                break
            if time.monotonic() > deadline:
                raise Refusal(
                    Code.UNAVAILABLE, f"not done in time: {reply.facts['message']}", retry_after_s=1
                )
        if repaired and reply.replayed:
            # The key repaired this server's own repetition: to the client it is the first answer.
            self._committed(())
            return replace(reply, replayed=False)
        return reply

    async def patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """The result of a read that is no kernel function (a listing), repeated while the database is away.
        Refuses: UNAVAILABLE, as call does."""
        deadline = time.monotonic() + self._outage_wait_s
        pause = _PAUSE_S[0]
        while True:
            try:
                return await read()
            except Exception as error:
                lost = db.is_lost(error)
                if not lost and not db.is_rolled_back(error):
                    raise
                if time.monotonic() + pause > deadline:
                    raise Refusal(Code.UNAVAILABLE, _away(lost=lost), retry_after_s=1) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  jitter, not secrecy
            pause = min(pause * 2, _PAUSE_S[1])

    async def step(self, function: str, *args: Any) -> Any:
        """One row of a step (sequencer, sweep, tick): no repetition, the next round is the repetition."""
        async with self.pool.acquire(timeout=self._outage_wait_s) as connection:
            return await connection.fetchrow(self._statement(function, len(args)), *args)

    async def rows(self, function: str, *args: Any) -> list[Any]:
        """All rows of a step that returns several."""
        async with self.pool.acquire(timeout=self._outage_wait_s) as connection:
            return list(await connection.fetch(self._statement(function, len(args)), *args))

    async def _expire(self, space_id: str, scope_id: uuid.UUID) -> None:
        """Write a deadline that a call found passed; the call held the gate shared and could not."""
        reply, _ = await self._attempts("scope_expire", (space_id, scope_id), None, repeatable=True)
        if reply.changed:
            self._committed(reply.wake)

    async def _attempts(
        self,
        function: str,
        args: tuple[Any, ...],
        idempotency: Idempotency | None,
        *,
        repeatable: bool,
    ) -> tuple[Reply, bool]:
        if not repeatable:
            args = (*args, *((idempotency.key, idempotency.fingerprint) if idempotency else (None, None)))
        statement = self._statement(function, len(args))
        safe = repeatable or idempotency is not None
        deadline = time.monotonic() + self._outage_wait_s
        repaired = False
        pause = _PAUSE_S[0]
        while True:
            sent = False
            try:
                async with self.pool.acquire(timeout=max(0.1, deadline - time.monotonic())) as connection:
                    sent = True
                    return Reply.of(await connection.fetchrow(statement, *args)), repaired
            except Exception as error:
                lost = db.is_lost(error)
                if not lost and not db.is_rolled_back(error):
                    raise
                if lost and sent and not safe:
                    raise Refusal(
                        Code.UNAVAILABLE,
                        "the connection to the database was lost: the outcome of this call is unknown; "
                        "send an Idempotency-Key to be able to repeat it",
                    ) from error
                repaired = repaired or (lost and sent)
                if time.monotonic() + pause > deadline:
                    raise Refusal(Code.UNAVAILABLE, _away(lost=lost), retry_after_s=1) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  jitter, not secrecy
            pause = min(pause * 2, _PAUSE_S[1])

    def _statement(self, function: str, arity: int) -> str:
        """SELECT * FROM f(…): the spelling that runs a composite-returning function once."""
        known = self._statements.get((function, arity))
        if known is None:
            places = ", ".join(f"${i}" for i in range(1, arity + 1))
            known = f"SELECT * FROM {self.schema}.{function}({places})"  # noqa: S608  names of our own functions
            self._statements[function, arity] = known
        return known


def _away(*, lost: bool) -> str:
    if lost:
        return "the database is away; nothing was changed that was not answered, try again"
    return "the database is busy: a lock was not had in time, try again"
