"""Takes work from several lines and has it done side by side, until told to stop. On the SDK's own loop, so
that neither taking nor renewing depends on what the handlers do to theirs.

A stop has three steps: no new work; up to `shutdown_s` for what is under way; what is left is handed back."""

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from runstate._background import shared
from runstate._threads import in_thread
from runstate.errors import RunstateError

Launch = Callable[[Coroutine[Any, Any, Any]], "concurrent.futures.Future[Any]"]

_ERROR_CHARS_MAX = 2_000
_LAST_REPLY_S = 0.25  # a poll under way at the stop may have got something: wait for its reply this long
_HAND_BACK_S_MAX = 5.0
_END_NOW_S_MAX = 1.0
_CANCELLED_S_MAX = 1.0  # how long a cancelled handler may take to end before its work is handed back


class Piece(Protocol):
    """One piece of work that has been taken."""

    async def run(self) -> BaseException | None:
        """Does it and settles it. Returns what the handler meant to end the program with, if it did."""

    async def hand_back(self) -> None:
        """Gives it back, whether begun or not, so that another may take it at once. Raises nothing."""


class Line(Protocol):
    """Where work comes from."""

    concurrency: int

    async def take(self, *, wait: bool) -> Piece | None:
        """The next piece, None if there is none; with `wait` only after the server has waited for one."""

    def pause_s(self, error: RunstateError, failures: int) -> float | None:
        """Seconds to wait after taking was refused with `error`, for the n-th time; None when that means the
        end of the work. Raises it when it should end the crew."""


