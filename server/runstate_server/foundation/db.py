"""The ways to the database: the pool of hot calls, the engine of listings, single connections of the floor.

A lost connection does not arrive as one error class; `is_lost` knows all of them.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql import text

from runstate_server.foundation import bounds

# Settings of the role that calls the kernel (kernel.md, sections 2 and 4): bounded waits, and plans pinned to
# the indexes and to the order in which joins are written, since one made while a table was empty would
# otherwise stay: it began with the scope and read all messages in it to find the one that was asked for.
ROLE_SETTINGS: dict[str, str] = {
    "statement_timeout": f"{bounds.statement_timeout_ms}ms",
    "lock_timeout": f"{bounds.lock_timeout_ms}ms",
    "client_connection_check_interval": "1s",
    "idle_in_transaction_session_timeout": "10s",
    "default_transaction_isolation": "read committed",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "join_collapse_limit": "1",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}

# What the role's settings are for a report or listing, in its own transaction.
_REPORT_SETTINGS = {
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "on",
    "enable_bitmapscan": "on",
    "enable_sort": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
    "enable_material": "on",
    "join_collapse_limit": "8",
}
_FREE_PLANS = "SELECT " + ", ".join(f"set_config('{k}', '{v}', true)" for k, v in _REPORT_SETTINGS.items())

_LOST_STATES = ("08", "57P01", "57P02", "57P03", "25006")


def with_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    parts = urlsplit(dsn)
    query = urlencode([(k, v) for k, v in parse_qsl(parts.query) if k not in ("dbname", "database")])
    return urlunsplit((parts.scheme, parts.netloc, "/" + name, query, parts.fragment))


def is_lost(error: BaseException) -> bool:
    """Whether this error means that the connection went away, or could not be had: the outcome may be
    unknown."""
    error = _driver_error(error)
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_LOST_STATES)
    if isinstance(error, ValueError):
        return False  # asyncpg's DataError, an InterfaceError all the same: an argument of ours does not fit
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError)


# What comes of a URL that leads to no database, whoever may be at fault: network, password, name, parameters.
CONNECT_ERRORS = (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError)


def unreachable(error: BaseException) -> str:
    """What to tell a person of one of the CONNECT_ERRORS, in one line that repeats nothing of the URL that
    may be its password."""
    if isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError):
        return (
            "the database's URL cannot be read; it should be postgresql://user:password@host:port/name, with "
            "special characters percent-encoded"
        )
    lines = str(error).splitlines() or [type(error).__name__]
    return f"the database cannot be reached: {lines[0]}"


def is_rolled_back(error: BaseException) -> bool:
    """Whether this error is a certain rollback that another try may clear: a deadlock's victim (40P01), a
    serialisation failure (40001), a lock (55P03) or statement (57014) that took too long."""
    error = _driver_error(error)
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in ("40P01", "40001", "55P03", "57014")


def _driver_error(error: BaseException) -> BaseException:
    """What the driver said, from under SQLAlchemy's wrapping; waiting in vain for its pool is a time-out."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return TimeoutError() if isinstance(error, PoolTimeoutError) else error


async def _no_reset(_: Any) -> None:
    """Kernel calls leave no session state behind, so a connection goes back without the reset's round
    trip."""


async def open_pool(
    dsn: str, *, size: int, named_statements: bool, greet: Callable[[Any], Awaitable[None]] | None = None
) -> Any:
    """The pool of the kernel's calls: at most `size` connections, opened when needed, each shown to `greet`
    before it serves. Makes no connection yet."""
    return await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=size,
        init=greet,
        reset=_no_reset,
        timeout=bounds.connect_timeout_s,
        statement_cache_size=200 if named_statements else 0,
        server_settings={"application_name": "runstate"},
    )


async def connect(dsn: str, *, named_statements: bool = True) -> Any:
    """One connection of its own (listener, notifier, migrator)."""
    return await asyncpg.connect(
        dsn,
        timeout=bounds.connect_timeout_s,
        statement_cache_size=100 if named_statements else 0,
        server_settings={"application_name": "runstate"},
    )


def open_engine(dsn: str, *, named_statements: bool = True, **options: Any) -> AsyncEngine:
    """SQLAlchemy's engine for listings, reports and revisions; parameters never show in its errors. `options`
    instead of its pool. The driver reads the URL, as for all other connections: SQLAlchemy does not know
    sslmode and its like."""
    args: dict[str, Any] = {"dsn": dsn, "timeout": bounds.connect_timeout_s}
    if not named_statements:
        args |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    pool = options or {"pool_size": 2, "max_overflow": 2, "pool_timeout": 2}
    return create_async_engine("postgresql+asyncpg://", hide_parameters=True, connect_args=args, **pool)


@contextlib.asynccontextmanager
async def report(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A read-only transaction on one snapshot, with the planner free to choose; for listings, which no lease
    depends on. Functions that a row calls would otherwise see a later moment than the row."""
    async with engine.connect() as connection:
        await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        await connection.execute(text(_FREE_PLANS))
        yield connection
