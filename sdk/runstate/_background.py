"""An event loop on a thread of the SDK's own: leases are renewed whatever the user's code does to its loop.

One process-wide loop, `shared`, carries renewals and the decorators; each blocking client has another one.
The thread starts at the first use, and again in a child after fork(). It is a daemon, stopped by an exit
handler that runs once the program's own threads have ended: calls in flight are dropped without a sound.

While another thread forks, it stands still between two callbacks. A lock that it held at that moment would
stay held in the child for ever, by nobody: that of a module, for one, which Python takes to import it, and
the HTTP library tries an import at each request."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from runstate.errors import ConfigError, UnavailableError

T = TypeVar("T")
Closer = Callable[[], Coroutine[Any, Any, None]]

_STOP_S_MAX = 5.0
_CLEANUP_S_MAX = 1.0
_STILL_S_MAX = 0.5  # how long a fork waits for loops that are busy with something long
_FORK_S_MAX = 10.0


class BackgroundLoop:
    """Runs coroutines on its own thread for callers on any other. Safe to use from many threads at once.
    `ours`: only the SDK's own code runs on it, none that may take long."""

    def __init__(self, name: str, *, ours: bool = True) -> None:
        self._name = name
        self._ours = ours
        self._closed = False
        self._silent = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closers: list[weakref.WeakMethod[Closer]] = []
        _every_loop.add(self)

    @property
    def closed(self) -> bool:
        """Whether `stop` has been called."""
        return self._closed

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for by blocking this thread. Refuses (ConfigError) this loop's own
        thread, where the wait would never end. An interrupted wait cancels the coroutine."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            del future  # it holds the error, whose traceback holds this frame

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for by the caller's own loop. Cancelling the wait cancels it."""
        return await asyncio.wrap_future(self.submit(coroutine))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Starts the coroutine, does not wait. Refuses as `run` does, and once it is closed."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            self._refuse_own_thread()
            loop = self._started()
            if loop is not None:
                loop.call_soon_threadsafe(self._launch, coroutine, future)
                return future
        except BaseException:
            coroutine.close()
            raise
        coroutine.close()
        return future

    def begun(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Starts the coroutine; its outcome as a future of the loop that runs here, this one or any other.
        Cancelling that cancels it; giving up a wait for it does not."""
        if threading.current_thread() is self._thread:
            return self.spawn(coroutine)
        return asyncio.wrap_future(self.submit(coroutine))

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A task on this loop; only from a coroutine that already runs on it. Kept alive until it is done."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def soon(self, callback: Callable[[], Any]) -> None:
        """Calls back on the loop; from any thread; does nothing once the loop is gone."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed between the look and the call
                loop.call_soon_threadsafe(callback)

    def stop(self, *, silently: bool = False) -> None:
        """Ends the loop and its thread, for good. Callers still waiting get UnavailableError; `silently`
        leaves them waiting instead, which is for the end of the process."""
        with self._lock:
            self._closed = True
            self._silent = self._silent or silently
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_STOP_S_MAX)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise ConfigError(
                "a blocking runstate call was made on the client's own event loop, where it would wait for "
                "itself for ever; use the async objects there, or a plain function"
            )

    def _stand_still(self, until: threading.Event) -> threading.Event | None:
        """Has the loop's thread wait for `until`. Returns what is set once it does; None when it need not."""
        loop = self._loop
        if loop is None or not self._ours or threading.current_thread() is self._thread:
            return None
        stands = threading.Event()

        def stand() -> None:
            stands.set()
            until.wait(_FORK_S_MAX)

        try:
            loop.call_soon_threadsafe(stand)
        except RuntimeError:  # closed between the look and the call
            return None
        return stands

    def _after_fork(self) -> None:
        # The thread did not come along. What belonged to it is kept, unused, for the life of the child:
        # closing its sockets and its selector would reach into what the parent still works with.
        _inherited.append((self._loop, self._thread, self._tasks, self._closers))
        self._lock = threading.Lock()
        self._thread = self._loop = None
        self._tasks, self._closers = set(), []

    def _started(self) -> asyncio.AbstractEventLoop | None:
        """The loop, running; None for a thread that outlives the program's end and may as well wait."""
        with self._lock:
            if self._closed:
                if self._silent and threading.current_thread() is not threading.main_thread():
                    return None
                raise ConfigError(f"{self._name} has been closed")
            if self._loop is None:
                # Named outright: an event loop policy set for the user's loops does not concern this one.
                loop = asyncio.SelectorEventLoop()
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name=self._name, daemon=True
                )
                try:
                    self._thread.start()
                except RuntimeError as error:  # from 3.12 on no thread can start this late
                    loop.close()
                    raise UnavailableError("the interpreter is shutting down") from error
                self._loop = loop
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        _here.owner = self
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._wind_down())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    async def _wind_down(self) -> None:
        until = time.monotonic() + _CLEANUP_S_MAX
        # Again and again: calls that were on their way when the loop was stopped become tasks only now. One
        # that has not begun may begin first: anyio forgets the coroutine in a task that is cancelled before.
        while (left := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < until:
            begun = {task for task in left if _has_begun(task)}
            for task in begun:
                task.cancel()
            await (asyncio.wait(begun, timeout=_CLEANUP_S_MAX) if begun else asyncio.sleep(0))
        closing = [asyncio.ensure_future(close()) for each in self._closers if (close := each())]
        if closing:
            await asyncio.wait(closing, timeout=_CLEANUP_S_MAX)
        await asyncio.get_running_loop().shutdown_asyncgens()

    def _launch(self, coroutine: Coroutine[Any, Any, T], future: "concurrent.futures.Future[T]") -> None:
        task = self.spawn(self._carry(coroutine, future))

        def cancel_too(done: "concurrent.futures.Future[T]") -> None:
            if done.cancelled():
                self.soon(task.cancel)

        future.add_done_callback(cancel_too)

    async def _carry(self, coroutine: Coroutine[Any, Any, T], future: "concurrent.futures.Future[T]") -> None:
        try:
            result = await coroutine
        except asyncio.CancelledError:
            if not self._silent and future.set_running_or_notify_cancel():
                future.set_exception(UnavailableError(f"{self._name} was closed while a call was under way"))
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread, whatever it is
            if not self._silent and future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)


