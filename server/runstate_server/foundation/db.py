"""The ways to the database: the pool of hot calls, the engine of listings, single connections of the floor.

What ails a database does not arrive as one error class; `trouble` knows all of them.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Any, Final
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
# The same for a report whose statements say by themselves where to look: with plans free, one on tables that
# have not been analysed yet may read them whole.
_PINNED_SETTINGS = {"plan_cache_mode": _REPORT_SETTINGS["plan_cache_mode"]}


def _set(settings: dict[str, str]) -> str:
    return "SELECT " + ", ".join(f"set_config('{k}', '{v}', true)" for k, v in settings.items())


_FREE_PLANS = _set(_REPORT_SETTINGS)
_ROLE_PLANS = _set({name: ROLE_SETTINGS[name] for name in _REPORT_SETTINGS})
_PINNED_PLANS = _set(_PINNED_SETTINGS)


class Trouble(StrEnum):
    """What time may clear, by what it means for the statement that met it."""

    LOST = "lost"  # the connection broke or gave no answer: if the statement had been sent, nobody knows
    UNFIT = "unfit"  # no database to serve from: read only, empty, of other builds, closed to us
    FULL = "full"  # rolled back: out of connections, disk, memory
    BUSY = "busy"  # rolled back: a deadlock's victim, a lock or statement that took too long


# By the first characters of SQLSTATE, longest first: 57P01 says more than 57.
_STATES: Final = {
    "08": Trouble.LOST,
    "57P01": Trouble.LOST,
    "57P02": Trouble.LOST,
    "57P03": Trouble.LOST,
    "57P05": Trouble.LOST,
    "25006": Trouble.UNFIT,  # a standby, a demoted primary
    "28": Trouble.UNFIT,  # the role or its password is refused
    "3D000": Trouble.UNFIT,  # no such database; 57P04: it has just been dropped
    "57P04": Trouble.UNFIT,
    "3F000": Trouble.UNFIT,  # the functions of this build are not there; 42P01, 42703: nor are its tables
    "42P01": Trouble.UNFIT,
    "42703": Trouble.UNFIT,
    "53": Trouble.FULL,
    "58": Trouble.FULL,  # disk errors
    "40P01": Trouble.BUSY,
    "40001": Trouble.BUSY,
    "55P03": Trouble.BUSY,
    "57014": Trouble.BUSY,
}


def with_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    parts = urlsplit(dsn)
    query = urlencode([(k, v) for k, v in parse_qsl(parts.query) if k not in ("dbname", "database")])
    return urlunsplit((parts.scheme, parts.netloc, "/" + name, query, parts.fragment))


def trouble(error: BaseException) -> Trouble | None:
    """What this error means; None for a defect, which no other try will clear."""
    error = _driver_error(error)
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return _STATES.get(state) or _STATES.get(state[:2])
    if isinstance(error, ValueError):
        return None  # asyncpg's DataError, an InterfaceError all the same: an argument of ours does not fit
    known = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError)
    return Trouble.LOST if known else None


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
    if isinstance(error.__cause__, asyncpg.PostgresError):
        error = error.__cause__  # what `borrowed` made a refused connection of
    lines = str(error).splitlines() or [type(error).__name__]
    return f"the database cannot be reached: {lines[0]}"


def named(error: BaseException) -> str:
    """The error in a word for the log. Its text may hold what a user sent, so that is left out."""
    error = _driver_error(error)
    state = getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {state}" if state else type(error).__name__


def _driver_error(error: BaseException) -> BaseException:
    """What the driver said, from under SQLAlchemy's wrapping; waiting in vain for its pool is a time-out."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return TimeoutError() if isinstance(error, PoolTimeoutError) else error


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that notices when the other side no longer acknowledges what is sent to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        wire = self._transport.get_extra_info("socket")
        if wire is not None and wire.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, bounds.unacknowledged_ms_max)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109  asyncpg's own signature
        """Close, at once where a goodbye is not heard; the pool does so in tasks that nobody looks after."""
        with contextlib.suppress(Exception):  # it has been cut then
            await super().close(timeout=min(timeout or bounds.close_s_max, bounds.close_s_max))


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
        connection_class=_Connection,
        timeout=bounds.connect_timeout_s,
        statement_cache_size=200 if named_statements else 0,
        server_settings={"application_name": "runstate"},
    )


@contextlib.asynccontextmanager
async def borrowed(pool: Any, *, within_s: float) -> AsyncIterator[Any]:
    """A connection of the pool, had within so many seconds. One that gave no answer in time, or whose
    database turned out unfit, is cut, and so are all that the pool still has: they lead to the same place,
    while new ones may lead to another. A cancelled statement costs its connection too: to wait until a
    database that hangs has heard of it would be to hang as well."""
    try:
        connection = await pool.acquire(timeout=within_s)
    except asyncpg.PostgresError as error:
        if trouble(error) is not None:
            raise
        raise ConnectionRefusedError(named(error)) from error  # it lets nobody in, for a reason of its own
    try:
        yield connection
    except BaseException as error:
        if _is_dead_end(error):
            connection.terminate()
            await pool.expire_connections()
        elif not isinstance(error, Exception):
            connection.terminate()
        raise
    finally:
        await pool.release(connection)


def _is_dead_end(error: BaseException) -> bool:
    return isinstance(_driver_error(error), TimeoutError) or trouble(error) is Trouble.UNFIT


async def connect(dsn: str, *, named_statements: bool = True) -> Any:
    """One connection of its own (listener, notifier, migrator)."""
    return await asyncpg.connect(
        dsn,
        connection_class=_Connection,
        timeout=bounds.connect_timeout_s,
        statement_cache_size=100 if named_statements else 0,
        server_settings={"application_name": "runstate"},
    )


def open_engine(dsn: str, *, named_statements: bool = True, **options: Any) -> AsyncEngine:
    """SQLAlchemy's engine for listings, reports and revisions; parameters never show in its errors. `options`
    instead of its pool. The driver reads the URL, as for all other connections: SQLAlchemy does not know
    sslmode and its like."""
    args: dict[str, Any] = {
        "dsn": dsn,
        "timeout": bounds.connect_timeout_s,
        "connection_class": _Connection,
    }
    if not named_statements:
        args |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    pool = options or {"pool_size": 2, "max_overflow": 2, "pool_timeout": 2}
    return create_async_engine("postgresql+asyncpg://", hide_parameters=True, connect_args=args, **pool)


async def pin(connection: AsyncConnection) -> None:
    """From here on the report plans as the kernel does, and keeps its plans: for functions that are called
    for each row of a page. PostgreSQL 18 would otherwise plan what is in them for each row anew."""
    await connection.execute(text(_ROLE_PLANS))


@contextlib.asynccontextmanager
async def report(engine: AsyncEngine, *, pinned: bool = False) -> AsyncIterator[AsyncConnection]:
    """A read-only transaction on one snapshot, for listings, which no lease depends on. Functions that a row
    calls would otherwise see a later moment than the row. The planner is free to choose, or, with `pinned`,
    bound to indexes and to the order in which joins are written."""
    try:
        connection = await engine.connect()
    except DBAPIError as error:
        if trouble(error) is not None:
            raise
        raise ConnectionRefusedError(named(error)) from error
    try:
        await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        await connection.execute(text(_PINNED_PLANS if pinned else _FREE_PLANS))
        yield connection
    except Exception as error:
        if _is_dead_end(error):
            await connection.invalidate()
        raise
    finally:
        await asyncio.shield(connection.close())
