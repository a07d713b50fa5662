"""What a handler has returned, as it will be recorded, and what it is charged."""

from dataclasses import dataclass
from typing import Any

from runstate._crew import error_text
from runstate._keys import as_recorded
from runstate.decorators.needs import Money, Price


@dataclass(frozen=True)
class Done:
    """A job that has succeeded; `price` is None where none is to be paid."""

    value: Any
    price: Price | None


class UnrecordableError(Exception):
    """A handler's return value that cannot be a result; the text says why."""


def recorded(value: Any, money: Money | None) -> Done:
    """Where the handler runs: what it has returned, and its price. Refuses: UnrecordableError."""
    try:
        plain = as_recorded(value, "the result")
    except Exception as error:
        raise UnrecordableError(error_text(error)) from error
    return Done(plain, None if money is None else money.price(value))


async def recorded_later(value: Any, money: Money | None) -> Done:
    """As `recorded`, of what a plain handler has returned to be awaited."""
    return recorded(await value, money)
