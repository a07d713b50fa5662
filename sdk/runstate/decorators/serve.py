"""serve: the workers of queues. One process runs the handlers of every queue it defines, until its run ends.

Taking, renewing and recording go on on the SDK's shared loop. Handlers run elsewhere: plain ones each in a
thread, async ones on the caller's loop (aserve) or on one of their own (serve)."""

import asyncio
import contextlib
import inspect
import logging
import signal as os_signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from runstate import _retry
from runstate._background import BackgroundLoop, shared
from runstate._clock import now
from runstate._config import check_whole
from runstate._crew import (
    Crew,
    Handling,
    Launch,
    Line,
    Outcome,
    attended,
    attended_by_thread,
    error_text,
    is_async,
)
from runstate._flags import until_set
from runstate._heartbeat import Heartbeat
from runstate._transport import Space, new_idempotency_key
from runstate._waits import POLL_MS, POLL_S_MIN
from runstate.client import space_of
from runstate.decorators.needs import Till
from runstate.decorators.queue import Queue, QueueRun, defined, inside_job
from runstate.decorators.results import Done, UnrecordableError, recorded, recorded_later
from runstate.errors import (
    ConfigError,
    LeaseLostError,
    RunstateError,
    StoppedError,
    UnavailableError,
)
from runstate.handles.consuming import handed_back, settle_failed
from runstate.handles.leases import seconds
from runstate.handles.messages import Held
from runstate.handles.scopes import ScopeHandle
from runstate.handles.tasks import ended_view
from runstate.run import RunContext, RunRef, Signal, current

Queues = str | Queue[Any, Any] | Iterable[str | Queue[Any, Any]]

_SHUTDOWN_S_MAX = 30.0  # for handlers that are under way at the stop
_CONCURRENCY_MAX = 10_000
_WATCH_AFTER_S = 1.0  # short work is over by then and costs no extra request
_NAMES_MAX = 1_000
_SERVER_FAULT = 500
_log = logging.getLogger("runstate")


class ServeRun(QueueRun):
    """The part of a Run that works off its queues."""

    def serve(self, concurrency: int | None = None, queues: Queues | None = None, signal: Any = None) -> None:
        """The worker `runstate.serve`, of this run instead of the default one."""
        crew = self._crew(concurrency)
        handlers = BackgroundLoop("runstate handlers", ours=False)
        lines = self._lines(crew, queues, handlers.submit)
        watching = None if signal is None else shared.submit(_stop_when(signal, crew, own_loop=False))
        with _stopped_by_system(crew):
            try:
                attended_by_thread(crew, lines)
            finally:
                if watching is not None:
                    watching.cancel()
                handlers.stop()

    async def aserve(
        self, concurrency: int | None = None, queues: Queues | None = None, signal: Any = None
    ) -> None:
        """As `serve`; async handlers run on this loop."""
        crew, loop = self._crew(concurrency), asyncio.get_running_loop()
        lines = self._lines(crew, queues, lambda each: asyncio.run_coroutine_threadsafe(each, loop))
        watching = None if signal is None else asyncio.ensure_future(_stop_when(signal, crew, own_loop=True))
        with _stopped_by_system(crew):
            try:
                await attended(crew, lines)
            finally:
                if watching is not None:
                    watching.cancel()

    def _crew(self, concurrency: Any) -> Crew:
        if self._ended is not None:
            raise copy(self._ended)
        cap = None if concurrency is None else check_whole("concurrency", concurrency, 1, _CONCURRENCY_MAX)
        return Crew(shutdown_s=_SHUTDOWN_S_MAX, cap=cap)

    def _lines(self, crew: Crew, queues: Queues | None, launch: Launch) -> list[Line]:
        chosen = _chosen({**defined, **self.queues}, queues)
        names = _ScopeNames(self)
        return [_Serving(self, crew, queue, launch, names) for queue in chosen]


