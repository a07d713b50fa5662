"""User JSON and the keys made of it: canonical JSON as a JavaScript engine writes it, so that equal names and
arguments give equal keys in every language. Pure; a refusal is a ConfigError that names the value's place."""

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runstate.errors import ConfigError, ResultTooLargeError

PAYLOAD_BYTES_MAX = 65_536
_DEPTH_MAX = 128
_HASH_DIGITS = 32
# JavaScript writes a number without an exponent from 1e-6 up to, not including, 1e21.
_POINT_MAX = 21
_POINT_MIN = -6


def hash_key(name: str, args: list[Any], places: list[str] | None = None) -> str:
    """`<name>:<hash of args>`; `places` names each argument in errors."""
    named = [_plain(arg, _place(places, index), models=True) for index, arg in enumerate(args)]
    digest = hashlib.sha256(canonical_json(named).encode()).hexdigest()
    return f"{name}:{digest[:_HASH_DIGITS]}"


def canonical_json(value: Any) -> str:
    """JSON.stringify form, object keys in order of their UTF-16 code units, no white space."""
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(canonical_json(item) for item in value) + "]"
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_quoted(key)}:{canonical_json(item)}" for key, item in members) + "}"
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _number(value)


def compact_json(value: Any, what: str) -> str:
    """`value` as compact JSON. Refuses what JSON does not have (ConfigError, naming the place inside `what`)
    and more than 65,536 bytes of UTF-8 (ResultTooLargeError)."""
    text = json.dumps(_plain(value, what, models=False), ensure_ascii=False, separators=(",", ":"))
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{what} contains a lone surrogate, which JSON cannot carry") from None
    if size_bytes > PAYLOAD_BYTES_MAX:
        raise ResultTooLargeError(f"{what} exceeds {PAYLOAD_BYTES_MAX} bytes ({size_bytes})")
    return text


def as_recorded(value: Any, what: str) -> Any:
    """`value` as everybody else will get it: its owner's own object may hold tuples, or be changed later.
    Refuses as `compact_json`."""
    return json.loads(compact_json(value, what))


class Signature:
    """How calls of one function become argument lists, whichever way the arguments are passed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # some builtins have none
            self._signature = None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[str]]:
        """The argument list and the name of each. Positional ones in order, then one object of the
        keyword-only ones that were given. Trailing arguments that were not given stay out; one skipped before
        a given one takes its default. Refuses what the function itself would refuse, with its TypeError."""
        if self._signature is None:
            listed = [*args, kwargs] if kwargs else [*args]
            return listed, [f"argument {index}" for index in range(1, len(listed) + 1)]
        given = self._signature.bind(*args, **kwargs).arguments
        values: list[Any] = []
        names: list[str] = []
        skipped: list[tuple[Any, str]] = []
        for value, name, is_given in self._listed(given):
            if not is_given:
                skipped.append((value, name))
                continue
            for earlier_value, earlier_name in skipped:
                values.append(earlier_value)
                names.append(earlier_name)
            skipped.clear()
            values.append(value)
            names.append(name)
        return values, names

    def _listed(self, given: Mapping[str, Any]) -> Iterator[tuple[Any, str, bool]]:
        assert self._signature is not None  # noqa: S101 - the caller has looked
        keywords: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield from ((item, f"{name}[{i}]", True) for i, item in enumerate(given.get(name, ())))
            elif parameter.kind is parameter.VAR_KEYWORD:
                keywords.update(given.get(name, {}))
            elif parameter.kind is parameter.KEYWORD_ONLY:
                keywords.update({name: given[name]} if name in given else {})
            else:
                yield given.get(name, parameter.default), name, name in given
        if keywords:
            yield keywords, "", True


def _place(places: list[str] | None, index: int) -> str:
    # The trailing object of keyword-only arguments has no name of its own: its members are the arguments.
    if places is None:
        return f"argument {index + 1}"
    return f"argument {places[index]}" if places[index] else "argument "


def _plain(value: Any, where: str, *, models: bool, depth: int = 0) -> Any:
    """The JSON value of `value`: dict, list, str, int, float, bool or None, and nothing else in it.
    With `models`, dataclasses and pydantic models count as objects, and integers must fit a double."""
    if models:
        value = _fields(value)
    if isinstance(value, (list, tuple, dict)) and depth >= _DEPTH_MAX:
        raise ConfigError(f"a value inside {where[:40]}… is nested deeper than {_DEPTH_MAX} levels")
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]", models=models, depth=depth + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        joint = "" if where.endswith(" ") else "."
        return {
            _member(key, where): _plain(item, f"{where}{joint}{key}", models=models, depth=depth + 1)
            for key, item in value.items()
        }
    if models and isinstance(value, int) and not _fits_double(value):
        raise ConfigError(f"{where} is an integer that a double cannot hold exactly; pass it as a string")
    return _scalar(value, where)


def _scalar(value: Any, where: str) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # the text itself, also of an Enum with str mixed in
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        raise ConfigError(f"{where} is of type {type(value).__name__}, which JSON does not have")
    if not math.isfinite(value):
        raise ConfigError(f"{where} is {float(value)!r}, which JSON does not have")
    return float(value)


def _member(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{where} has the key {key!r}; JSON objects have string keys only")
    return str.__str__(key)


def _fields(value: Any) -> Any:
    """A dataclass or pydantic model as the object of its fields; anything else as it is."""
    if isinstance(value, (type, str, int, float, list, tuple, dict)):
        return value
    if callable(getattr(type(value), "model_dump", None)):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(type(value), "__fields__") and callable(getattr(type(value), "json", None)):  # pydantic 1
        return json.loads(value.json())
    return value


def _fits_double(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _number(value: float) -> str:
    """A finite number as JavaScript writes it: the shortest digits that read back as the same double."""
    sign, digits, point = _shortest(float(value))
    if digits == "0":
        return "0"
    if len(digits) <= point <= _POINT_MAX:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= _POINT_MAX:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if _POINT_MIN < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _shortest(value: float) -> tuple[str, str, int]:
    """Sign, significant digits, and how many of them stand before the decimal point."""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return "-" if value < 0 else "", digits.rstrip("0") or "0", point


def _quoted(text: str) -> str:
    # Two surrogates that form a pair are one character to JavaScript; a lone one is written as its escape.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    quoted = json.dumps(joined, ensure_ascii=False)
    if quoted.isascii():
        return quoted
    return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in quoted)
