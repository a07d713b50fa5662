"""Threads for plain functions of the user's."""

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T], name: str) -> "concurrent.futures.Future[T]":
    """`call`, in the caller's context, on a daemon thread of its own: one that never returns cannot hold up
    the end of the process, as a thread of a pool would."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it: a thread cannot be stopped
    context = contextvars.copy_context()

    def carry() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 - carried over to who waits, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=carry, name=name, daemon=True).start()
    return future
