"""What is written is what is read: fifty writers that commit late and out of order, readers on two replicas
from random cursors, a sequencer that is killed, a transaction elsewhere that stays open."""

import asyncio
import contextlib
import itertools
import os
import random
import uuid

import asyncpg
import pytest

from tests.support import database, spaces
from tests.support.events import page, watch
from tests.support.processes import Replica

pytestmark = pytest.mark.processes
SCALE = int(os.environ.get("SCALE", "1"))
WRITERS, EVENTS_EACH = 50, 12
CUT = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
KILL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'sequencer' AND state = 'active'
"""


class Writers:
    """Each event names the committed one that it follows, as an effect names its cause."""

    def __init__(self, url, schema, space):
        self._url, self._schema, self._space = url, schema, space
        self._names = itertools.count()
        self._causes = []
        self.written = {}
        self.done = asyncio.Event()
        self.cut = asyncio.Event()  # a sequencer was killed: half of the events come before, half after

    async def run(self):
        await asyncio.gather(*(self._write(random.Random(seed)) for seed in range(WRITERS)))
        self.done.set()

    async def _write(self, picked):
        sql = (
            f"SELECT {self._schema}.event($1, clock_timestamp(), 'claim.acquired', NULL, 'claim', $2,"
            " json_build_object('cause', $3::text), NULL)"
        )
        async with database.connected(self._url) as connection:
            for n in range(EVENTS_EACH * SCALE):
                if n == EVENTS_EACH * SCALE // 2:
                    await asyncio.wait_for(self.cut.wait(), 30)
                name = str(next(self._names))
                cause = picked.choice(self._causes) if self._causes and picked.random() < 0.8 else None
                async with connection.transaction():
                    await connection.execute(sql, self._space.id, name, cause)
                    await asyncio.sleep(picked.choice([0, 0, 0.001, 0.02]))  # others commit meanwhile
                self.written[name] = cause
                self._causes.append(name)


async def follow(client, cursor, writers):
    """Everything from a cursor on, until the writers have ended and nothing is left."""
    seen = []
    while True:
        last = writers.done.is_set()
        told = (await client.get(watch(cursor=cursor, waitSeconds=0 if last else 1, limit=37).path)).json()
        seen += told["events"]
        if last and not told["events"]:
            return seen
        cursor = told["nextCursor"]


async def sequence(url, schema, writers):
    """A sequencer that is killed over and over, in the middle of its steps, and begins again."""
    while not writers.done.is_set():
        with contextlib.suppress(*CUT):
            connection = await asyncpg.connect(url, server_settings={"application_name": "sequencer"})
            try:
                while not writers.done.is_set():
                    await connection.fetchrow(f"SELECT * FROM {schema}.journal_step(20, 0)")
            finally:
                connection.terminate()


async def kill_sequencers(url, writers):
    killed = 0
    async with database.connected(url) as connection:
        while not writers.done.is_set():
            killed += await connection.fetchval(KILL)
            if killed:
                writers.cut.set()
            await asyncio.sleep(0.01)
    return killed


async def test_the_set_read_is_the_set_written_in_an_order_that_agrees_with_cause_and_effect(
    template, kernel_schema
):
    with template.clone() as url, Replica(url) as one, Replica(url) as two:
        space = spaces.create(url)
        writers = Writers(url, kernel_schema, space)
        async with space.async_client(one.url) as here, space.async_client(two.url) as there:
            start = (await here.get(page().path)).json()["nextCursor"]
            async with database.connected(url) as elsewhere:
                await elsewhere.execute("SET idle_in_transaction_session_timeout = 0")
                held = elsewhere.transaction(isolation="repeatable_read")
                await held.start()
                await elsewhere.execute("SELECT count(*) FROM runstate.outbox")
                readers = [asyncio.create_task(follow(client, start, writers)) for client in (here, there)]
                killed = asyncio.create_task(kill_sequencers(url, writers))
                numbering = asyncio.create_task(sequence(url, kernel_schema, writers))
                await writers.run()
                await numbering
                journals = await asyncio.gather(*readers)
                await held.rollback()
            assert await killed > 0
            for events in journals:
                names = [event["aggregate"]["id"] for event in events]
                assert len(names) == len(set(names)) == WRITERS * EVENTS_EACH * SCALE
                assert set(names) == set(writers.written)
                at = {name: n for n, name in enumerate(names)}
                late = [n for n, cause in writers.written.items() if cause is not None and at[cause] > at[n]]
                assert late == []
            assert journals[0] == journals[1]
            picked = random.Random(7)
            for n in picked.sample(range(len(journals[0])), 10):
                rest = await follow(there, journals[0][n]["cursor"], writers)
                assert rest == journals[0][n + 1 :]


ROUNDS = 10_000 * SCALE


async def test_an_event_beside_the_start_of_a_look_is_seen_by_it_or_by_the_next_and_never_twice(
    fresh_database, kernel_schema
):
    """Ten thousand rounds against the kernel: a look from the last cursor, an event at the same moment."""
    space = spaces.create(fresh_database)
    async with (
        database.connected(fresh_database) as writer,
        database.connected(fresh_database) as reader,
        database.connected(fresh_database) as sequencer,
    ):
        event = (
            f"SELECT {kernel_schema}.event($1, clock_timestamp(), 'claim.acquired', NULL, 'claim', $2,"
            " '{}', NULL)"
        )
        look = (
            f"SELECT (facts -> 'events')::text AS events, (facts ->> 'num')::bigint AS num,"
            f" facts ->> 'day' AS day FROM {kernel_schema}.events_read($1, 0, $2, $3::text::date, NULL, NULL,"
            " NULL, NULL, 100, 5000)"
        )
        first = await reader.fetchrow(
            f"SELECT (facts ->> 'num')::bigint AS num, facts ->> 'day' AS day FROM"
            f" {kernel_schema}.events_first($1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 100, 5000)",
            space.id,
        )
        place, seen, run = (first["num"], first["day"]), [], uuid.uuid4().hex
        for n in range(ROUNDS // 50):
            names = [f"{run}-{n}-{i}" for i in range(50)]

            async def write(names=names):
                for name in names:
                    await writer.execute(event, space.id, name)

            async def number():
                for _ in range(20):
                    await sequencer.fetchrow(f"SELECT * FROM {kernel_schema}.journal_step(7, 0)")

            writing = asyncio.gather(write(), number())
            while not writing.done():
                row = await reader.fetchrow(look, space.id, *place)
                seen += row["events"].split('"id" : "')[1:]
                place = (row["num"], row["day"])
            await writing
        while (await sequencer.fetchrow(f"SELECT * FROM {kernel_schema}.journal_step(1000, 0)"))["moved"]:
            pass
        row = await reader.fetchrow(look.replace("100, 5000", "100000, 100000"), space.id, *place)
        seen += row["events"].split('"id" : "')[1:]
        ids = [text.partition('"')[0] for text in seen]
        assert ids == [f"{run}-{n}-{i}" for n in range(ROUNDS // 50) for i in range(50)]
