"""The sequencer: committed events get the numbers 1..N of their space, no gap, no repeat, causes first."""

import asyncio
import itertools
import os
import random
from datetime import date, timedelta

import pytest

from tests.support import database

SCALE = int(os.environ.get("SCALE", "1"))
WRITERS, SEQUENCERS, EVENTS_EACH = 8, 3, 60
SPACES = ["alpha", "beta"]


class Kernel:
    """The functions of the journal, on one connection."""

    def __init__(self, schema, connection):
        self._schema = schema
        self._connection = connection

    async def event(self, space, kind, name, payload="{}", wake=None):
        sql = f"SELECT {self._schema}.event($1, clock_timestamp(), $2, NULL, 'key', $3, $4::json, $5)"
        return await self._connection.fetchval(sql, space, kind, name, payload, wake)

    async def step(self, batch=50, floor=0):
        sql = f"SELECT * FROM {self._schema}.journal_step($1, $2)"
        return await self._connection.fetchrow(sql, batch, floor)

    async def call(self, function, *args):
        places = ", ".join(f"${i}" for i in range(1, len(args) + 1))
        return await self._connection.fetch(f"SELECT * FROM {self._schema}.{function}({places})", *args)

    async def topic(self, space):
        return (await self.call("journal_topic", space))[0]["journal_topic"]

    async def shift(self, *, days):
        """Set the clock so many days ahead of the real one."""
        sql = f"UPDATE {self._schema}.test_clock SET shift = make_interval(days => $1)"
        await self._connection.execute(sql, days)

    async def tick(self, seen, limit=1000):
        sql = f"SELECT * FROM {self._schema}.journal_tick($1, $2, $3)"
        rows = await self._connection.fetch(sql, list(seen), list(seen.values()), limit)
        return {row["space_id"]: (row["num"], row["topics"]) for row in rows}

    async def journal(self, space, after=0):
        columns = "num, type, aggregate_id"
        sql = f"SELECT {columns} FROM runstate.journal WHERE space_id = $1 AND num > $2 ORDER BY num"
        return await self._connection.fetch(sql, space, after)


class Storm:
    """Writers whose transactions overlap and commit out of order, sequencers that compete, a reader each."""

    def __init__(self, url, schema):
        self._url, self._schema = url, schema
        self._causes = asyncio.Queue()
        self._written = asyncio.Event()
        self._names = itertools.count()
        self.turned_away = 0

    async def run(self):
        readers = [asyncio.create_task(self._read(space)) for space in SPACES]
        sequencers = [asyncio.create_task(self._sequence()) for _ in range(SEQUENCERS)]
        await asyncio.gather(*(self._write(random.Random(seed)) for seed in range(WRITERS)))
        self._written.set()
        await asyncio.gather(*sequencers)
        return await asyncio.gather(*readers)

    async def _write(self, picked):
        """Each event names the committed one that it follows, as an effect names its cause."""
        async with database.connected(self._url) as connection:
            kernel = Kernel(self._schema, connection)
            for _ in range(EVENTS_EACH * SCALE):
                cause = self._causes.get_nowait() if picked.random() < 0.7 and self._causes.qsize() else None
                space, name = (cause[0] if cause else picked.choice(SPACES)), str(next(self._names))
                async with connection.transaction():
                    await kernel.event(space, cause[1] if cause else "", name)
                    for _ in range(picked.randrange(4)):  # others commit in the meantime
                        await connection.execute("SELECT 1")
                self._causes.put_nowait((space, name))

    async def _sequence(self):
        async with database.connected(self._url) as connection:
            kernel = Kernel(self._schema, connection)
            while True:
                last_round = self._written.is_set()
                step = await kernel.step(batch=20)
                self.turned_away += step["moved"] < 0
                if step["moved"] == 0 and last_round:
                    return

    async def _read(self, space):
        """Follow the journal from its beginning; what is seen is seen once and in order."""
        async with database.connected(self._url) as connection:
            kernel = Kernel(self._schema, connection)
            seen = []
            while True:
                last_round = self._written.is_set() and not await connection.fetchval(
                    "SELECT count(*) FROM runstate.outbox"
                )
                page = await kernel.journal(space, len(seen))
                assert [row["num"] for row in page] == list(range(len(seen) + 1, len(seen) + len(page) + 1))
                seen += page
                if last_round:
                    return seen


async def test_eight_writers_and_three_sequencers_make_1_to_n_without_gap_or_repeat(
    fresh_database, kernel_schema
):
    storm = Storm(fresh_database, kernel_schema)
    journals = await storm.run()
    assert sum(len(journal) for journal in journals) == WRITERS * EVENTS_EACH * SCALE
    names = [row["aggregate_id"] for journal in journals for row in journal]
    assert len(set(names)) == len(names)
    assert storm.turned_away > 0
    for journal in journals:
        at = {row["aggregate_id"]: row["num"] for row in journal}
        assert [row for row in journal if row["type"] and at[row["type"]] >= row["num"]] == []


