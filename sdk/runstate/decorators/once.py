"""once: the first caller of a key runs the function; everybody, in any process, gets the one recorded result.

A call has two halves on the SDK's shared loop, around the function itself, which runs where it was called:
`_Call.enter` waits until there is a result or the work is ours, `_Work` records how it ended. An interruption
(Ctrl-C, SystemExit, a cancelled task) says nothing about the work, so nothing is recorded: renewals stop, and
when the lease lapses the next caller tries with the same number of attempts left, as after a kill."""

import asyncio
import contextlib
import functools
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from runstate import _retry
from runstate._background import shared
from runstate._clock import now
from runstate._config import check_name
from runstate._crew import error_text, is_async
from runstate._heartbeat import Heartbeat
from runstate._keys import Signature, as_recorded, hash_key
from runstate._transport import new_idempotency_key
from runstate._units import duration_s
from runstate.client import space_of
from runstate.errors import ConfigError, LeaseLostError, OnceFailedError, RunstateError
from runstate.handles.once import OnceRef
from runstate.handles.scopes import ScopeHandle
from runstate.run import RunContext, RunCore, RunRef, Signal, current, running_loop

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Answer = dict[str, Any]

_ATTEMPTS_MAX = 100
_LEASE_S_MIN, _LEASE_S_MAX = 1, 3600
_KEY_CHARS_MAX = 255
_POLL_MS = 25_000  # the server allows 30 s; load balancers often cut at 30 s
_WATCH_AFTER_S = 1.0  # short work is over by then and costs no extra request
_POLL_S_MIN = 0.5  # a poll that comes back unchanged sooner than this was not held: ask slowly


