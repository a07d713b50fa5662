"""A storm over the kernel's functions: producers, takers, settlers, cancels, redrives, lapses and sweeps at
once, over several connections. What was acknowledged is written down, to be held against the tables
afterwards."""

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from runstate_server.foundation import db
from runstate_server.foundation.errors import Refusal
from runstate_server.kernel.call import Kernel, Reply
from tests.support import database, spaces

CONNECTIONS = 10
LEASE_S = 20.0
STEP_S = 21.0  # how far the clock is moved at a time
ATTEMPTS_MAX = 3
SWEEPS = ("message_sweep", "scope_sweep", "scope_tidy_sweep")


@contextlib.asynccontextmanager
async def kernel(url: str, *, connections: int = CONNECTIONS):
    """The server's own seam on a pool of its own: certain rollbacks are repeated, all else is raised."""
    pool = await db.open_pool(url, size=connections, named_statements=True)
    try:
        yield Kernel(pool, schema=database.kernel_schema(), outage_wait_s=20, committed=lambda _: None)
    finally:
        await pool.close()


@dataclass
class World:
    """A space with two runs, scopes down to depth 4, and mailboxes of each kind."""

    kernel: Kernel
    space: str
    roots: list[uuid.UUID] = field(default_factory=list)
    scopes: list[uuid.UUID] = field(default_factory=list)
    work: list[uuid.UUID] = field(default_factory=list)
    inboxes: list[uuid.UUID] = field(default_factory=list)

    @classmethod
    async def create(cls, kernel: Kernel, url: str) -> "World":
        world = cls(kernel, spaces.create(url).id)
        await world.fill()
        return world

    async def fill(self) -> None:
        for _ in range(2):
            top = await self.scope(None)
            self.roots.append(top)
            child, other = await self.scope(top), await self.scope(top)
            deep = await self.scope(await self.scope(child))
            self.scopes += [top, child, other, deep, await self.scope(deep)]
        self.work = [await self.mailbox("work"), await self.mailbox("limited", limit=25)]
        self.inboxes = [await self.mailbox(name, mode="INBOX") for name in ("one", "two")]

    async def scope(self, parent: uuid.UUID | None) -> uuid.UUID:
        made = await self.call("scope_create", uuid.uuid4(), None, parent, None, 100, 32)
        return uuid.UUID(made.facts["id"])

    async def mailbox(self, name: str, *, mode: str = "WORK", limit: int | None = None) -> uuid.UUID:
        made = await self.call("mailbox_create", uuid.uuid4(), name, mode, limit, ATTEMPTS_MAX, None)
        return uuid.UUID(made.facts["id"])

    async def call(self, function: str, *args: Any) -> Reply:
        return await self.kernel.call(function, self.space, *args)

    async def sweep(self) -> None:
        for function in SWEEPS:
            with contextlib.suppress(Exception):  # a sweep waits for nothing and may come again
                await self.kernel.step(function, 50)

    @property
    def boxes(self) -> list[uuid.UUID]:
        return self.work + self.inboxes


