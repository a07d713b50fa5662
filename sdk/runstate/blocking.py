"""Runstate: AsyncRunstate for code without an event loop, derived from it member by member, never copied.

For each handle class there is a face with the same members: a coroutine method becomes one that blocks, and a
handle that comes back, also inside a dict or a list, comes back as its face."""

import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from runstate import handles
from runstate._background import BackgroundLoop
from runstate._flags import ThreadSafeEvent
from runstate.client import AsyncRunstate

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Loop:
    """The loop that a client shares with everything it has made; it ends when the last of them has gone."""

    def __init__(self) -> None:
        self.background = BackgroundLoop("the runstate client")
        weakref.finalize(self, self.background.stop).atexit = False  # exit has its own way

    @property
    def closed(self) -> bool:
        """Whether it has been stopped."""
        return self.background.closed

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """See BackgroundLoop."""
        return self.background.run(coroutine)

    def stop(self) -> None:
        """See BackgroundLoop."""
        self.background.stop()


class Face:
    """The blocking face of one asynchronous object, whose calls run on `loop`."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return faced(getattr(self._inner, name), self._loop)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


class Runstate(Face):
    """AsyncRunstate with every method called without await: same keywords, same members, and `close` for
    `aclose`. Its calls run on a thread of its own, started by the first one. Calling it on that very thread
    is a ConfigError."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(AsyncRunstate(**settings), Loop())
        self._owner = True

    def watch(self, **kwargs: Any) -> Iterator[dict[str, Any]]:
        """`events.watch`, blocking: every event from a cursor on, and then each as it comes."""
        iterator: Iterator[dict[str, Any]] = self.events.watch(**kwargs)
        return iterator

    def new_event(self) -> ThreadSafeEvent:
        """A stop flag for `consume(stop_event=...)`, to be set by any thread or signal handler."""
        return ThreadSafeEvent()

    def close(self) -> None:
        """Closes the connections and ends the thread. Calls under way get UnavailableError, later ones
        ConfigError. Closing what `with_space` gave leaves the original open."""
        if self._owner and not self._loop.closed:
            self._loop.run(self._inner.aclose())
            self._loop.stop()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def faced(value: Any, loop: Loop) -> Any:
    """`value` with every handle in it replaced by its face."""
    if isinstance(value, AsyncRunstate):
        derived = object.__new__(Runstate)
        Face.__init__(derived, value, loop)
        derived._owner = False
        return derived
    if type(value).__module__.startswith(handles.__name__ + "."):
        return _face_class(type(value))(value, loop)
    if isinstance(value, dict):
        return {key: faced(item, loop) for key, item in value.items()}
    if isinstance(value, list):
        return [faced(item, loop) for item in value]
    return value


def _face_class(kind: type) -> type[Face]:
    if kind not in _face_classes:
        facts = {"__doc__": kind.__doc__, "__module__": __name__}
        _face_classes[kind] = type(kind.__name__, (Face,), {**facts, **_members(kind)})
    return _face_classes[kind]


def _members(kind: type) -> dict[str, Any]:
    """A blocking member for every public method of `kind`; attributes are faced as they are read."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: _blocking(method) for name, method in methods if not name.startswith("_")}


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        def call(self: Face, *args: Any, **kwargs: Any) -> Any:
            outcome = self._loop.run(method(self._inner, *args, **kwargs))
            return faced(outcome, self._loop)

    elif inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        def call(self: Face, *args: Any, **kwargs: Any) -> Any:
            return _iterated(method(self._inner, *args, **kwargs), self._loop)

    else:

        @functools.wraps(method)
        def call(self: Face, *args: Any, **kwargs: Any) -> Any:
            return faced(method(self._inner, *args, **kwargs), self._loop)

    # Not followed to the coroutine function it wraps: this one returns the outcome itself.
    call.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    del call.__wrapped__
    return call


def _iterated(items: Any, loop: Loop) -> Iterator[Any]:
    """What an asynchronous generator yields, one blocking step each; leaving the loop over it closes it."""
    try:
        while True:
            item = loop.run(_next(items))
            if item is _DONE:
                return
            yield item
    finally:
        if not loop.closed:
            loop.run(items.aclose())


async def _next(items: Any) -> Any:
    return await anext(items, _DONE)


_DONE = object()
_face_classes: dict[type, type[Face]] = {}
Runstate.__init__.__signature__ = inspect.signature(AsyncRunstate.__init__)  # type: ignore[attr-defined]
for _name, _member in _members(AsyncRunstate).items():
    if _name != "aclose":
        setattr(Runstate, _name, _member)
