"""A fresh space for each test: what isolates tests from each other, since nothing is ever rolled back."""

import hashlib
import secrets
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

ADMIN_TOKEN = "test-admin-token-0123456789"
LIMITED_SQL = (
    "SELECT code, facts FROM {schema}.key_create($1, $2, $3, 'limited', $4, NULL, '{{}}', NULL, NULL)"
)
BOOTSTRAP_SQL = "SELECT code, facts FROM {schema}.space_bootstrap($1, $2, $3, $4)"


@dataclass(frozen=True)
class Space:
    """A space and a key with all permissions in it."""

    id: str
    key: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What authorises a request."""
        return {"Authorization": f"Bearer {self.key}"}

    def environment(self, base_url: str) -> dict[str, str]:
        """The variables by which the SDK of another process finds this space."""
        return {"RUNSTATE_BASE_URL": base_url, "RUNSTATE_SPACE_ID": self.id, "RUNSTATE_API_KEY": self.key}

    def client(self, base_url: str, **options: Any) -> httpx.Client:
        """A plain HTTP client whose relative paths start inside the space."""
        return httpx.Client(**self._options(base_url, options))

    def async_client(self, base_url: str, **options: Any) -> httpx.AsyncClient:
        """The same for async tests; close it, or use it as a context manager."""
        return httpx.AsyncClient(**self._options(base_url, options))

    def _options(self, base_url: str, options: dict[str, Any]) -> dict[str, Any]:
        wanted = {"timeout": 45.0, "trust_env": False} | options
        return wanted | {
            "base_url": f"{base_url}/v1/spaces/{self.id}",
            "headers": self.headers | dict(wanted.pop("headers", {})),
        }


def create(database_url: str) -> Space:
    """Make a space and its key by the kernel function that the bootstrap variables use."""
    from tests.support import database  # here, for `Space` also serves where the server is not installed

    space = Space(id=f"t-{secrets.token_hex(6)}", key=f"rs_test_{secrets.token_hex(16)}")
    rows = database.fetch(
        database_url,
        BOOTSTRAP_SQL.format(schema=database.kernel_schema()),
        space.id,
        uuid.uuid4(),
        hashlib.sha256(space.key.encode()).digest(),
        "test",
    )
    assert rows[0]["code"] is None, rows[0]
    return space


def limited(database_url: str, space: Space, *permissions: str) -> Space:
    """The same space, by a further key that has these permissions alone; made as the administrator does."""
    from tests.support import database

    key = f"rs_test_{secrets.token_hex(16)}"
    rows = database.fetch(
        database_url,
        LIMITED_SQL.format(schema=database.kernel_schema()),
        space.id,
        uuid.uuid4(),
        hashlib.sha256(key.encode()).digest(),
        list(permissions),
    )
    assert rows[0]["code"] is None, rows[0]
    return Space(space.id, key)
