"""User JSON in: one strict parse of the envelope, with user payloads kept as the text that came.

The envelope's members become Python values for a pydantic model. Members typed `UserJson` are cut out of the
text unparsed, checked (size, depth, what JSON does not have), and only their white space is removed: number
tokens, escapes and key order survive.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NoReturn, get_args

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from runstate_server.foundation import bounds
from runstate_server.foundation.errors import Code, Refusal

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_OR_SPACE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NOT_BRACKETS: Final = re.compile(r"[^\[\]{}]+")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INT_DIGITS_MAX: Final = (
    25  # beyond every integer of the wire; longer ones are refused as numbers, not converted
)
_ENVELOPE_DEPTH: Final = 4  # more than any of our own bodies has around the user's JSON


@dataclass(frozen=True, slots=True)
class UserJson:
    """A payload as compact JSON text; null when the member was absent."""

    text: str = "null"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "description": f"Any JSON value, at most {bounds.user_json_bytes_max} bytes of compact UTF-8."
        }


class Body(BaseModel):
    """Base of every request body: camelCase on the wire, exact types, unknown members refused by name."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
    )


class Nothing(Body):
    """The body of a call that takes nothing: empty, or an empty object."""


def invalid(message: str) -> NoReturn:
    """Refuse with VALIDATION_FAILED."""
    raise Refusal(Code.VALIDATION_FAILED, message)


def text_of(raw: bytes) -> str:
    """The body as text; an empty one is an empty object."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        invalid(f"the body is not UTF-8: bad byte at offset {error.start}")
    return text if text.strip(" \t\n\r") else "{}"


def envelope(text: str, model: type[BaseModel]) -> dict[str, Any]:
    """The members of a body for `model`, nulls left out, `UserJson` members cut out of the text.
    Refuses what is not one JSON object, duplicate names, NaN and Infinity, lone surrogates, user JSON nested
    over 128."""
    _check_depth(text, bounds.json_depth_max + _ENVELOPE_DEPTH, "the body")
    try:
        value, end = _object(text, _skip(text, 0), model)
        if _skip(text, end) != len(text):
            invalid("the body has something after its JSON object")
    except json.JSONDecodeError as error:
        invalid(f"the body is not JSON: {error.msg} at character {error.pos}")
    return value


def compact(text: str, name: str) -> UserJson:
    """White space outside strings removed; refused over the size and the depth that payloads may have."""
    _check_depth(text, bounds.json_depth_max, name)
    text = tight(text)
    size = len(text.encode())
    if size > bounds.user_json_bytes_max:
        invalid(f"{name} exceeds {bounds.user_json_bytes_max} bytes ({size})")
    return UserJson(text)


def tight(text: str) -> str:
    """JSON text without the white space between its tokens."""
    return _STRING_OR_SPACE.sub(r"\1", text) if any(c in text for c in " \t\n\r") else text


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _object(text: str, at: int, model: type[BaseModel]) -> tuple[dict[str, Any], int]:
    """Parse one object member by member, so that the text of a value is known."""
    if text[at : at + 1] != "{":
        invalid("the body must be a JSON object")
    members: dict[str, Any] = {}
    names: set[str] = set()
    opaque = _opaque(model)
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        name, at = _name(text, at)
        if name in names:
            invalid(f"the body has two members named {name!r}")
        names.add(name)
        value, end = _value(text, at, opaque.get(name), name)
        if value is not None:
            members[name] = value
        at = _skip(text, end)
        match text[at : at + 1]:
            case ",":
                at = _skip(text, at + 1)
            case "}":
                return members, at + 1
            case _:
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


def _name(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, end = _DECODER.raw_decode(text, at)
    if _SURROGATE.search(text, at, end):
        _check_surrogates(name)
    at = _skip(text, end)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, _skip(text, at + 1)


def _value(text: str, at: int, kind: type[Any] | None, name: str) -> tuple[Any, int]:
    if kind is not None and kind is not UserJson:
        if text[at : at + 1] == "{":
            return _object(text, at, kind)
        if text[at : at + 1] == "[":
            return _list(text, at, kind, name)
    value, end = _DECODER.raw_decode(text, at)
    if _SURROGATE.search(text, at, end):
        _check_surrogates(value)
    if kind is UserJson:
        return compact(text[at:end], name), end
    if isinstance(value, dict | list):
        _check_depth(text[at:end], bounds.json_depth_max, name)
    return value, end


def _list(text: str, at: int, kind: type[Any], name: str) -> tuple[list[Any], int]:
    """Parse an array of objects that hold user JSON."""
    items: list[Any] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return items, at + 1
    while True:
        value, at = _value(text, at, kind, name)
        items.append(value)
        at = _skip(text, at)
        match text[at : at + 1]:
            case ",":
                at = _skip(text, at + 1)
            case "]":
                return items, at + 1
            case _:
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


@cache
def _opaque(model: type[BaseModel]) -> Mapping[str, type[Any]]:
    """Which members of a body are user JSON, and which are objects, or lists of objects, of a model."""
    found: dict[str, type[Any]] = {}
    for name, field in model.model_fields.items():
        for kind in _kinds(field.annotation):
            if kind is UserJson or (isinstance(kind, type) and issubclass(kind, BaseModel)):
                found[field.alias or name] = kind
    return found


def _kinds(annotation: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        invalid(f"an object in the body has two members named {twice!r}")
    return value


def _constant(name: str) -> NoReturn:
    invalid(f"the body holds {name}, which JSON does not have")


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _INT_DIGITS_MAX else float("inf")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_int)


def _check_depth(text: str, depth_max: int, what: str) -> None:
    """Refuse deep nesting; that of a body before the parser recurses."""
    if text.count("[") + text.count("{") <= depth_max:
        return
    depth = 0
    for bracket in _NOT_BRACKETS.sub("", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > depth_max:
            invalid(f"{what} is nested deeper than {bounds.json_depth_max}")


def _check_surrogates(value: Any) -> None:
    """Refuse strings that cannot be UTF-8. Only called where an escape of a surrogate stands in the text."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if any("\ud800" <= c <= "\udfff" for c in item):
                invalid("the body holds a lone surrogate (\\ud800 to \\udfff), which is not a character")
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
