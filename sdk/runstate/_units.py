"""Durations, windows and money as people write them. Pure; a refusal is a ConfigError with the input."""

import math
import re
from decimal import Decimal
from typing import Any

from runstate.errors import ConfigError

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*")
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PERS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_PER_S_MAX = 86400
_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?")
_MINOR = re.compile(r"(-?)([0-9]+)")
_SCALE_MAX = 9


def duration_s(value: Any, what: str = "duration") -> float:
    """Seconds, from a number of them or a string such as "500ms", "30s", "10m", "2h", "1d"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise ConfigError(f"{what} must be a finite number of seconds, 0 or more, not {value!r}")
        return float(value)
    match = _matched(_DURATION, value)
    if match is None:
        raise ConfigError(
            f'{what} must be seconds or a string such as "500ms", "30s" or "10m", not {value!r}'
        )
    return float(Decimal(match[1]) * _SECONDS[match[2]])


def per_s(value: Any) -> int:
    """Whole seconds of a window, 1 to 86,400: "second", "minute", "hour", "day", or a duration."""
    if isinstance(value, str) and value in _PERS:
        return _PERS[value]
    seconds = duration_s(value, "per")
    if not seconds.is_integer() or not 1 <= seconds <= _PER_S_MAX:
        raise ConfigError(f"per must be whole seconds from 1 s to 1 d, not {value!r}")
    return int(seconds)


def amount_to_minor(amount: Any, scale: int) -> str:
    """Minor units as digits. A string (or Decimal) must fit the scale exactly; a number is read as a double
    in its shortest decimal form and rounds half up."""
    if isinstance(amount, (int, float)) and not isinstance(amount, bool):
        return _rounded(amount, _checked(scale))
    return decimal_to_minor(format(amount, "f") if isinstance(amount, Decimal) else amount, scale)


def decimal_to_minor(amount: str, scale: int) -> str:
    """Exact minor units: ("1.25", 2) is "125". Refuses what the scale cannot hold."""
    match = _matched(_DECIMAL, amount)
    if match is None:
        raise ConfigError(f'an amount must be written like "12.50", 0 or more, not {amount!r}')
    fraction = (match[2] or "").rstrip("0")
    if len(fraction) > _checked(scale):
        raise ConfigError(f"the amount {amount!r} has more than {scale} digits after the point")
    return (match[1] + fraction.ljust(scale, "0")).lstrip("0") or "0"


def minor_to_decimal(minor: str, scale: int) -> str:
    """Major units of an integer amount of minor ones: ("125", 2) is "1.25"."""
    match = _matched(_MINOR, minor)
    if match is None:
        raise ConfigError(f"minor units must be a string of digits, not {minor!r}")
    digits = (match[2].lstrip("0")).rjust(_checked(scale) + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return match[1] + whole + ("." + fraction if scale else "")


def _rounded(amount: float, scale: int) -> str:
    try:
        as_double = float(amount)
    except OverflowError:
        as_double = math.inf
    if not math.isfinite(as_double) or as_double < 0:
        raise ConfigError(f"an amount must be a finite number, 0 or more, not {amount!r}")
    _, digits, exponent = Decimal(repr(as_double)).as_tuple()
    units = int("".join(map(str, digits)))
    shift = int(exponent) + scale
    if shift >= 0:
        return str(units * 10**shift)
    return str((2 * units + 10**-shift) // (2 * 10**-shift))


def _matched(pattern: re.Pattern[str], value: Any) -> re.Match[str] | None:
    return pattern.fullmatch(value) if isinstance(value, str) else None


def _checked(scale: Any) -> int:
    if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= _SCALE_MAX:
        raise ConfigError(f"scale must be a whole number from 0 to {_SCALE_MAX}, not {scale!r}")
    return scale
