"""Events: three ways to read, none to change."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.support.builders import Call, scope
from tests.support.events import page, watch

QUERY = {"cursor": "cursor", "limit": "1..500", "types": "types", "aggregate": "aggregate", "scopeId": "id"}


def _page(client: httpx.Client) -> Call:
    return page(scopeId=scope(client), limit=1)


def _watch(client: httpx.Client) -> Call:
    return watch(scopeId=scope(client), limit=1, waitSeconds=0)


MUTATIONS: list[Mutation] = []
SHAPES = [
    Shape("GET /events", _page, query=QUERY, needs=("observe",)),
    Shape("GET /watch", _watch, query=QUERY | {"waitSeconds": "seconds"}, needs=("observe",)),
]
