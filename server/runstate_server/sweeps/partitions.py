"""The journal's days: partitions made ahead, and dropped once they are older than the retention.

Dropping cannot be a kernel function: DETACH ... CONCURRENTLY runs in no transaction. It waits for readers and
lets everybody else go on; what it could not do, the next round tries again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from runstate_server.foundation import bounds, db
from runstate_server.foundation.db import Trouble
from runstate_server.kernel.call import Kernel

log = logging.getLogger("runstate.partitions")
_ROUND_S: Final = 600.0
_SETTINGS: Final = "SET lock_timeout = '5s'; SET statement_timeout = '60s'"
_ANSWER_S_MAX: Final = 75.0  # longer than any statement may take
_LOCK: Final = 5_480_128_231_917_264_853  # any constant serves: one replica drops at a time


class Partitions:
    """Keeps the days of the journal in stock, in rounds of ten minutes."""

    def __init__(self, kernel: Kernel, dsn: str, *, keep_days: int) -> None:
        self._kernel = kernel
        self._dsn = dsn
        self._keep_days = keep_days
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.create_task(self._loop(), name="partitions")

    async def stop(self) -> None:
        """End; an interrupted detachment is finished by a later round."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            try:
                await self.round()
            except Exception as error:
                if db.trouble(error) is None:
                    log.exception("the journal's partitions could not be kept")
            await asyncio.sleep(_ROUND_S)

    async def round(self) -> None:
        """Make the days ahead, drop the outdated ones."""
        await self._kernel.step("journal_ahead", bounds.journal_days_ahead)
        outdated = await self._kernel.rows("journal_outdated", self._keep_days)
        if not outdated:
            return
        async with _alone(self._dsn) as connection:
            if connection is not None:
                for row in outdated:
                    await self._drop(connection, row["name"], row["state"])

    async def _drop(self, connection: Any, name: str, state: str) -> None:
        table = f"runstate.{name}"
        run = partial(connection.execute, timeout=_ANSWER_S_MAX)
        try:
            if state == "attached":
                await run(f"ALTER TABLE runstate.journal DETACH PARTITION {table} CONCURRENTLY")
            elif state == "pending":
                await run(f"ALTER TABLE runstate.journal DETACH PARTITION {table} FINALIZE")
            await run(f"DROP TABLE {table}")
        except Exception as error:
            if db.trouble(error) is not Trouble.BUSY:
                raise
            log.info("%s is still being read and is dropped in a later round", name)
        else:
            self.dropped += 1
            log.info("dropped %s: its events are older than %d days", name, self._keep_days)


@contextlib.asynccontextmanager
async def _alone(dsn: str) -> Any:
    """A connection that alone drops partitions; None when another replica is at it."""
    connection = await db.connect(dsn)
    try:
        await connection.execute(_SETTINGS, timeout=_ANSWER_S_MAX)
        held: Callable[..., Any] = connection.fetchval
        lock = "SELECT pg_try_advisory_lock($1)"
        yield connection if await held(lock, _LOCK, timeout=_ANSWER_S_MAX) else None
    finally:
        await connection.close(timeout=bounds.listener_timeout_s)