@pytest.fixture
async def kernel(fresh_database, kernel_schema):
    async with database.connected(fresh_database) as connection:
        yield Kernel(kernel_schema, connection)


async def test_an_event_that_commits_late_gets_the_next_number_and_is_not_lost(
    kernel, fresh_database, kernel_schema
):
    async with database.connected(fresh_database) as late, database.connected(fresh_database) as early:
        transaction = late.transaction()
        await transaction.start()
        seq_late = await Kernel(kernel_schema, late).event("alpha", "", "late")
        seq_early = await Kernel(kernel_schema, early).event("alpha", "", "early")
        assert seq_late < seq_early
        assert (await kernel.step())["moved"] == 1
        await transaction.commit()
        assert (await kernel.step(floor=seq_early))["moved"] == 0  # a look above the floor passes it over
        assert (await kernel.step(floor=0))["moved"] == 1  # the whole look finds it
        assert [row["aggregate_id"] for row in await kernel.journal("alpha")] == ["early", "late"]


async def test_a_rolled_back_event_leaves_no_gap(kernel, fresh_database, kernel_schema):
    async with database.connected(fresh_database) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await Kernel(kernel_schema, connection).event("alpha", "", "never")
        await transaction.rollback()
    await kernel.event("alpha", "", "first")
    await kernel.step()
    assert [tuple(row) for row in await kernel.journal("alpha")] == [(1, "", "first")]


async def test_a_second_sequencer_turns_away_and_does_not_wait(kernel, fresh_database, kernel_schema):
    await kernel.event("alpha", "", "a")
    async with database.connected(fresh_database) as other:
        transaction = other.transaction()
        await transaction.start()
        assert (await Kernel(kernel_schema, other).step())["moved"] == 1
        assert (await kernel.step())["moved"] == -1
        await transaction.rollback()
    assert (await kernel.step())["moved"] == 1


async def test_a_step_moves_at_most_its_batch_in_order(kernel):
    for i in range(7):
        await kernel.event("alpha", "", str(i))
    assert [(await kernel.step(batch=3))["moved"] for _ in range(4)] == [3, 3, 1, 0]
    assert [row["aggregate_id"] for row in await kernel.journal("alpha")] == list("0123456")


async def test_the_tick_names_the_topics_of_what_is_new(kernel):
    await kernel.event("alpha", "", "1", wake=["x", "y"])
    await kernel.event("alpha", "", "2", wake=None)
    await kernel.event("beta", "", "3", wake=["z"])
    await kernel.step()
    assert await kernel.tick({"alpha": 2, "beta": 1, "gamma": -1}) == {}
    await kernel.event("alpha", "", "4", wake=["y"])
    await kernel.step()
    told = await kernel.tick({"alpha": 2, "beta": 0})
    alpha, beta = [await kernel.topic(space) for space in SPACES]
    assert told == {"alpha": (3, ["y", alpha]), "beta": (1, ["z", beta])}
    told = await kernel.tick({"alpha": 0})
    assert sorted(told["alpha"][1]) == sorted(["x", "y", alpha])
    assert await kernel.tick({"alpha": 0}, limit=2) == {"alpha": (3, None)}  # too much: everybody looks


async def test_the_days_of_the_journal_are_made_ahead_and_outdated_ones_named(kernel, fresh_database):
    await kernel.call("journal_ahead", 3)
    await kernel.call("journal_ahead", 3)
    days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'runstate.journal'::regclass"
    assert database.fetchval(fresh_database, days) == 4
    assert await kernel.call("journal_outdated", 7) == []
    await kernel.call("journal_day", date(2001, 2, 3))
    await kernel.call("journal_day", date(2001, 2, 4))
    database.execute(
        fresh_database, "ALTER TABLE runstate.journal DETACH PARTITION runstate.journal_20010204"
    )
    told = [tuple(row) for row in await kernel.call("journal_outdated", 7)]
    assert told == [("journal_20010203", "attached"), ("journal_20010204", "loose")]


async def test_numbers_go_on_over_the_days(kernel, fresh_database):
    await kernel.event("alpha", "", "1")
    await kernel.step()
    await kernel.shift(days=2)
    await kernel.event("alpha", "", "2")
    await kernel.step()
    await kernel.shift(days=0)  # a clock that steps back: the journal's day does not
    await kernel.event("alpha", "", "3")
    await kernel.step()
    rows = database.fetch(fresh_database, "SELECT num, day FROM runstate.journal ORDER BY num")
    assert [row["num"] for row in rows] == [1, 2, 3]
    assert rows[1]["day"] == rows[2]["day"] == rows[0]["day"] + timedelta(days=2)
