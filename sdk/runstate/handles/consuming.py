"""The line of a mailbox's messages that `consume` works off, and what becomes of each."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from runstate import _retry
from runstate._clock import now
from runstate._crew import Crew, Handling, Launch, Outcome, error_text, is_async
from runstate._transport import Space, new_idempotency_key
from runstate._waits import POLL_S_MIN
from runstate.errors import (
    AuthenticationError,
    ConfigError,
    LeaseLostError,
    NotFoundError,
    RunstateError,
    ScopeCancelledError,
    UnavailableError,
)
from runstate.handles.leases import seconds
from runstate.handles.messages import Delivery, Held, delivered, held_of

Handler: TypeAlias = Callable[[Any, Delivery], Any]
OnError: TypeAlias = Callable[[BaseException, Delivery], Any]

_FATAL = (AuthenticationError, ConfigError, NotFoundError)
_TEARDOWN_S = 0.2
_log = logging.getLogger("runstate")


class Consuming:
    """A Line of the crew: messages and tasks of one mailbox, exactly in one scope."""

    def __init__(
        self,
        *,
        space: Space,
        scope_id: str,
        mailbox_id: Callable[[], Awaitable[str]],
        crew: Crew,
        handler: Handler,
        on_error: OnError | None,
        launch: Launch,
        concurrency: int,
        lease_s: float,
        poll_s: float,
        wait_ms: int,
    ) -> None:
        self.concurrency = concurrency
        self._space = space
        self._scope_id = scope_id
        self._mailbox_id = mailbox_id
        self._crew = crew
        self._handler = handler
        self._on_error = on_error
        self._launch = launch
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._wait_ms = wait_ms
        self._pending: tuple[str, float] | None = None

    async def take(self, *, wait: bool) -> "_Consumed | None":
        """The next delivery, or None: after a while, so that an empty mailbox is not asked in a hurry."""
        del wait  # there is no cap, so there is always a wait
        if self._pending is None:
            self._pending = (new_idempotency_key(), now())
        idempotency_key, asked_at = self._pending
        begun_at = time.monotonic()
        try:
            answer = await self._asked(idempotency_key)
        except RunstateError as error:
            if not isinstance(error, UnavailableError):  # then it may have been delivered all the same
                self._pending = None
            raise
        self._pending = None
        if answer is None:
            pause_s = POLL_S_MIN if self._wait_ms else self._poll_s
            await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - begun_at)))
            return None
        delivery = delivered(self._space, answer, self._lease_s)
        try:
            await held_of(delivery).keep(asked_at, lambda _reason: None)
        except LeaseLostError:
            return None
        return _Consumed(self, self._crew, delivery)

    def pause_s(self, error: RunstateError, failures: int) -> float | None:
        """As the contract of consume() says."""
        if isinstance(error, ScopeCancelledError) or error.code == "DEADLINE_EXCEEDED":
            return None
        if isinstance(error, _FATAL):
            raise error
        if _retry.is_not_yet(error):
            return max(self._poll_s, _retry.wait_pause_s(failures, error.retry_after_ms))
        _log.warning("consume() goes on after: %s", error)
        return max(self._poll_s, _retry.attempt_pause_s(failures))

    def begin(self, delivery: Delivery) -> Handling:
        """Starts the handler."""
        handler = self._handler
        handling = Handling()
        if is_async(handler):

            async def call() -> Any:
                return await handler(delivery.data, delivery)

            handling.begin(call, self._launch, "runstate consume")
        else:
            handling.begin(lambda: handler(delivery.data, delivery), self._launch, "runstate consume")
        return handling

    async def told(self, error: BaseException, delivery: Delivery) -> None:
        """Calls on_error, where the handler's kind of function would run."""
        if self._on_error is None:
            _log.warning("the handler of %r failed: %r; it will be retried", delivery, error)
            return
        on_error, handling = self._on_error, Handling()
        if is_async(on_error):

            async def call() -> Any:
                return await on_error(error, delivery)

            handling.begin(call, self._launch, "runstate on_error")
        else:
            handling.begin(lambda: on_error(error, delivery), self._launch, "runstate on_error")
        outcome = await handling.outcome()
        if outcome.error is not None:
            _log.error("on_error failed", exc_info=outcome.error)

    async def _asked(self, idempotency_key: str) -> dict[str, Any] | None:
        mailbox_id = await self._mailbox_id()
        body = {
            "scopeId": self._scope_id,
            **self._space.holder(),
            "leaseSeconds": seconds(self._lease_s),
            "waitMs": self._wait_ms or None,
        }
        answer: dict[str, Any] | None = await self._space.call(
            "POST",
            "mailboxes",
            mailbox_id,
            "recv",
            body=body,
            wait_ms=self._wait_ms,
            idempotency_key=idempotency_key,
            retries=0,
        )
        return answer


class _Consumed:
    """A Piece of the crew: one delivery and its handler."""

    def __init__(self, line: Consuming, crew: Crew, delivery: Delivery) -> None:
        self._line = line
        self._crew = crew
        self._delivery = delivery
        self._held = held_of(delivery)
        self._handling: Handling | None = None

    async def run(self) -> BaseException | None:
        """Handles and settles it. An interruption of the program (KeyboardInterrupt, SystemExit) ends the
        crew; see `settle_failed` for what it means for the message."""
        self._handling = self._line.begin(self._delivery)
        outcome = await self._handling.outcome()
        try:
            return await self._settled(outcome)
        except RunstateError as error:  # refused: the run has ended, or the message has gone
            _log.info("%r was not settled: %s", self._delivery, error)
            self._held.let_go()
            return None

    async def hand_back(self) -> None:
        """Gives it back; an async handler that is under way is cancelled first."""
        if self._handling is not None:
            await self._handling.cancel()
        await handed_back(self._held)

    async def _settled(self, outcome: Outcome) -> BaseException | None:
        if outcome.error is None:
            await self._held.settle_in_time("complete")
            return None
        if not isinstance(outcome.error, asyncio.CancelledError):
            await self._line.told(outcome.error, self._delivery)
        text = error_text(outcome.error)
        return await settle_failed(self._held, outcome.error, self._crew, retry=True, text=text)


async def settle_failed(
    held: Held, error: BaseException, crew: Crew, *, retry: bool, text: str
) -> BaseException | None:
    """What a handler's error means for its message. Returns what is to end the crew.

    KeyboardInterrupt says nothing about the work: handed back, no attempt lost, and the crew ends.
    SystemExit, and what else is no Exception, ends the crew too, but costs the attempt: a library that exits
    on some input must not take one worker after the other with it for ever. A cancellation counts as a
    failure unless the crew is being stopped: then the handler's loop is going down, and the work is handed
    back."""
    if isinstance(error, KeyboardInterrupt):
        await handed_back(held)
        return error
    if isinstance(error, asyncio.CancelledError):
        await asyncio.sleep(_TEARDOWN_S)  # whoever cancels all tasks of a loop gets to ours as well
        if crew.stopping:
            await handed_back(held)
            return None
    await held.settle_in_time("nack", retry=retry, error=text)
    return None if isinstance(error, (Exception, asyncio.CancelledError)) else error


async def handed_back(held: Held) -> None:
    """Hands it back without costing an attempt, if it can be; else it lapses."""
    try:
        await held.settle_in_time("nack", retry=True, handBack=True)
    except RunstateError as error:
        _log.info("a message could not be handed back: %s", error)
    finally:
        held.let_go()
