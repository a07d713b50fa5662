"""The one seam between Python and the kernel's functions: one call, one round trip, one transaction.

Repeats what was certainly rolled back, and what a lost connection left open when repeating is safe, for a
bounded time; then answers UNAVAILABLE. Hands wake-up topics on once the call has committed.
"""

import asyncio
import json
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from runstate_server.foundation import bounds, db
from runstate_server.foundation.db import Trouble
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.kernel.turns import Crowds, Turns

AGAIN: Final = "AGAIN"  # a kernel's instruction: make the expiring call if it names one, then repeat
_PAUSE_S: Final = (0.01, 0.4)
_LOG_EVERY_S: Final = 5.0
_WHY: Final = {
    Trouble.LOST: "the database is away; nothing was changed, try again",
    Trouble.UNFIT: "the database is away: what answers in its place cannot be used; nothing was changed, "
    "try again",
    Trouble.FULL: "the database has run out of connections, disk or memory; nothing was changed, try again",
    Trouble.BUSY: "the database is busy: a lock was not had in time; nothing was changed, try again",
}
_NO_CONNECTION: Final = (
    "the server is busy: no connection to the database came free in time; nothing was changed, try again"
)
_UNKNOWN: Final = (
    "the connection to the database was lost: the outcome of this call is unknown; "
    "send an Idempotency-Key to be able to repeat it"
)
_OPEN: Final = (
    "the connection to the database was lost during this call: repeat it under its Idempotency-Key "
    "to learn the outcome"
)
log = logging.getLogger("runstate.kernel")


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
    decide: tuple[uuid.UUID, ...] = ()

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
            tuple(row["decide"] or ()),
        )


class UnwantedError(Exception):
    """Nobody waits for the answer of this call any more; it has not been made."""


