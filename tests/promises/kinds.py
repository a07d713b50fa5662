"""The two kinds of rows of the promise suites, and what the suites send in a row's place."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.builders import Call

Make = Callable[[httpx.Client], Call]
BODY_BYTES_MAX = 256 * 1024


@dataclass(frozen=True)
class Mutation:
    """A route that changes something. Each member makes what its call needs in the client's space, in one new
    run at most, anew every time.

    `changes`: a call that changes something, and `tells`: the events that it writes; none where the contract
    has no word for it. `refused`: one of the same route that is refused as a conflict. `idle`: one that is
    answered and changes nothing. `after_end`: how `changes` is refused once its run is cancelled, if it is.
    `renewal`: the renewal of the lease that an answer to `changes` grants.
    """

    name: str
    changes: Make
    tells: tuple[str, ...]
    refused: Make | None = None
    idle: Make | None = None
    after_end: str | None = None
    renewal: Callable[[Call, Any], Call] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Shape:
    """What a route takes: each field with its kind (see BAD in test_bounds.py), and which are required.

    `name`: method and path as the OpenAPI document writes them. `call`: one that succeeds. `one_of`: optional
    fields of which exactly one is given. `needs`: any one
    of these permissions opens the route. `shows`: the call that shows the user's JSON which `call` brought,
    from that call and its answer.
    """

    name: str
    call: Make
    fields: dict[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    one_of: frozenset[str] = frozenset()
    query: dict[str, str] = field(default_factory=dict)
    required_query: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ("runtime",)
    body_bytes_max: int = BODY_BYTES_MAX
    shows: Callable[[Call, Any], Call] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def reads(self) -> bool:
        """Whether it is a GET, which has no body."""
        return self.name.startswith("GET ")

    @property
    def in_path(self) -> list[str]:
        """The names of the parameters of the path, such as scope_id, key, name."""
        return re.findall(r"\{(\w+)\}", self.name)

    def with_path(self, call: Call, parameter: str, raw: str) -> Call:
        """The call with that text, as it is, for a parameter of the path."""
        names = self.name.partition(" ")[2].split("/")
        path, mark, query = call.path.partition("?")
        parts = path.split("/")
        parts[names.index(f"{{{parameter}}}")] = raw
        return Call(call.method, "/".join(parts) + mark + query, call.body)


def raw(call: Call, **replaced: str) -> bytes:
    """The body with these fields set to JSON text that is put in as it is."""
    members = {name: json.dumps(value) for name, value in (call.body or {}).items()} | replaced
    return ("{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}").encode()


def with_field(shape: Shape, call: Call, name: str, text: str) -> bytes:
    """The body with that field set to JSON text, and none of those that it excludes."""
    excluded = shape.one_of - {name} if name in shape.one_of else frozenset()
    kept = {field: value for field, value in (call.body or {}).items() if field not in excluded}
    return raw(Call(call.method, call.path, kept), **{name: text})


def post(client: httpx.Client, call: Call, content: Any, **headers: str) -> httpx.Response:
    """Send other bytes as the body of that call."""
    return client.request(call.method, call.path, content=content, headers=headers)


def code(response: httpx.Response) -> str | None:
    """The code of a refusal; None for a success, with content or without."""
    return None if response.is_success else response.json()["error"]["code"]
