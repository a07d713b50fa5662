"""Reports: nothing changes."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.promises.rows_messages import box
from tests.support.builders import Call, Once, held, ok
from tests.support.queues import Claim, submitted, taken


def _busy(client: httpx.Client) -> Call:
    """The report on a run in which there is one of everything."""
    it = box(client)
    ok(Claim(it.scope).acquire().send(client), 201)
    held(client, Once(it.scope))
    submitted(client, it, "a")
    submitted(client, it, "b")
    taken(client, it.recv())
    return Call("GET", f"/ops/runs/{it.scope}")


MUTATIONS: list[Mutation] = []

SHAPES = [
    Shape("GET /ops/runs/{scope_id}", _busy, needs=("observe",)),
    Shape("GET /ops/waits", lambda _: Call("GET", "/ops/waits"), needs=("observe",)),
    Shape("GET /ops/summary", lambda _: Call("GET", "/ops/summary"), needs=("observe",)),
]
