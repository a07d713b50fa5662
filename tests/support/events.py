"""Calls that read the journal over HTTP."""

from typing import Any
from urllib.parse import urlencode

import httpx

from tests.support.builders import Call, ok


def page(path: str = "/events", **query: Any) -> Call:
    """GET /events or /watch with these parameters; those that are None are left out."""
    given = {name: value for name, value in query.items() if value is not None}
    return Call("GET", path + ("?" + urlencode(given) if given else ""))


def watch(**query: Any) -> Call:
    """GET /watch."""
    return page("/watch", **query)


def read(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    """All events from a cursor on, page by page, until one brings nothing and moves no further."""
    found: list[dict[str, Any]] = []
    while True:
        told = ok(page(**query).send(client))
        found += told["events"]
        if not told["events"] and told["nextCursor"] == query.get("cursor"):
            return found
        query["cursor"] = told["nextCursor"]


def end_of(client: httpx.Client) -> str:
    """The cursor after everything that was committed before."""
    events = read(client)
    return str(events[-1]["cursor"]) if events else str(ok(page().send(client))["nextCursor"])
