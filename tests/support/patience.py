"""A replica whose calls keep their place in a line of locks, for tests of that line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from tests.support import spaces
from tests.support.processes import Replica
from tests.support.spaces import Space

SQL = """ALTER ROLE CURRENT_USER IN DATABASE "{name}" SET lock_timeout = '9s'"""


@dataclass(frozen=True)
class Patient:
    """The replica, on a database of its own."""

    database_url: str
    replica: Replica

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[Space, httpx.AsyncClient]]:
        """A fresh space with a client of it."""
        space = spaces.create(self.database_url)
        async with space.async_client(self.replica.url) as client:
            yield space, client