@dataclass
class Storm:
    """What was acknowledged to its callers."""

    world: World
    chance: random.Random
    sent: set[uuid.UUID] = field(default_factory=set)
    tasks: set[uuid.UUID] = field(default_factory=set)
    acked: Counter[uuid.UUID] = field(default_factory=Counter)
    dead: Counter[uuid.UUID] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    def noted(self, reply: Reply) -> bool:
        """Whether it was done; a refusal is counted."""
        if reply.code is not None:
            self.refusals[reply.code] += 1
        return reply.code is None

    # Producers

    async def produce(self) -> None:
        kind = self.chance.random()
        if kind < 0.4:
            await self._send()
        else:
            await self._submit(1 if kind < 0.7 else self.chance.randint(2, 6))

    async def _send(self) -> None:
        c, w = self.chance, self.world
        key = f"w{c.randrange(40)}" if c.random() < 0.2 else None
        reply = await w.call(
            "message_send",
            uuid.uuid4(),
            c.choice(w.boxes),
            c.choice(w.scopes),
            "1",
            key,
            await self._deadline(),
            c.randint(-1, 1),
            c.choice([0.0, 0.0, 0.05]),
        )
        if self.noted(reply):
            self.sent.add(uuid.UUID(reply.facts["id"]))

    async def _submit(self, count: int) -> None:
        c, w = self.chance, self.world
        deadlines = [await self._deadline() for _ in range(count)]
        reply = await w.call(
            "task_submit",
            [uuid.uuid4() for _ in range(count)],
            [c.choice(w.scopes) for _ in range(count)],
            [c.choice(w.boxes) for _ in range(count)],
            [f"t{c.randrange(400)}" for _ in range(count)],
            ["2"] * count,
            deadlines,
            [c.randint(-1, 1) for _ in range(count)],
            [c.choice([0.0, 0.0, 0.05]) for _ in range(count)],
            [None] * count,
            [None] * count,
            [None] * count,
            False,
        )
        if self.noted(reply):
            made = {uuid.UUID(t["taskId"]) for t in reply.facts["tasks"]}
            self.sent |= made
            self.tasks |= made

    async def _deadline(self) -> Any:
        if self.chance.random() > 0.05:
            return None
        row = await self.world.kernel.step("kernel_now")
        return row[0] + timedelta(seconds=STEP_S)

    # Takers

    async def consume(self, *, faithful: bool = False) -> int:
        """Take up to four and settle each somehow; `faithful`: complete them all. Returns how many."""
        c, w = self.chance, self.world
        form = c.choice(["message", "message", "task", "tasks"])
        tokens = [uuid.uuid4().hex for _ in range(c.randint(1, 4) if form == "tasks" else 1)]
        below = c.random() < 0.7
        where = c.choice(w.scopes)
        return await self._take(c.choice(w.boxes), where, form, tokens, below=below, faithful=faithful)

    async def drain(self, box: uuid.UUID, root: uuid.UUID) -> int:
        """Complete one message from anywhere in that run."""
        return await self._take(box, root, "message", [uuid.uuid4().hex], below=True, faithful=True)

    async def _take(self, box: Any, where: Any, form: str, tokens: list[str], *, below: bool, faithful: bool):
        reply = await self.world.call(
            "message_take", box, where, below, form, "h", "s", LEASE_S, tokens, [], 0.0
        )
        if not self.noted(reply) or reply.status == 204:
            return 0
        facts = reply.facts
        told = {
            "message": lambda: [(facts["message"]["id"], facts["token"])],
            "task": lambda: [(facts["messageId"], facts["token"])],
            "tasks": lambda: [(t["messageId"], t["token"]) for t in facts["admitted"]],
        }[form]()
        for message, token in told:
            await (self._complete if faithful else self._settle)(uuid.UUID(message), token)
        return len(told)

    async def _settle(self, message: uuid.UUID, token: str) -> None:
        how = self.chance.random()
        if how < 0.5:
            await self._complete(message, token, replies=how < 0.2)
        elif how < 0.75:
            await self._nack(message, token, retry=how < 0.7, hand_back=how > 0.72)
        elif how < 0.85:
            self.noted(await self.world.call("message_renew", message, token, None))
            await self._complete(message, token)
        # Else it is abandoned, and lapses.

    async def _complete(self, message: uuid.UUID, token: str, *, replies: bool = False) -> None:
        c, w = self.chance, self.world
        to = c.choice(w.boxes) if replies else None
        where = c.choice([None, c.choice(w.scopes)]) if replies else None
        key = f"r{c.randrange(40)}" if replies and c.random() < 0.3 else None
        reply = await w.call("message_complete", message, token, "3", uuid.uuid4(), to, where, key)
        if self.noted(reply):
            self.acked[message] += 1
            if replies:
                self.sent.add(uuid.UUID(reply.facts["replyId"]))

    async def _nack(self, message: uuid.UUID, token: str, *, retry: bool, hand_back: bool) -> None:
        reply = await self.world.call("message_nack", message, token, retry, "boom", 0.0, hand_back)
        if self.noted(reply) and reply.facts["state"] == "DEAD":
            self.dead[message] += 1

    # Others

    async def meddle(self) -> None:
        """Cancel a task, redrive a message of a WORK mailbox, move the clock, sweep."""
        kind = self.chance.random()
        if kind < 0.3 and self.tasks:
            self.noted(await self.world.call("task_cancel", self.chance.choice(sorted(self.tasks)), None))
        elif kind < 0.5 and self.dead:
            self.noted(await self.world.call("message_redrive", self.chance.choice(sorted(self.dead))))
        elif kind < 0.6:
            await self.later()
        else:
            await self.world.sweep()

    async def later(self) -> None:
        table = f"{database.kernel_schema()}.test_clock"
        async with self.world.kernel.pool.acquire() as connection:
            await connection.execute(
                f"UPDATE {table} SET shift = shift + $1::interval", timedelta(seconds=STEP_S)
            )

    async def cancel_scope(self, scope: uuid.UUID) -> None:
        self.noted(await self.world.call("scope_end", scope, "CANCELLED"))

    async def rage(self, steps: int) -> None:
        """All at once, each for so many steps; half way a child scope is cancelled."""

        async def repeat(act: Any, times: int = steps) -> None:
            for _ in range(times):
                await act()

        async def cancel_half_way() -> None:
            await repeat(self.meddle, steps // 2)
            await self.cancel_scope(self.world.scopes[1])
            await repeat(self.meddle, steps // 2)

        acts = [self.produce] * 4 + [self.consume] * 5
        await asyncio.gather(cancel_half_way(), *[repeat(act) for act in acts])


async def counters(url: str) -> Counter[str]:
    """Deadlocks and rollbacks of the database so far; its connections must have been closed."""
    async with database.connected(url) as connection:
        row = await connection.fetchrow(
            "SELECT deadlocks, xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
    return Counter(dict(row))


__all__ = ["ATTEMPTS_MAX", "Refusal", "Storm", "World", "counters", "kernel"]
