"""The end of a watched space's journal in memory: whole, each event once, and never far behind."""

import asyncio
import uuid
from datetime import date

import pytest

from runstate_server.foundation import bounds, db
from runstate_server.kernel.call import Kernel
from runstate_server.primitives.events.kernel import Cursor, Filter, Tail, Tails
from tests.support import database, spaces

EVENTS, READERS = 300, 12


class Journal:
    """One space's journal, written and numbered on a connection of its own."""

    def __init__(self, kernel, connection, space):
        self.kernel, self.space = kernel, space
        self._connection = connection

    async def add(self, count):
        event = (
            f"SELECT {self.kernel.schema}.event($1, now(), 'claim.acquired', NULL, 'claim', $2, '{{}}', NULL)"
        )
        await self._connection.executemany(event, [(self.space.id, uuid.uuid4().hex) for _ in range(count)])
        while (await self.kernel.step("journal_step", 500, 0))["moved"]:
            pass

    async def head(self):
        sql = "SELECT num, day FROM runstate.journal_heads WHERE space_id = $1"
        row = await self._connection.fetchrow(sql, self.space.id)
        return Cursor(0, row["num"], row["day"])


@pytest.fixture
async def journal(fresh_database, kernel_schema):
    pool = await db.open_pool(fresh_database, size=4, named_statements=True)
    kernel = Kernel(pool, schema=kernel_schema, outage_wait_s=5, committed=lambda _: None)
    async with database.connected(fresh_database) as connection:
        made = Journal(kernel, connection, spaces.create(fresh_database))
        await made.add(1)
        yield made
    await pool.close()


async def test_readers_that_refresh_at_the_same_time_get_every_event_once(journal):
    start = await journal.head()
    tail = Tail(journal.kernel, journal.space.id, start)

    async def write():
        for _ in range(EVENTS):
            await journal.add(1)

    async def read():
        while not writing.done():
            await (
                tail.refresh()
            )  # again at once: it may meet a look that has just ended, with another in line

    writing = asyncio.create_task(write())
    await asyncio.gather(writing, *(read() for _ in range(READERS)))
    await tail.refresh()
    told = [each.place.num for each in tail.after(start, Filter(), 0, 10_000)]
    assert told == [start.num + n for n in range(1, EVENTS + 1)]


async def test_a_tail_that_nobody_has_read_for_long_begins_anew_and_does_not_catch_up(journal):
    tails = Tails(journal.kernel)
    old = tails.of(journal.space.id, await journal.head())
    await journal.add(1)
    assert tails.of(journal.space.id, await journal.head()) is old
    await journal.add(bounds.tail_events_max + 1)
    head = await journal.head()
    new = tails.of(journal.space.id, head)
    assert new is not old
    assert new.head == head


async def test_a_tail_that_cannot_be_read_on_is_forgotten(journal):
    tails = Tails(journal.kernel)
    past_the_end = Cursor(0, (await journal.head()).num + 1, date(2001, 1, 1))
    tail = tails.of(journal.space.id, past_the_end)
    assert (await tail.refresh()).code == "CURSOR_EXPIRED"
    tails.drop(journal.space.id, tail)
    assert tails.of(journal.space.id, await journal.head()) is not tail