def _has_begun(task: "asyncio.Task[Any]") -> bool:
    coroutine = task.get_coro()
    return not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED


def at_loop_stop(closer: Closer) -> None:
    """Has `closer`, a bound method held weakly, run when the loop that runs here now stops, if it is one of
    the SDK's. The user's own loops are the user's to clean up."""
    owner: BackgroundLoop | None = getattr(_here, "owner", None)
    if owner is not None:
        owner._closers = [kept for kept in owner._closers if kept()]  # noqa: SLF001 - this module's own
        owner._closers.append(weakref.WeakMethod(closer))  # noqa: SLF001


def _before_fork() -> None:
    over = _here.fork_over = threading.Event()  # of this thread's fork: several may fork at once
    standing = [each._stand_still(over) for each in list(_every_loop)]  # noqa: SLF001 - this module's own
    until = time.monotonic() + _STILL_S_MAX
    for stands in standing:
        if stands is not None:
            stands.wait(max(0.0, until - time.monotonic()))


def _after_fork_in_parent() -> None:
    _here.fork_over.set()


def _after_fork_in_child() -> None:
    for each in list(_every_loop):
        each._after_fork()  # noqa: SLF001 - this module's own


def _at_exit() -> None:
    for each in list(_every_loop):
        each.stop(silently=True)


_every_loop: "weakref.WeakSet[BackgroundLoop]" = weakref.WeakSet()
_here = threading.local()
_inherited: list[Any] = []
shared = BackgroundLoop("runstate")
# Registered at import, so that handlers the program registers later run earlier and may still call.
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
