"""The kernel's functions called straight, on connections of their own: ten thousand rounds in seconds."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.support import database


@dataclass(frozen=True)
class Told:
    """A reply: the code of a refusal or None, its facts, whom it wakes and on what its caller may sleep."""

    code: str | None
    status: int | None
    facts: Any
    wake: list[str]
    sleep: list[str]


@dataclass(frozen=True)
class Raw:
    """One connection; its calls raise where the database does, so that no repetition hides anything."""

    connection: asyncpg.Connection
    schema: str
    space_id: str

    async def __call__(self, function: str, *args: Any) -> Told:
        places = ", ".join(f"${i + 2}" for i in range(len(args)))
        row = await self.connection.fetchrow(
            f"SELECT code, status, facts, wake, sleep FROM {self.schema}.{function}($1, {places})",
            self.space_id,
            *args,
        )
        facts = json.loads(row["facts"]) if row["facts"] else None
        return Told(row["code"], row["status"], facts, row["wake"] or [], row["sleep"] or [])

    async def made(self, function: str, *args: Any) -> uuid.UUID:
        """The id of what a function makes, which has its own second argument as the id."""
        told = await self(function, *args, None, None)
        assert told.code is None, told
        return uuid.UUID(told.facts["id"])

    async def scope(self) -> uuid.UUID:
        """A new run."""
        return await self.made("scope_create", uuid.uuid4(), None, None, None, 100, 32)

    async def pool(self, units: int, name: str = "browsers") -> uuid.UUID:
        """A new pool."""
        return await self.made("pool_create", uuid.uuid4(), name, units)

    async def acquire(self, pool: uuid.UUID, run: uuid.UUID, waiter: uuid.UUID | None = None) -> Told:
        """Take one unit, under the token `t`."""
        grant = uuid.uuid4()
        return await self("permit_acquire", pool, run, grant, 1, "h", "s", 3600.0, waiter, "t", None, None)

    async def release(self, grant: Any) -> Told:
        """Give it back."""
        return await self("grant_release", uuid.UUID(str(grant)), "t", None, None, None)

    async def wait(self, pool: uuid.UUID, run: uuid.UUID, ttl_s: float = 3600.0) -> uuid.UUID:
        """Join the line for one unit; returns the waiter."""
        waiter = uuid.uuid4()
        told = await self("permit_wait", pool, run, waiter, 1, "h", ttl_s, None, None)
        assert told.code is None, told
        return waiter

    async def admit(
        self, mailbox: uuid.UUID, run: uuid.UUID, wait_s: float = 0.0, count: int = 1
    ) -> tuple[Told, list[tuple[str, str]]]:
        """Admit tasks; returns the reply, and message and token of each."""
        tokens = [uuid.uuid4().hex for _ in range(count)]
        grants = [uuid.uuid4().hex for _ in range(4 * count)]
        while True:
            told = await self(
                "message_take",
                mailbox,
                run,
                True,
                "tasks",
                "h",
                "s",
                3600.0,
                tokens,
                grants,
                wait_s,
                None,
                None,
            )
            if told.code != "AGAIN":
                break
        taken = [] if told.status == 204 else told.facts["admitted"]
        return told, [(t["messageId"], t["token"]) for t in taken]

    async def complete(self, message: str, token: str) -> Told:
        """Record an outcome."""
        return await self(
            "message_complete", uuid.UUID(message), token, "1", uuid.uuid4(), None, None, None, None, None
        )


@contextlib.asynccontextmanager
async def connections(url: str, schema: str, space_id: str, count: int) -> AsyncIterator[list[Raw]]:
    """So many of them."""
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(database.connected(url)) for _ in range(count)]
        await asyncio.gather(*[c.execute("SET synchronous_commit = off") for c in opened])
        yield [Raw(c, schema, space_id) for c in opened]
