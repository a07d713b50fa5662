"""Functions that are called inside a block of `with` or `async with`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from runstate._crew import is_async
from runstate.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


def guarded(what: str, guard: Any, function: Callable[P, R]) -> Callable[P, R]:
    """The function, plain or async, each call of it inside `guard`. Refuses (ConfigError) what is none, and
    generators, whose call is over before they have done anything."""
    check_function(what, function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with guard:
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        async with guard:
            return await cast("Any", function)(*args, **kwargs)

    return cast("Callable[P, R]", call_async if is_async(function) else call)


def check_function(what: str, function: Any) -> None:
    """Refuses (ConfigError) what is no function, and generators."""
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"{what} wraps a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__name__} is a generator: its call is over before it has done anything")
