"""Calls of work limits."""

from typing import Any

import httpx

from tests.support.builders import Call, ok


def define(scope: str, most: Any = 10, name: str = "outstanding") -> Call:
    """A new limit of a scope."""
    return Call("POST", "/work-limits", {"name": name, "scopeId": scope, "maxOutstanding": most})


def limit(client: httpx.Client, scope: str, most: int = 10, name: str = "outstanding") -> str:
    """The id of a new limit."""
    return str(ok(define(scope, most, name).send(client), 201)["id"])


def outstanding(client: httpx.Client, limit_id: str) -> int:
    """How many unfinished tasks it counts."""
    listed = ok(Call("GET", "/work-limits").send(client))["workLimits"]
    return int(next(each["outstanding"] for each in listed if each["id"] == limit_id))
