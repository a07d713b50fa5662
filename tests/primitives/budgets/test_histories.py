"""Budgets against their model, at the kernel: whatever is asked in whatever order, every answer is the
model's, settled and reserved never exceed the limit, and the ledger's sums are the view's.

500 histories of 40 steps, the same ones every time; SCALE=10 in the environment: others, ten times as many.
"""

import json
import os
import random
import uuid
from datetime import timedelta

import pytest

from tests.primitives.budgets.model import Books, RefusedError
from tests.support import database, spaces

SCALE = int(os.environ.get("SCALE", "1"))
HISTORIES, STEPS = 500 * SCALE, 40
LIMIT_MAX = 10**18
SUMS = """
SELECT b.reserved_minor, b.settled_minor, b.overrun_minor, b.limit_minor,
       COALESCE(sum(e.reserved_change), 0)::bigint, COALESCE(sum(e.settled_change), 0)::bigint,
       COALESCE(sum(e.overrun_change), 0),
       (SELECT COALESCE(sum(r.reserved_minor) FILTER (WHERE r.held), 0)::bigint
          FROM runstate.budget_reservations r WHERE r.space_id = b.space_id AND r.budget_id = b.id)
  FROM runstate.budgets b
  LEFT JOIN runstate.budget_entries e ON e.space_id = b.space_id AND e.budget_id = b.id
 WHERE b.space_id = $1 AND b.id = $2 GROUP BY b.space_id, b.id
"""
LINES = """
SELECT e.kind, e.amount_minor FROM runstate.budget_entries e WHERE e.space_id = $1 AND e.budget_id = $2
 ORDER BY e.seq
"""


class History:
    """One budget, in the database and in the model."""

    def __init__(self, connection, kernel, space_id, scope_id, start, chance):
        self.sql, self.kernel, self.space_id, self.scope_id = connection, kernel, space_id, scope_id
        self.start, self.chance = start, chance
        self.id = uuid.uuid4()
        self.now = 0.0
        self.size = chance.choice([10, 1000, LIMIT_MAX])
        self.books = Books(chance.randint(0, self.size), hold_stale=chance.random() < 0.3)
        self.keys = [f"key-{n}" for n in range(30)]

    async def call(self, function, *args):
        places = ", ".join(f"${n}" for n in range(1, len(args) + 2))
        row = await self.sql.fetchrow(
            f"SELECT code, facts FROM {self.kernel}.{function}({places})", self.space_id, *args
        )
        return row["code"], json.loads(row["facts"])

    async def agree(self, function, *args, expected):
        """The function answers what the model's verb gives or raises."""
        code, facts = await self.call(function, *args)
        self.books.time(self.now)
        answer, refusal = {}, None
        try:
            answer = expected()
        except RefusedError as error:
            refusal = error.code
        assert code == refusal, (facts, answer)
        assert refusal is not None or facts.items() >= answer.items(), (facts, answer)

    def amount(self):
        return self.chance.choice([0, 1, self.chance.randint(0, max(1, self.size // 4)), self.size])

    def reservation(self):
        return self.chance.choice(list(self.books.reservations) or [None])

    async def step(self):
        verb = self.chance.choice(
            ["reserve", "reserve", "settle", "settle", "settle", "void", "change", "time"]
        )
        name = self.reservation()
        if name is None and verb in {"settle", "void"}:
            verb = "reserve"
        await getattr(self, verb)(name)
        await self.check()

    async def reserve(self, _):
        name, amount = uuid.uuid4(), max(1, self.amount())
        settle_by = self.now + self.chance.choice([500, 1500]) if self.chance.random() < 0.5 else None
        at = None if settle_by is None else self.start + timedelta(seconds=settle_by)
        await self.agree(
            "budget_reserve",
            *(self.id, name, self.scope_id, "ann", amount, at, None, None),
            expected=lambda: self.books.reserve(str(name), amount, settle_by),
        )

    async def settle(self, name):
        amount, key, overrun = self.amount(), self.chance.choice(self.keys), self.chance.random() < 0.4
        await self.agree(
            "budget_settle",
            *(self.id, uuid.UUID(name), amount, key, overrun, None, None),
            expected=lambda: self.books.settle(name, amount, key, allow_overrun=overrun),
        )

    async def void(self, name):
        key = self.chance.choice(self.keys)
        await self.agree(
            "budget_void",
            *(self.id, uuid.UUID(name), key, None, None),
            expected=lambda: self.books.void(name, key),
        )

    async def change(self, _):
        limit = min(LIMIT_MAX, self.chance.randint(0, 2 * self.size))
        await self.agree(
            "budget_limit", self.id, limit, None, None, expected=lambda: self.books.change(limit)
        )

    async def time(self, _):
        """A thousand seconds; times to settle by end half way between."""
        self.now += 1000
        await self.sql.execute(f"UPDATE {self.kernel}.test_clock SET shift = shift + interval '1000 seconds'")
        if self.chance.random() < 0.3:
            await self.sql.fetch(f"SELECT count FROM {self.kernel}.budget_sweep(100)")
        self.books.time(self.now)

    async def check(self):
        _, seen = await self.call("budget_view", self.id)
        assert seen.items() >= self.books.view().items(), (seen, self.books)
        states = {r["id"]: (r["state"], r["reservedMinor"]) for r in seen["reservations"]}
        assert states == {n: (r.state, str(r.held)) for n, r in self.books.reservations.items()}
        *stored, limit, reserved, settled, overrun, held = await self.sql.fetchrow(
            SUMS, self.space_id, self.id
        )
        assert stored == [reserved, settled, overrun]
        assert reserved == held
        assert reserved + settled <= limit

    async def finish(self):
        await self.sql.fetch(f"SELECT count FROM {self.kernel}.budget_sweep(1000)")
        lines = [tuple(row) for row in await self.sql.fetch(LINES, self.space_id, self.id)]
        assert sorted(lines) == sorted(self.books.lines)  # those of one instant have no order among them


@pytest.mark.timeout(900)
async def test_budgets_answer_as_their_model_does_in_20_000_steps(template, kernel_schema):
    with template.clone("histories") as url:
        space = spaces.create(url)
        async with database.connected(url) as connection:
            scope_id = uuid.uuid4()
            create = (
                f"SELECT code FROM {kernel_schema}.scope_create($1, $2, NULL, NULL, NULL, 10, 32, NULL, NULL)"
            )
            assert await connection.fetchval(create, space.id, scope_id) is None
            for seed in range(HISTORIES):
                chance = random.Random(seed if SCALE == 1 else None)
                start = await connection.fetchval(f"SELECT {kernel_schema}.kernel_now()")
                history = History(connection, kernel_schema, space.id, scope_id, start, chance)
                settings = ("history " + str(seed), "USD", 2, history.books.limit, history.books.hold_stale)
                code, _ = await history.call("budget_create", history.id, *settings, None, None)
                assert code is None
                for n in range(STEPS):
                    try:
                        await history.step()
                    except AssertionError as error:
                        error.add_note(f"seed {seed}, step {n}")
                        raise
                await history.finish()
