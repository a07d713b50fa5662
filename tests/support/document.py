"""The OpenAPI document as tests read it: every route, and every place of it where a value stands.

What is generated from here is about every later route by itself. The document is the agreed one, which
tests/contract/test_openapi.py holds to the server's.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from tests.support.builders import Call

SNAPSHOT = Path(__file__).parents[1] / "contract/openapi.json"
INSIDE = "/v1/spaces/{space_id}"
DOCUMENT = json.loads(SNAPSHOT.read_text())
_MARK = "the-place-of-a-value"


@dataclass(frozen=True)
class Place:
    """One place of a route: in its path, its query or its body, where `at` leads through objects and lists.

    `kind`: id, text, integer, number, boolean, choice, instant, json, list or object.
    """

    where: str
    at: tuple[str | int, ...]
    kind: str
    required: bool

    @property
    def name(self) -> str:
        """As a refusal names it: the nearest name that is no index."""
        return next(str(part) for part in reversed(self.at) if isinstance(part, str))

    def __str__(self) -> str:
        return f"{self.where} {'.'.join(map(str, self.at))}"


@dataclass(frozen=True, eq=False)
class Route:
    """One operation. Calls of it have whole paths, from /v1 on."""

    method: str
    path: str
    operation: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix(INSIDE)}"

    @property
    def inside(self) -> bool:
        """Whether it is a route of a space."""
        return self.path.startswith(INSIDE)

    @property
    def reads(self) -> bool:
        """Whether it is a GET."""
        return self.method == "GET"

    @cached_property
    def places(self) -> list[Place]:
        """Every place of it, the id of the space and headers left out."""
        found = []
        for parameter in self.operation.get("parameters", []):
            if parameter["in"] in {"path", "query"} and parameter["name"] != "space_id":
                at, schema = (parameter["name"],), parameter["schema"]
                for kind, _ in _kinds(schema, at):
                    found.append(Place(parameter["in"], at, kind, parameter["required"]))
        body = self.operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            found += [p for p in _places(body["schema"], (), required=True) if p.at]
        return found

    @property
    def ids(self) -> list[Place]:
        """The places where the id of something stands."""
        return [place for place in self.places if place.kind == "id"]

    def fills(self, call: Call) -> bool:
        """Whether it is a call of this route."""
        pattern = re.sub(r"\{\w+\}", "[^/]+", self.path)
        return call.method == self.method and bool(re.fullmatch(pattern, call.path.partition("?")[0]))

    def with_raw(self, call: Call, place: Place, text: str) -> tuple[str, str, bytes | None]:
        """Method, path and body of that call with a text put in as it is: JSON in a body, percent-encoded in
        a path or query."""
        path, mark, query = call.path.partition("?")
        if place.where == "path":
            parts = path.split("/")
            parts[self.path.split("/").index(f"{{{place.at[0]}}}")] = text
            path = "/".join(parts)
        elif place.where == "query":
            pairs = [(n, v) for n, v in parse_qsl(query, keep_blank_values=True) if n != place.at[0]]
            query, mark = "&".join([*([urlencode(pairs)] if pairs else []), f"{place.at[0]}={text}"]), "?"
        content = None if call.body is None else json.dumps(call.body)
        if place.where == "body":
            marked = _put(json.loads(content or "{}"), place.at, _MARK)
            content = json.dumps(marked).replace(json.dumps(_MARK), text)
        raw = None if content is None else content.encode("utf-8", "surrogatepass")
        return call.method, path + mark + query, raw

    def with_value(self, call: Call, place: Place, value: str) -> tuple[str, str, bytes | None]:
        """The same with a text that is encoded for its place."""
        encoded = quote(value, safe="").replace(".", "%2E")  # clients take `..` for one step up
        return self.with_raw(call, place, json.dumps(value) if place.where == "body" else encoded)


def routes() -> list[Route]:
    """Every route of the document below /v1."""
    return [
        Route(method.upper(), path, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1/")
    ]


def _places(schema: dict[str, Any], at: tuple[str | int, ...], *, required: bool) -> Iterator[Place]:
    for kind, option in _kinds(schema, at):
        yield Place("body", at, kind, required)
        if kind == "object":
            needed = option.get("required", [])
            for name, inner in option.get("properties", {}).items():
                yield from _places(inner, (*at, name), required=name in needed)
        elif kind == "list":
            yield from _places(option["items"], (*at, 0), required=required)


def _kinds(schema: dict[str, Any], at: tuple[str | int, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What may stand in a place, null apart, and the schema that says so."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        for option in schema["anyOf"]:
            if option.get("type") != "null":
                yield from _kinds(option, at)
    elif "type" not in schema:
        yield "json", schema
    elif "enum" in schema:
        yield "choice", schema
    elif schema["type"] == "string":
        named = next((part for part in reversed(at) if isinstance(part, str)), "")
        special = "instant" if schema.get("format") == "date-time" else "text"
        yield ("id" if is_id(named) else special), schema
    else:
        yield {"array": "list"}.get(schema["type"], schema["type"]), schema


def is_id(name: str) -> bool:
    """Whether what has this name is the id of something; a subscriber is whatever the caller calls it."""
    return bool(re.search(r"[a-z]Id$|_id$", name)) and name not in {"subscriberId", "space_id"}


def _put(value: Any, at: tuple[str | int, ...], what: Any) -> Any:
    if not at:
        return what
    first, *rest = at
    if first == 0:
        items = value if isinstance(value, list) and value else [None]
        return [_put(items[0], tuple(rest), what), *items[1:]]
    members = value if isinstance(value, dict) else {}
    return members | {first: _put(members.get(first), tuple(rest), what)}