class _Serving:
    """A Line of the crew: the jobs of one queue, in the run's scope and all below it."""

    def __init__(
        self, run: ServeRun, crew: Crew, queue: Queue[Any, Any], launch: Launch, names: "_ScopeNames"
    ) -> None:
        self.run = run
        self.crew = crew
        self.queue = queue
        self.launch = launch
        self.names = names
        self.concurrency = queue.options.concurrency
        self.till: Till | None = None
        self._mailbox_id: str | None = None
        self._pending: tuple[str, int, float] | None = None

    async def take(self, *, wait: bool) -> "_JobAtWork | None":
        """The next job, or None. After a reply that was lost the same request is sent again, under the same
        idempotency key, so that a job that was given out to us is found and not left to lapse."""
        scope_id = await self.run.joined()
        space = space_of(self.run.account.client())
        if self._mailbox_id is None:
            options = self.queue.options
            declared = await options.needs.declared(space)
            self.till = declared.till
            self._mailbox_id = await declared.mailbox_id(space, options.name, options.attempts)
        if self._pending is None:
            self._pending = (new_idempotency_key(), POLL_MS if wait else 0, now())
        idempotency_key, wait_ms, asked_at = self._pending
        begun_at = time.monotonic()
        try:
            answer = await self._admitted(space, scope_id, wait_ms, idempotency_key)
        except RunstateError as error:
            if not isinstance(error, UnavailableError):  # then it may have been given out all the same
                self._pending = None
            raise
        self._pending = None
        if answer is None:
            # A server that is about to go answers polls at once: the next must not follow at once.
            pause_s = max(0.0, POLL_S_MIN - (time.monotonic() - begun_at)) if wait_ms else 0.0
            await asyncio.sleep(pause_s)
            return None
        job = _JobAtWork(self, space, answer)
        return job if await job.kept(asked_at) else None

    def pause_s(self, error: RunstateError, failures: int) -> float | None:
        """The end of the run ends the line; a server that is away, however long, is waited out."""
        if self.is_over(error):
            return None
        if _retry.is_not_yet(error) or error.status >= _SERVER_FAULT:
            self.run.account.log_outage(error)
            return _retry.wait_pause_s(failures, error.retry_after_ms)
        raise error

    def is_over(self, error: RunstateError) -> bool:
        """Whether this says that the run has ended; its signals are set then."""
        return isinstance(error, StoppedError) or self.run.ending(error) is not None

    async def _admitted(
        self, space: Space, scope_id: str, wait_ms: int, idempotency_key: str
    ) -> dict[str, Any] | None:
        body = {
            "scopeId": scope_id,
            "mailboxId": self._mailbox_id,
            **space.holder(),
            "leaseSeconds": seconds(self.queue.options.lease_s),
            "includeDescendants": True,
            "waitMs": wait_ms,
        }
        answer: dict[str, Any] | None = await space.call(
            "POST",
            "tasks",
            "admit",
            body=body,
            wait_ms=wait_ms,
            idempotency_key=idempotency_key,
            retries=0,
        )
        return answer


class _JobAtWork:
    """A Piece of the crew: one job and its handler."""

    def __init__(self, line: _Serving, space: Space, answer: dict[str, Any]) -> None:
        self._line = line
        self._space = space
        self._answer = answer
        self._held = Held(space, answer["messageId"], answer["token"], line.queue.options.lease_s)
        self._signal = Signal(look=lambda: self._held.lost)
        self._handling: Handling | None = None
        self._given_back = False

    async def kept(self, asked_at: float) -> bool:
        """Begins to renew the lease; False when it had lapsed before it came."""
        task_id = self._answer["taskId"]
        self._line.run.watched_by(self._signal)
        try:
            await self._held.keep(
                asked_at, self._on_lost, lambda heartbeat: _watch(self._space, task_id, heartbeat)
            )
        except LeaseLostError:
            return False
        return True

    async def run(self) -> BaseException | None:
        """Runs the handler and records what came of it. A job whose lease is lost, or that was handed back,
        is let go without a word: its next worker's outcome is the one that counts."""
        try:
            context = RunContext(
                run=await self._line.names.ref(self._answer["scopeId"]),
                signal=self._signal,
                attempt=self._answer["attempt"],
                key=self._answer["taskKey"],
            )
            self._handling = Handling()
            name = f"runstate {self._line.queue.name}"
            self._handling.begin(self._call_in(context), self._line.launch, name)
            return await self._settled(await self._handling.outcome())
        except RunstateError as error:
            if self._line.is_over(error):
                self._line.crew.stop()
            else:
                _log.warning("job %s was not recorded: %s", self._answer["taskId"], error)
            self._held.let_go()
            return None

    async def hand_back(self) -> None:
        """Gives the job back, with the handler, if it has begun, told to stop."""
        self._given_back = True
        self._signal.set(LeaseLostError("the job was handed back, for this worker is being stopped"))
        if self._handling is not None:
            _log.warning("job %s was not done in time and is handed back", self._answer["taskId"])
            await self._handling.cancel()
        await handed_back(self._held)

    def _call_in(self, context: RunContext) -> Callable[[], Any]:
        handler, given, job_id = self._line.queue.handler, self._answer["payload"], self._answer["taskId"]
        assert handler is not None  # noqa: S101 - only such queues are served
        money = None if self._line.till is None else self._line.till.money(self._space, self._answer)

        def enter() -> None:  # in the handler's own thread or task, so for it alone
            current.set(context)
            inside_job.set(job_id)

        async def called() -> Any:
            enter()
            return recorded(await handler(given), money)

        def called_plainly() -> Any:
            enter()
            value = handler(given)
            return recorded_later(value, money) if inspect.isawaitable(value) else recorded(value, money)

        return called if is_async(handler) else called_plainly

    async def _settled(self, outcome: Outcome) -> BaseException | None:
        error = outcome.error
        if error is None:
            await self._succeeded(outcome.value)
            return None
        if self._given_back:  # it was told to stop, and did: no failure of its own
            return None
        if isinstance(error, UnrecordableError):
            await self._held.settle_in_time("nack", retry=False, error=str(error))
            return None
        return await settle_failed(self._held, error, self._line.crew, retry=True, text=error_text(error))

    async def _succeeded(self, done: Done) -> None:
        # Charged first, while the job is ours: what has been spent counts, also when the result is refused.
        if done.price is not None:
            await done.price.paid()
            if done.price.fault is not None:
                await self._held.settle_in_time("nack", retry=False, error=done.price.fault)
                return
        try:
            await self._held.settle_in_time("complete", result={"payload": done.value})
        except RunstateError as error:
            if self._line.is_over(error) or error.status >= _SERVER_FAULT:
                raise
            await self._held.settle_in_time("nack", retry=False, error=error_text(error))

    def _on_lost(self, reason: RunstateError) -> None:
        stopped = self._line.run.ending(reason)
        if stopped is not None:
            self._line.crew.stop()
        self._signal.set(stopped or reason)


