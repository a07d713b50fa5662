"""Administration, as the operator and as others try it."""

import secrets

import httpx
import pytest

from tests.support.builders import ok
from tests.support.spaces import ADMIN_TOKEN


class Administration:
    """The calls of /v1/admin by whoever has that bearer token."""

    def __init__(self, base_url, token):
        headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
        url = f"{base_url}/v1/admin"
        self.client = httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False)

    def create(self, **body):
        return self.client.post("/spaces", json={"name": "Acme"} | body)

    def spaces(self, **query):
        return self.client.get("/spaces", params=query)

    def change(self, space_id, **body):
        return self.client.patch(f"/spaces/{space_id}", json=body)

    def create_key(self, space_id, *permissions, **body):
        given = {"label": "workers", "permissions": list(permissions) or ["runtime"]} | body
        return self.client.post(f"/spaces/{space_id}/keys", json=given)

    def keys(self, space_id, **query):
        return self.client.get(f"/spaces/{space_id}/keys", params=query)

    def revoke(self, space_id, key_id):
        return self.client.delete(f"/spaces/{space_id}/keys/{key_id}")

    def everything(self, space_id, key_id):
        """One call of each route, as functions: those of the operator alone, and those about keys."""
        alone = [self.create, self.spaces, lambda: self.change(space_id)]
        about_keys = [
            lambda: self.create_key(space_id),
            lambda: self.keys(space_id),
            lambda: self.revoke(space_id, key_id),
        ]
        return alone, about_keys


@pytest.fixture
def administration():
    """Make an Administration; closed after the test."""
    made = []

    def make(replica, token):
        made.append(Administration(replica.url, token))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


@pytest.fixture
def operator(server, administration):
    """Who runs the server."""
    return administration(server, ADMIN_TOKEN)


@pytest.fixture
def fresh(operator):
    """The id of a space that the operator has made."""
    return ok(operator.create(id=f"a-{secrets.token_hex(6)}"), 201)["id"]
