"""Order two calls that meet at a lock: hold the lock, wait until the other side waits, let go."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tests.support import database

PATIENCE_S = 15.0
_LOOK_S = 0.01
T = TypeVar("T")

_WAITING = """
SELECT a.pid FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.wait_event_type = 'Lock'
   AND ($1::int IS NULL OR a.pid = $1) AND ($2::int IS NULL OR $2 = ANY (pg_blocking_pids(a.pid)))
"""


async def until(probe: Callable[[], Awaitable[T]], *, patience_s: float = PATIENCE_S, what: str = "it") -> T:
    """The probe's first true answer; fails when none comes in time. A condition is watched, no time slept."""
    deadline = time.monotonic() + patience_s
    while not (answer := await probe()):
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_s:.0f} s"
        await asyncio.sleep(_LOOK_S)
    return answer


def until_blocking(probe: Callable[[], T], *, patience_s: float = PATIENCE_S, what: str = "it") -> T:
    """The same for plain code."""
    deadline = time.monotonic() + patience_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_s:.0f} s"
        time.sleep(_LOOK_S)
    return answer


@contextlib.asynccontextmanager
async def holding(database_url: str, sql: str, *args: Any) -> AsyncIterator[Any]:
    """A transaction that has run the statement and keeps its locks until the block ends (rolled back).
    Yields the connection."""
    async with database.connected(database_url) as connection:
        # The role's bounds on idle transactions are for the server, not for the one who holds a lock.
        await connection.execute("SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0")
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(sql, *args)
            yield connection
        finally:
            await transaction.rollback()


@contextlib.contextmanager
def reading(database_url: str, table: str) -> Iterator[None]:
    """A transaction that has read the table and stays open until the block ends, beside plain code."""
    begun, leave = threading.Event(), threading.Event()

    async def read() -> None:
        async with holding(database_url, f"SELECT 1 FROM {table} LIMIT 1"):
            begun.set()
            await asyncio.to_thread(leave.wait, PATIENCE_S * 4)

    with ThreadPoolExecutor(1) as thread:
        reader = thread.submit(asyncio.run, read())
        try:
            assert begun.wait(PATIENCE_S), reader.result(0)
            yield
        finally:
            leave.set()
            reader.result(PATIENCE_S)


async def until_waiting(
    database_url: str, *, pid: int | None = None, behind: int | None = None, count: int = 1
) -> list[int]:
    """Wait until `count` backends of this database wait for a lock; returns their process ids.
    `pid` asks for that backend, `behind` for those that wait for a lock of that backend."""
    async with database.connected(database_url) as connection:

        async def waiting() -> list[int]:
            pids = [row["pid"] for row in await connection.fetch(_WAITING, pid, behind)]
            return pids if len(pids) >= count else []

        return await until(waiting, what=f"{count} waiting for a lock")


async def backend_pid(connection: Any) -> int:
    """The process id of that connection's backend."""
    return await connection.fetchval("SELECT pg_backend_pid()")