class Crew:
    """`work` until `stop` or `end_now`, which may be called from any thread, also by a signal handler, and
    before it has begun. `cap`: how many pieces at once, over all lines."""

    def __init__(self, *, shutdown_s: float, cap: int | None = None) -> None:
        self._shutdown_s = shutdown_s
        self._slots = None if cap is None else asyncio.Semaphore(cap)
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()
        self._said = {"stop": False, "end": False}
        self._running: dict[asyncio.Task[None], Piece] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @property
    def stopping(self) -> bool:
        """Whether no new work is taken any more."""
        return self._said["stop"]

    def stop(self) -> None:
        """No new work; `work` returns when what is under way has ended, or after `shutdown_s`."""
        self._said["stop"] = True
        shared.soon(self._heard)

    def end_now(self) -> None:
        """As `stop`, without waiting for what is under way."""
        self._said["stop"] = self._said["end"] = True
        shared.soon(self._heard)

    async def work(self, lines: list[Line]) -> None:
        """Takes and runs until stopped, by a call or by the end of a line. Raises what made a line, or a
        handler, end the crew; after the stop has been gone through."""
        self._heard()
        takers = [shared.spawn(self._take_from(line)) for line in lines]
        await self._stopping.wait()
        _, late = await asyncio.wait(takers, timeout=_LAST_REPLY_S)
        for taker in late:
            taker.cancel()
        if late:
            await asyncio.wait(late)
        ending = asyncio.ensure_future(self._ending.wait())
        ends_at = asyncio.get_running_loop().time() + self._shutdown_s
        while self._running and not ending.done():
            left_s = ends_at - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await asyncio.wait({ending, *self._running}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        await self._hand_back()
        if self._failure is not None:
            raise self._failure

    def _heard(self) -> None:
        if self._said["stop"]:
            self._stopping.set()
        if self._said["end"]:
            self._ending.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    async def _take_from(self, line: Line) -> None:
        free = asyncio.Semaphore(line.concurrency)
        try:
            while not self._stopping.is_set():
                await free.acquire()
                piece = await self._next(line)
                if piece is None:
                    return self.stop()
                if self._stopping.is_set():
                    return self._return(piece)
                task = shared.spawn(self._carry(piece, free))
                self._running[task] = piece
                task.add_done_callback(self._running.pop)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised by `work`
            self._fail(error)

    async def _next(self, line: Line) -> Piece | None:
        """The next piece of a line, with one of the slots; None at the end of the line, or at the stop.

        With a cap, a look takes a slot first, so that busy lines share them in turn; waiting takes none, so
        that an idle line keeps none from the others. Work that then comes when all are taken goes back."""
        failures, looking = 0, True
        while not self._stopping.is_set():
            holding = self._slots if looking else None
            if holding is not None:
                await holding.acquire()
            piece = None
            try:
                piece = await line.take(wait=holding is None)
            except RunstateError as error:
                failures += 1
                pause_s = line.pause_s(error, failures)
                if pause_s is None:
                    return None
                await asyncio.sleep(pause_s)
                continue
            finally:
                if holding is not None and piece is None:
                    holding.release()
            failures, looking = 0, False
            if piece is None:
                continue
            if self._slots is None or holding is not None:
                return piece
            if not self._slots.locked():
                await self._slots.acquire()
                return piece
            self._return(piece)
            looking = True
        return None

    async def _carry(self, piece: Piece, free: asyncio.Semaphore) -> None:
        try:
            wish = await piece.run()
            if wish is not None:
                self._fail(wish)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised by `work`
            self._fail(error)
        finally:
            free.release()
            if self._slots is not None:
                self._slots.release()

    def _return(self, piece: Piece) -> None:
        # A task of its own, for the taker may be cancelled.
        task = shared.spawn(piece.hand_back())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _hand_back(self) -> None:
        left = dict(self._running)
        for piece in left.values():
            self._return(piece)
        if self._returning:
            bound_s = _END_NOW_S_MAX if self._ending.is_set() else _CANCELLED_S_MAX + _HAND_BACK_S_MAX
            await asyncio.wait(set(self._returning), timeout=bound_s)
        for task in (*self._returning, *left):
            task.cancel()


async def attended(crew: Crew, lines: list[Line]) -> None:
    """`crew.work(lines)`, waited for on the caller's own loop. Cancelled, it ends the crew at once, and waits
    for what is handed back."""
    working = asyncio.wrap_future(shared.submit(crew.work(lines)))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        crew.end_now()
        await asyncio.wait({working}, timeout=_LAST_REPLY_S + 2 * _END_NOW_S_MAX)
        _seen(working)
        raise


def attended_by_thread(crew: Crew, lines: list[Line]) -> None:
    """`crew.work(lines)`, waited for by blocking this thread. Interrupted, it ends the crew at once, and
    waits for what is handed back."""
    working = shared.submit(crew.work(lines))
    try:
        while not working.done():
            # In turns: on some systems an interrupt is only seen between two waits.
            concurrent.futures.wait([working], timeout=1.0)
    except BaseException:
        crew.end_now()
        concurrent.futures.wait([working], timeout=_LAST_REPLY_S + 2 * _END_NOW_S_MAX)
        raise
    working.result()


@dataclass(frozen=True)
class Outcome:
    """How a handler has ended."""

    value: Any = None
    error: BaseException | None = None


class Handling:
    """A handler's call under way, started by `begin`."""

    def __init__(self) -> None:
        self._done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        self._done.set_running_or_notify_cancel()  # no wait for it that is given up may take it along
        self._task: concurrent.futures.Future[Any] | None = None

    async def outcome(self) -> Outcome:
        """How it has ended, once it has."""
        return await asyncio.shield(asyncio.wrap_future(self._done))

    async def cancel(self) -> None:
        """Cancels an async handler and waits a moment for its end; a thread cannot be stopped."""
        if self._task is not None and not self._done.done():
            self._task.cancel()
            await asyncio.wait({asyncio.wrap_future(self._done)}, timeout=_CANCELLED_S_MAX)

    def begin(self, function: Callable[[], Any], launch: Launch, name: str) -> None:
        """Calls `function`: an async one as a task that `launch` starts, a plain one on a thread."""
        if not is_async(function):
            in_thread(lambda: self._done.set_result(_called(function, launch)), name)
            return
        try:
            self._task = launch(self._awaited(function))
        except RuntimeError:  # the user's loop has been closed
            self._done.set_result(Outcome(error=asyncio.CancelledError()))

    async def _awaited(self, function: Callable[[], Any]) -> None:
        self._done.set_result(await _outcome(function))


def is_async(function: Any) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - asked what kind it is, not whether it exists
    )


def error_text(error: BaseException) -> str:
    """What is recorded of an error: `Type: message`, cut at 2,000 characters."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be written
        message = "(no message)"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text[:_ERROR_CHARS_MAX].encode("utf-8", "replace").decode()


def _called(function: Callable[[], Any], launch: Launch) -> Outcome:
    try:
        value = function()
        if inspect.isawaitable(value):  # a plain function that returns a coroutine
            found: Outcome = launch(_outcome(lambda: value)).result()
            return found
        return Outcome(value)
    except BaseException as error:  # noqa: BLE001 - a handler may do anything; what follows is decided elsewhere
        return Outcome(error=error)


async def _outcome(function: Callable[[], Awaitable[Any]]) -> Outcome:
    # Caught before asyncio sees it: KeyboardInterrupt or SystemExit in a task would end its loop.
    try:
        return Outcome(await function())
    except BaseException as error:  # noqa: BLE001 - as above
        return Outcome(error=error)


def _seen(working: "asyncio.Future[None]") -> None:
    if working.done() and not working.cancelled():
        with contextlib.suppress(asyncio.CancelledError):
            working.exception()
