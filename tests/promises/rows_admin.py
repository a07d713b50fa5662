"""Administration: a call of each route, whole paths, made as the operator."""

from collections.abc import Callable

import httpx

from tests.support.builders import Call, ok
from tests.support.spaces import Space

SPACES = "/v1/admin/spaces"
GIVEN = {"label": "workers", "permissions": ["runtime"]}


def _revocation(operator: httpx.Client, space: Space) -> Call:
    keys = f"{SPACES}/{space.id}/keys"
    made = ok(operator.post(keys, json=GIVEN), 201)
    return Call("DELETE", f"{keys}/{made['id']}")


CALLS: dict[str, Callable[[httpx.Client, Space], Call]] = {
    f"GET {SPACES}": lambda _, __: Call("GET", SPACES),
    f"POST {SPACES}": lambda _, __: Call("POST", SPACES, {"name": "Acme"}),
    f"PATCH {SPACES}/{{space_id}}": lambda _, space: Call("PATCH", f"{SPACES}/{space.id}", {"limits": {}}),
    f"GET {SPACES}/{{space_id}}/keys": lambda _, space: Call("GET", f"{SPACES}/{space.id}/keys"),
    f"POST {SPACES}/{{space_id}}/keys": lambda _, space: Call("POST", f"{SPACES}/{space.id}/keys", GIVEN),
    f"DELETE {SPACES}/{{space_id}}/keys/{{key_id}}": _revocation,
}
