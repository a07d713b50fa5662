"""`runstate migrate`: tables by alembic, functions by the installer, the role's settings; one runner at a
time.

Two replicas that start at once may both call it: the second waits for the first and finds nothing left to do.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.pool import NullPool

from runstate_server.foundation import db
from runstate_server.kernel import install

_LOCK = 7_306_086_960_911_021_907  # "runstate" in no particular code; any constant serves
_LOCK_WAIT_S = 120.0


class MigrationError(Exception):
    """The database cannot be migrated; the text is one line that says why."""


def revisions_dir() -> Path:
    """The migrations that came with the package, else those of the repository it runs from."""
    here = Path(__file__).resolve().parent
    for folder in (here / "migrations", here.parent.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise MigrationError("the migrations folder is missing from this installation")


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(revisions_dir()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def head_revision() -> str:
    """The newest revision this build knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise MigrationError("the migrations folder holds no revision")
    return head


@contextlib.asynccontextmanager
async def _alone(dsn: str) -> AsyncIterator[Any]:
    """A connection that holds the migrator's lock, tried for a bounded time."""
    try:
        connection = await db.connect(dsn)
    except db.CONNECT_ERRORS as error:
        raise MigrationError(db.unreachable(error)) from error
    try:
        await connection.execute("SET lock_timeout = 0; SET statement_timeout = 0")
        deadline = asyncio.get_running_loop().time() + _LOCK_WAIT_S
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            if asyncio.get_running_loop().time() > deadline:
                raise MigrationError(f"another migration has been running for {_LOCK_WAIT_S:.0f} s")
            await asyncio.sleep(0.2)
        yield connection
    finally:
        await connection.close()


async def _revise(dsn: str, target: str) -> None:
    engine = db.open_engine(dsn, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(lambda sync: _run(sync, target))
            await connection.commit()
    finally:
        await engine.dispose()


def _run(connection: Connection, target: str) -> None:
    move = command.downgrade if target == "base" else command.upgrade
    move(_config(connection), target)


async def migrate_async(dsn: str, *, test_clock: bool = False) -> None:
    """Bring tables, functions and role settings to this build. Harmless to repeat. Raises MigrationError."""
    async with _alone(dsn) as connection:
        await connection.execute("CREATE SCHEMA IF NOT EXISTS runstate")
        await _revise(dsn, "head")
        await install.install(connection, test_clock=test_clock)
        await _apply_role_settings(connection)


async def downgrade_async(dsn: str) -> None:
    """Take all tables away again. For tests of the revisions; functions stay, they are nobody's tables."""
    async with _alone(dsn):
        await _revise(dsn, "base")


def migrate(database_url: str, *, test_clock: bool = False) -> None:
    """`migrate_async`, run to its end."""
    asyncio.run(migrate_async(database_url, test_clock=test_clock))


async def _apply_role_settings(connection: Any) -> None:
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    for name, value in db.ROLE_SETTINGS.items():
        await connection.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = '{value}'")


def apply_role_settings(database_url: str) -> None:
    """Give the connecting role its settings in this database: a clone of a migrated database comes without
    them."""

    async def apply() -> None:
        async with _alone(database_url) as connection:
            await _apply_role_settings(connection)

    asyncio.run(apply())


async def behind(connection: Any, *, test_clock: bool) -> str | None:
    """Why this build cannot serve from this database, in one line that names the command; None when it
    can."""
    revision = None
    if await connection.fetchval("SELECT to_regclass('runstate.alembic_version') IS NOT NULL"):
        revision = await connection.fetchval("SELECT version_num FROM runstate.alembic_version")
    if revision is None:
        return "the database holds no Runstate tables; run `runstate migrate` first"
    known = {r.revision for r in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision in known and revision != head_revision():
        head = head_revision()
        return f"the database is at revision {revision}, this build needs {head}; run `runstate migrate`"
    if not await install.is_installed(connection, install.schema_name(test_clock=test_clock)):
        return "the database lacks the functions of this build; run `runstate migrate`"
    return None