# Asked once a call has its connection, perhaps after a long wait in line: whether anybody still wants it.
still_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("still_wanted", default=None)

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
        self._turns = Turns(pool.get_max_size())
        self._crowds = Crowds(max(1, min(bounds.row_callers_max, pool.get_max_size() - 2)))
        self._logged_at = float("-inf")
        self.answered_at = float("-inf")  # when the database last answered, on the monotonic clock

    async def call(
        self,
        function: str,
        *args: Any,
        idempotency: Idempotency | None = None,
        repeatable: bool = False,
        meets: uuid.UUID | None = None,
    ) -> Reply:
        """One call. The space is the first argument. `repeatable`: the function takes no idempotency key and
        does no harm when it runs twice (reads), so a lost connection is simply tried again. `meets`: the id
        of the one row that all callers of its kind lock.
        Refuses: UNAVAILABLE when the database is away for longer than the outage wait, or the outcome is
        unknown. Raises UnwantedError, see `still_wanted`."""
        deadline = time.monotonic() + self._outage_wait_s
        while True:
            reply, repaired = await self._attempts(
                function, args, idempotency, repeatable=repeatable, meets=meets, deadline=deadline
            )
            if reply.changed or reply.wake:
                self._committed(reply.wake)
            if reply.expire is not None:
                await self._expire(args[0], reply.expire, deadline)
            for group_id in reply.decide:
                if time.monotonic() < deadline:
                    await self._decide(args[0], group_id, deadline)
            if reply.code != AGAIN:
                break
            if time.monotonic() > deadline:
                raise _unavailable(f"not done in time: {reply.facts['message']}")
        if repaired and reply.replayed:
            # The key repaired this server's own repetition: to the client it is the first answer.
            self._committed(())
            return replace(reply, replayed=False)
        return reply

    @property
    def waiting(self) -> int:
        """How many calls wait for a connection."""
        return self._turns.waiting

    def hurry(self) -> None:
        """The process is about to end: from now on no call waits long for a database that is away."""
        self._outage_wait_s = min(self._outage_wait_s, bounds.answer_s_min)

    async def patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """The result of a read that is no kernel function (a listing), repeated while the database is away.
        Refuses: UNAVAILABLE, as call does."""
        deadline = time.monotonic() + self._outage_wait_s
        pause = _PAUSE_S[0]
        while True:
            try:
                async with asyncio.timeout(_answer_s(deadline)):
                    return await read()
            except Exception as error:
                kind = self._troubled(error)
                if time.monotonic() + pause > deadline:
                    raise _unavailable(_WHY[kind]) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  jitter, not secrecy
            pause = min(pause * 2, _PAUSE_S[1])

    async def step(self, function: str, *args: Any) -> Any:
        """One row of a step (sequencer, sweep, tick): no repetition, the next round is the repetition."""
        statement = self._statement(function, len(args))
        async with db.borrowed(self.pool, within_s=self._outage_wait_s) as connection:
            return await connection.fetchrow(statement, *args, timeout=bounds.step_s_max)

    async def rows(self, function: str, *args: Any) -> list[Any]:
        """All rows of a step that returns several."""
        statement = self._statement(function, len(args))
        async with db.borrowed(self.pool, within_s=self._outage_wait_s) as connection:
            return list(await connection.fetch(statement, *args, timeout=bounds.step_s_max))

    async def _expire(self, space_id: str, scope_id: uuid.UUID, deadline: float) -> None:
        """Write a deadline that a call found passed; the call held the gate shared and could not."""
        args = (space_id, scope_id)
        reply, _ = await self._attempts("scope_expire", args, None, repeatable=True, deadline=deadline)
        if reply.changed:
            self._committed(reply.wake)

    async def _decide(self, space_id: str, group_id: uuid.UUID, deadline: float) -> None:
        """Decide a group whose member has ended in a call that could not lock it, before that call is
        answered. A notice of it is committed: when this fails, however it does, a sweep decides, and what the
        call has done is answered."""
        try:
            reply, _ = await self._attempts(
                "group_decide", (space_id, group_id), None, repeatable=True, deadline=deadline
            )
        except (Refusal, UnwantedError):
            return
        except Exception:
            log.exception("a task group was not decided with the end of its member")
            return
        if reply.changed:
            self._committed(reply.wake)

    async def _attempts(
        self,
        function: str,
        args: tuple[Any, ...],
        idempotency: Idempotency | None,
        *,
        repeatable: bool,
        deadline: float,
        meets: uuid.UUID | None = None,
    ) -> tuple[Reply, bool]:
        if not repeatable:
            args = (*args, *((idempotency.key, idempotency.fingerprint) if idempotency else (None, None)))
        statement = self._statement(function, len(args))
        safe = repeatable or idempotency is not None
        line = args[0] if isinstance(args[0], str) else ""
        repaired = False
        pause = _PAUSE_S[0]
        while True:
            sent = False
            try:
                async with (
                    self._crowds.place(meets, within_s=_left_s(deadline)),
                    self._turns.turn(line, within_s=_left_s(deadline)),
                    db.borrowed(self.pool, within_s=_left_s(deadline)) as connection,
                ):
                    _refuse_unwanted()
                    sent = True
                    row = await connection.fetchrow(statement, *args, timeout=_answer_s(deadline))
                    self.answered_at = time.monotonic()
                    return Reply.of(row), repaired
            except Exception as error:
                kind = self._troubled(error)
                unknown = sent and kind is Trouble.LOST
                if unknown and not safe:
                    raise _unavailable(_UNKNOWN) from error
                repaired = repaired or unknown
                if time.monotonic() + pause > deadline:
                    open_ended = repaired and not repeatable
                    raise _unavailable(_OPEN if open_ended else self._why(kind, sent=sent)) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  jitter, not secrecy
            pause = min(pause * 2, _PAUSE_S[1])

    def _troubled(self, error: Exception) -> Trouble:
        """What ails the database, said to the log now and then. Raises the error when nothing does."""
        kind = db.trouble(error)
        if kind is None:
            raise error
        if kind is not Trouble.BUSY and time.monotonic() - self._logged_at > _LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.warning("calls wait for the database (%s: %s)", kind.value, db.named(error))
        return kind

    def _why(self, kind: Trouble, *, sent: bool) -> str:
        """The message of a refusal. A database that has just answered others is not away."""
        answers = time.monotonic() - self.answered_at < self._outage_wait_s
        return _NO_CONNECTION if kind is Trouble.LOST and answers and not sent else _WHY[kind]

    def _statement(self, function: str, arity: int) -> str:
        """SELECT * FROM f(…): the spelling that runs a composite-returning function once."""
        known = self._statements.get((function, arity))
        if known is None:
            places = ", ".join(f"${i}" for i in range(1, arity + 1))
            known = f"SELECT * FROM {self.schema}.{function}({places})"  # noqa: S608  names of our own functions
            self._statements[function, arity] = known
        return known


def _refuse_unwanted() -> None:
    wanted = still_wanted.get()
    if wanted is not None and not wanted():
        raise UnwantedError


def _left_s(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _answer_s(deadline: float) -> float:
    """How long an answer is waited for: a database that hangs must not hang its callers."""
    return max(bounds.answer_s_min, deadline - time.monotonic())


def _unavailable(why: str) -> Refusal:
    return Refusal(Code.UNAVAILABLE, why, retry_after_s=1)