class _ScopeNames:
    """What context().run says of the scopes that jobs come from: the run's own name, those of its children
    asked for once."""

    def __init__(self, run: ServeRun) -> None:
        self._run = run
        self._found: dict[str, RunRef] = {}

    async def ref(self, scope_id: str) -> RunRef:
        """The scope of that id, with its name if it has one and it can be had."""
        if scope_id == await self._run.joined():
            return RunRef(scope_id, self._run.name)
        if scope_id not in self._found:
            name = None
            with contextlib.suppress(RunstateError):
                space = space_of(self._run.account.client())
                name = (await ScopeHandle(space, scope_id).status())["name"]
            if len(self._found) >= _NAMES_MAX:
                self._found.clear()
            self._found[scope_id] = RunRef(scope_id, name)
        return self._found[scope_id]


async def _watch(space: Space, task_id: str, heartbeat: Heartbeat) -> None:
    """While work goes on for long, notices within a round trip that its job was cancelled or its run stopped.
    That is only a hint; the renewal it triggers gets the verdict."""
    await asyncio.sleep(_WATCH_AFTER_S)
    failures = 0
    while heartbeat.beating:
        asked_at = time.monotonic()
        try:
            ended = await ended_view(space, task_id, POLL_MS)
        except RunstateError as error:
            if not _retry.is_not_yet(error):
                heartbeat.beat_now()
            failures += 1
            await asyncio.sleep(max(1.0, _retry.wait_pause_s(failures, error.retry_after_ms)))
            continue
        failures = 0
        if ended is None:
            await asyncio.sleep(max(0.0, POLL_S_MIN - (time.monotonic() - asked_at)))
        else:
            heartbeat.beat_now()
            await asyncio.sleep(_WATCH_AFTER_S)


async def _stop_when(flag: Any, crew: Crew, *, own_loop: bool) -> None:
    await until_set(flag, own_loop=own_loop)
    crew.stop()


def _chosen(known: dict[str, Queue[Any, Any]], queues: Queues | None) -> list[Queue[Any, Any]]:
    if queues is None:
        if not known:
            raise ConfigError(
                "no queue is defined in this process: import the modules that define them first"
            )
        return list(known.values())
    wanted = [queues] if isinstance(queues, (str, Queue)) else list(queues)
    found: dict[str, Queue[Any, Any]] = {}
    for each in wanted:
        name = each.name if isinstance(each, Queue) else each
        queue = each if isinstance(each, Queue) and each.handler is not None else known.get(name)
        if queue is None:
            raise ConfigError(f"there is no queue {name!r} with a handler in this process")
        found[name] = queue
    if not found:
        raise ConfigError("queues= names no queue")
    return list(found.values())


@contextlib.contextmanager
def _stopped_by_system(crew: Crew) -> Iterator[None]:
    """SIGTERM and SIGINT stop the crew; a second SIGINT does what SIGINT did before, which ends it at once.
    Only the main thread can have it so; in others the signals stay whose they were."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = 0

    def caught(number: int, frame: Any) -> None:
        nonlocal interrupts
        interrupts += number == os_signal.SIGINT
        crew.stop()
        if interrupts > 1:
            before = previous[os_signal.SIGINT]
            (before if callable(before) else os_signal.default_int_handler)(number, frame)

    previous: dict[int, Any] = {}
    for each in (os_signal.SIGINT, os_signal.SIGTERM):
        previous[each] = os_signal.signal(each, caught)
    try:
        yield
    finally:
        for number, handler in previous.items():
            # None: it was not set from Python, and cannot be set back.
            os_signal.signal(number, os_signal.SIG_DFL if handler is None else handler)