class OnceRun(RunCore):
    """The part of a Run that does work once."""

    @overload
    def once(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def once(
        self,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | None = None,
        attempts: int = 3,
        lease: float | str = 30,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def once(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | None = None,
        attempts: int = 3,
        lease: float | str = 30,
    ) -> Any:
        """The decorator `runstate.once`, for this run instead of the default one."""
        return once_in(lambda: self, function, name=name, key=key, attempts=attempts, lease=lease)


def once_in(
    run: Callable[[], RunCore],
    function: Callable[..., Any] | None,
    *,
    name: str | None,
    key: Any,
    attempts: Any,
    lease: Any,
) -> Any:
    """The decorator, or with a function the decorated function, for the run that `run` gives at each call.
    Refuses (ConfigError) options it cannot use, a function without a usable name, and generators."""
    if key is not None and not callable(key):
        raise ConfigError("key must be a function of the arguments that returns a string")
    if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= _ATTEMPTS_MAX:
        raise ConfigError(f"attempts must be a whole number from 1 to {_ATTEMPTS_MAX}, not {attempts!r}")
    lease_s = duration_s(lease, "lease")
    if not _LEASE_S_MIN <= lease_s <= _LEASE_S_MAX:
        raise ConfigError(f"lease must be from {_LEASE_S_MIN} s to {_LEASE_S_MAX} s, not {lease!r}")
    if name is not None:
        check_name("name", name)

    def decorate(function: Any) -> Callable[..., Any]:
        checked = _checked(function)
        plan = _Plan(run, checked, Signature(checked), name or _name_of(checked), key, attempts, lease_s)
        return _async_face(plan) if is_async(checked) else _plain_face(plan)

    return decorate if function is None else decorate(function)


def _plain_face(plan: "_Plan") -> Callable[..., Any]:
    @functools.wraps(plan.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        entry = plan.call(args, kwargs, plain=True)
        found = shared.run(entry.enter())
        if isinstance(found, _Recorded):
            return found.result
        with found as work:
            try:
                result = as_recorded(plan.function(*args, **kwargs), "the result")
            except Exception as error:
                refusal = shared.run(work.failed(error))
                if refusal is None:
                    raise
                raise refusal from error
            return shared.run(work.done(result))

    return call


def _async_face(plan: "_Plan") -> Callable[..., Any]:
    @functools.wraps(plan.function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        entry = plan.call(args, kwargs, plain=False)
        found = await shared.arun(entry.enter())
        if isinstance(found, _Recorded):
            return found.result
        with found as work:
            try:
                result = as_recorded(await plan.function(*args, **kwargs), "the result")
            except Exception as error:
                refusal = await shared.arun(work.failed(error))
                if refusal is None:
                    raise
                raise refusal from error
            return await shared.arun(work.done(result))

    return call


@dataclass(frozen=True)
class _Plan:
    """A decorated function and its options."""

    run: Callable[[], RunCore]
    function: Callable[..., Any]
    signature: Signature
    name: str
    key: Callable[..., str] | None
    attempts: int
    lease_s: float

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, plain: bool) -> "_Call":
        """This call, with its key. Refuses (ConfigError) arguments that make none, and a key that this very
        call is already inside of: it would wait for itself."""
        run, key = self.run(), self._key(args, kwargs)
        for work in _inside.get():
            if work.key == key and not work.over and work.run.is_same(run):
                raise ConfigError(f"{key!r} was called from inside itself and would wait for itself for ever")
        return _Call(run, key, self.attempts, self.lease_s, running_loop() if plain else None)

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self.key is None:
            return hash_key(self.name, *self.signature.arguments(args, kwargs))
        return f"{self.name}:{check_name('what key= returns', self.key(*args, **kwargs), _KEY_CHARS_MAX)}"


@dataclass(frozen=True)
class _Recorded:
    result: Any


@dataclass(frozen=True)
class _Call:
    """One call of a decorated function, until there is a result or the work is ours."""

    run: RunCore
    key: str
    attempts: int
    lease_s: float
    home: asyncio.AbstractEventLoop | None

    async def enter(self) -> "_Recorded | _Work":
        """Waits for a recorded result, or for the lease of the work. A server that is away, or asks for
        patience, is waited out. Refuses: OnceFailedError, StoppedError, whatever else the server refuses."""
        while True:
            ref, sent_at, answer = await _patiently(self.run, lambda: self.run.call(self._ask))
            if answer["state"] == "ACQUIRED":
                return self._begin(ref, sent_at, answer)
            if answer["state"] == "DONE":
                return _Recorded(answer.get("result"))
            if answer["state"] == "FAILED":
                raise OnceFailedError(answer.get("lastError") or "failed", attempts=answer["attempts"])

    async def _ask(self, scope: ScopeHandle) -> tuple[OnceRef, float, Answer]:
        ref = OnceRef(space_of(self.run.account.client()), scope.id, self.key)
        sent_at = now()
        answer = await ref.acquire(lease_seconds=self.lease_s)
        while answer["state"] == "HELD":
            answer = await _poll(ref)
        return ref, sent_at, answer

    def _begin(self, ref: OnceRef, sent_at: float, answer: Answer) -> "_Work":
        token, run, lease_s = answer["token"], self.run, self.lease_s
        signal = Signal(home=self.home, look=lambda: heartbeat.lost)
        heartbeat = Heartbeat(
            lambda attempt_s: ref.renew(token, lease_seconds=lease_s, attempt_ms=attempt_s * 1000, retries=0),
            what=f"the lease of {self.key!r}",
            lease_s=lease_s,
            sent_at=sent_at,
            on_lost=lambda reason: signal.set(run.ending(reason) or reason),
        )
        run.watched_by(signal)
        heartbeat.start(_watch(ref, heartbeat))
        context = RunContext(
            run=RunRef(ref.scope_id, run.name), signal=signal, attempt=answer["attempts"] + 1, key=self.key
        )
        return _Work(self, token, heartbeat, context)


class _Work:
    """Work that is ours: the context its function runs in, and the recording of how it ended."""

    def __init__(self, call: _Call, token: str, heartbeat: Heartbeat, context: RunContext) -> None:
        self.run = call.run
        self.key = call.key
        self.over = False
        self._attempts = call.attempts
        self._token = token
        self._heartbeat = heartbeat
        self._context = context
        self._tokens: tuple[Token[Any], Token[Any]] | None = None
        # An interrupt can come before the caller has entered: then only the collector is left to stop it.
        weakref.finalize(self, heartbeat.stop).atexit = False

    def __enter__(self) -> "Self":
        self._tokens = current.set(self._context), _inside.set((*_inside.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over = True
        self._heartbeat.stop()
        if self._tokens is not None:
            with contextlib.suppress(ValueError):  # closed from elsewhere, a dropped coroutine for one
                current.reset(self._tokens[0])
                _inside.reset(self._tokens[1])

    async def done(self, result: Any) -> Any:
        """Records the result and returns it. Once sent, only the server can say whether it counts, so its
        answer is waited for. Refuses: LeaseLostError, StoppedError; then nothing was recorded."""
        self._context.signal.raise_if_set()
        key = new_idempotency_key()
        try:
            await _patiently(
                self.run,
                lambda: self.run.call(
                    lambda scope: self._ref(scope).complete(self._token, result, idempotency_key=key)
                ),
            )
        except LeaseLostError as error:
            self._context.signal.set(error)
            raise
        return result

    async def failed(self, error: Exception) -> RunstateError | None:
        """Records the failure. What to raise instead of `error`, chained from it: OnceFailedError when
        this was the last attempt, LeaseLostError or StoppedError when it does not count; None for `error`
        itself."""
        text, key = error_text(error), new_idempotency_key()
        try:
            self._context.signal.raise_if_set()
            answer = await _patiently(
                self.run,
                lambda: self.run.call(
                    lambda scope: self._ref(scope).fail(
                        self._token, text, max_attempts=self._attempts, idempotency_key=key
                    )
                ),
                until=self._context.signal,
            )
        except RunstateError as refusal:
            if isinstance(refusal, LeaseLostError):
                self._context.signal.set(refusal)
            return None if type(refusal) is type(error) else refusal
        if answer["state"] != "FAILED":
            return None
        return OnceFailedError(text, attempts=answer["attempts"])

    def _ref(self, scope: ScopeHandle) -> OnceRef:
        return OnceRef(space_of(self.run.account.client()), scope.id, self.key)


async def _patiently(run: RunCore, ask: Callable[[], Awaitable[T]], *, until: Signal | None = None) -> T:
    """What `ask` returns, asked again (at most 10 s apart) while the server is away or asks for patience, for
    as long as it takes or `until` is set."""
    failures = 0
    while True:
        try:
            return await ask()
        except RunstateError as error:
            if not _retry.is_not_yet(error):
                raise
            run.account.log_outage(error)
            failures += 1
            await asyncio.sleep(_retry.wait_pause_s(failures, error.retry_after_ms))
        if until is not None:
            until.raise_if_set()


async def _poll(ref: OnceRef) -> Answer:
    """The state of the key, as soon as it is not HELD or after one long poll. A server that is about to go
    answers polls at once: then the next one must not follow at once."""
    asked_at = time.monotonic()
    answer = await ref.view(wait_ms=_POLL_MS)
    if answer["state"] == "HELD":
        await asyncio.sleep(max(0.0, _POLL_S_MIN - (time.monotonic() - asked_at)))
    return answer


async def _watch(ref: OnceRef, heartbeat: Heartbeat) -> None:
    """While work goes on for long, notices within a round trip that its run was stopped or its lease taken:
    our own key is then no longer HELD. That is only a hint; the renewal it triggers gets the verdict."""
    await asyncio.sleep(_WATCH_AFTER_S)
    failures = 0
    while heartbeat.beating:
        try:
            answer = await _poll(ref)
        except RunstateError as error:
            if not _retry.is_not_yet(error):
                heartbeat.beat_now()
            failures += 1
            await asyncio.sleep(max(1.0, _retry.wait_pause_s(failures, error.retry_after_ms)))
            continue
        failures = 0
        if answer["state"] != "HELD" and heartbeat.beating:
            heartbeat.beat_now()
            await asyncio.sleep(_WATCH_AFTER_S)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ConfigError(f"{function!r} has no name of its own: pass name=")
    return check_name("the function's name", name)


def _checked(function: Any) -> Callable[..., Any]:
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"once wraps a function, not {function!r}; options are passed by name")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__name__} is a generator: it has no one result to record")
    return cast("Callable[..., Any]", function)


_inside: ContextVar[tuple[_Work, ...]] = ContextVar("runstate_once_inside", default=())
