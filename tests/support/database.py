"""Databases for tests: one cluster per run, one migrated template in it, a clone wherever one is needed.

Blocking functions, for fixtures; they may be called with or without a running event loop.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from runstate_server import migrator
from runstate_server.embedded import EmbeddedPostgres
from runstate_server.foundation import db
from runstate_server.kernel import install
from tests.support import machine

TEMPLATE = "runstate_template"
CONNECT_S_MAX = 30
T = TypeVar("T")


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end on a thread of its own, whatever loop runs here."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextlib.asynccontextmanager
async def connected(url: str):
    """One connection to that database, closed at the end."""
    connection = await asyncpg.connect(url, timeout=CONNECT_S_MAX)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


def execute(url: str, sql: str, *args: Any) -> None:
    """Run one statement, or a script when there are no arguments."""

    async def run() -> None:
        async with connected(url) as connection:
            await connection.execute(sql, *args)

    blocking(run())


def fetch(url: str, sql: str, *args: Any) -> list[asyncpg.Record]:
    """All rows of one statement."""

    async def run() -> list[asyncpg.Record]:
        async with connected(url) as connection:
            return await connection.fetch(sql, *args)

    return blocking(run())


def fetchval(url: str, sql: str, *args: Any) -> Any:
    """The first column of the first row."""
    rows = fetch(url, sql, *args)
    return rows[0][0] if rows else None


def migrate(url: str, *, test_clock: bool = True) -> None:
    """What `runstate migrate` does, by the same code."""
    blocking(migrator.migrate_async(url, test_clock=test_clock))


@dataclass(frozen=True)
class Template:
    """A migrated database that nobody is connected to, named by its cluster. Travels to xdist's workers."""

    admin_url: str

    @contextlib.contextmanager
    def clone(self, name: str = "test") -> Iterator[str]:
        """A copy with the role's settings, dropped at the end whoever may still be connected to it."""
        database = f"{name}_{secrets.token_hex(4)}"
        execute(self.admin_url, f'CREATE DATABASE "{database}" TEMPLATE "{TEMPLATE}"')
        url = db.with_database(self.admin_url, database)
        try:
            blocking(_settings(url))
            yield url
        finally:
            execute(self.admin_url, f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    @contextlib.contextmanager
    def empty(self) -> Iterator[str]:
        """A database with nothing in it."""
        database = f"empty_{secrets.token_hex(4)}"
        execute(self.admin_url, f'CREATE DATABASE "{database}"')
        try:
            yield db.with_database(self.admin_url, database)
        finally:
            execute(self.admin_url, f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')


async def _settings(url: str) -> None:
    async with connected(url) as connection:
        await migrator._apply_role_settings(connection)


class Cluster:
    """A cluster in a temporary folder, its template migrated. start() needs the main thread. `settings` are
    PostgreSQL's own."""

    def __init__(self, pg_bin: Path | None = None, *, durable: bool = False, **settings: str) -> None:
        self._exits = contextlib.ExitStack()
        self._settings = settings
        named = os.environ.get("RUNSTATE_PG_BIN")  # the whole suite on another PostgreSQL
        self._pg_bin = pg_bin or (Path(named) if named else None)
        self._durable = durable

    def start(self) -> Template:
        """Start and migrate; cleans up after itself if that fails."""
        with contextlib.ExitStack() as exits:
            folder = exits.enter_context(machine.reachable_folder())
            self.postgres = EmbeddedPostgres(
                folder, pg_bin=self._pg_bin, durable=self._durable, settings=self._settings
            )
            exits.enter_context(self.postgres)
            admin_url = self.postgres.database_url("postgres")
            execute(admin_url, f'CREATE DATABASE "{TEMPLATE}"')
            migrate(self.postgres.database_url(TEMPLATE))
            self._exits = exits.pop_all()
        return Template(admin_url)

    def stop(self) -> None:
        """Stop the cluster and remove its folder."""
        self._exits.close()

    def __enter__(self) -> Template:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def kernel_schema() -> str:
    """The schema of the test build's functions: f"SELECT * FROM {kernel_schema()}.f(...)"."""
    return install.schema_name(test_clock=True)
