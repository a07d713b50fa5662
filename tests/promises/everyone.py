"""Whoever calls a route of the document: with a good key, with the operator's token, or with neither."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.promises import rows_admin
from tests.promises.table import SHAPES
from tests.support.builders import Call
from tests.support.document import Place, Route
from tests.support.spaces import ADMIN_TOKEN, Space

OPERATOR = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
_ROWS = {str(shape): shape for shape in SHAPES}


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
        call = _ROWS[str(route)].call(self.api)
        return Call(call.method, f"/v1/spaces/{self.space.id}{call.path}", call.body)

    def rights(self, route: Route) -> dict[str, str]:
        """The headers by which the route is opened."""
        return self.space.headers if route.inside else OPERATOR

    def send(self, route: Route, call: Call, **headers: str) -> httpx.Response:
        """Send it with the route's rights, unless other headers are given."""
        return self.door.request(call.method, call.path, json=call.body, headers=self.rights(route) | headers)

    def send_with(self, route: Route, call: Call, place: Place, value: str, **how: Any) -> httpx.Response:
        """Send it with that text, encoded, in a place."""
        return self._sent(route, route.with_value(call, place, value), **how)

    def send_raw(self, route: Route, call: Call, place: Place, text: str, **how: Any) -> httpx.Response:
        """Send it with that text, as it is, in a place."""
        return self._sent(route, route.with_raw(call, place, text), **how)

    def _sent(self, route: Route, made: tuple[str, str, bytes | None], **headers: str) -> httpx.Response:
        method, path, content = made
        return self.door.request(method, path, content=content, headers=self.rights(route) | headers)
