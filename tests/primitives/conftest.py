"""What the races of rooms need: many callers at once, and a replica whose calls wait long for a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import builders, database, spaces, waits
from tests.support.processes import Replica
from tests.support.spaces import Space

LOCK_TIMEOUT_S = 9


@pytest.fixture(scope="session")
def waits_group(template):
    """Three replicas that differ in what may wake their long polls."""
    with waits.group(template) as group:
        yield group


@pytest.fixture
def storm(both_apis):
    """Send many calls at once over two replicas; returns the responses."""

    async def send(calls):
        return await builders.at_once(both_apis, calls)

    return send


@dataclass(frozen=True)
class Patient:
    """A replica on a database of its own whose calls keep their place in a line of locks."""

    database_url: str
    replica: Replica

    @contextmanager
    def client(self) -> Iterator[tuple[Space, Any]]:
        """A fresh space with an async client."""
        space = spaces.create(self.database_url)
        yield space, space.async_client(self.replica.url)


@pytest.fixture(scope="session")
def patient(template, worker_name):
    """As a rule a call that waits for a lock for 500 ms gets in line anew. A test of the order in that line
    needs calls that stay in it."""
    with template.clone(f"patient_{worker_name}") as url:
        name = database.fetchval(url, "SELECT quote_ident(current_database())")
        sql = f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET lock_timeout = '{LOCK_TIMEOUT_S}s'"
        database.execute(url, sql)
        with Replica(url) as replica:
            yield Patient(url, replica)
