"""Whoever calls a route of the document: with a good key, with the operator's token, or with neither."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.promises import rows_admin
from tests.promises.table import SHAPES
from tests.support.builders import Call
from tests.support.document import Place, Route
from tests.support.events import page
from tests.support.spaces import ADMIN_TOKEN, Space

OPERATOR = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
_MAKES = {str(shape): shape.call for shape in SHAPES} | {
    "GET /events/stream": lambda _: page("/events/stream")
}


@dataclass(frozen=True)
class Everyone:
    """`api` is of the space; `door` sends no key by itself, and its paths are whole."""

    space: Space
    api: httpx.Client
    door: httpx.Client

    def call(self, route: Route) -> Call:
        """A call of the route that succeeds, about things made for it in the space."""
        if not route.inside:
            operator = httpx.Client(base_url=self.door.base_url, headers=OPERATOR, trust_env=False)
            with operator:
                return rows_admin.CALLS[str(route)](operator, self.space)
        call = _MAKES[str(route)](self.api)
        return Call(call.method, f"/v1/spaces/{self.space.id}{call.path}", call.body)

    def rights(self, route: Route) -> dict[str, str]:
        """The headers by which the route is opened."""
        return self.space.headers if route.inside else OPERATOR

    def send_with(self, route: Route, call: Call, place: Place, value: str) -> httpx.Response:
        """Send it, with the route's rights, with that text, encoded, in a place."""
        return self._sent(route, route.with_value(call, place, value))

    def send_raw(self, route: Route, call: Call, place: Place, text: str) -> httpx.Response:
        """Send it with that text, as it is, in a place."""
        return self._sent(route, route.with_raw(call, place, text))

    def send_body(self, route: Route, call: Call, content: bytes, **headers: str) -> httpx.Response:
        """Send it with those bytes as its body."""
        return self.request(call.method, call.path, content=content, headers=self.rights(route) | headers)

    def request(self, method: str, path: str, **how: Any) -> httpx.Response:
        """Any request from the door. A response that has no end is left with nothing read of it."""
        with self.door.stream(method, path, **how) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return httpx.Response(response.status_code, headers=response.headers)
            response.read()
            return response

    def _sent(self, route: Route, made: tuple[str, str, bytes | None]) -> httpx.Response:
        method, path, content = made
        return self.request(method, path, content=content, headers=self.rights(route))
