"""Work limits: definitions. They are obeyed by the rows of tasks."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.support.builders import Call, scope
from tests.support.limits import define, limit


def _again(client: httpx.Client) -> Call:
    root = scope(client)
    limit(client, root)
    return define(root)


MUTATIONS = [
    Mutation(
        "POST /work-limits",
        lambda c: define(scope(c)),
        ("resource.created",),
        refused=_again,
        after_end="SCOPE_CANCELLED",
    ),
]

SHAPES = [
    Shape(
        "POST /work-limits",
        lambda c: define(scope(c)),
        {"name": "name", "scopeId": "id", "maxOutstanding": "1..1000000000"},
        frozenset({"name", "scopeId", "maxOutstanding"}),
        needs=("resource_config",),
    ),
    Shape(
        "GET /work-limits",
        lambda _: Call("GET", "/work-limits"),
        query={"cursor": "cursor", "limit": "1..500"},
    ),
]
