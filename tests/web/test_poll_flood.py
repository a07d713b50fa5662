"""Thousands of long polls of one key: a second key does not feel them, and neither does the database."""

import asyncio
import resource
import statistics
import time

import pytest

from tests.support import database, races, spaces
from tests.support.builders import Once, held, ok, scope
from tests.support.metrics import Metrics
from tests.support.processes import Replica
from tests.support.sockets import head

pytestmark = pytest.mark.processes
POLLS = 3_000
AT_ONCE = 250  # that are being opened
MEASURED_S = 5  # longer than two ticks; the database counts its transactions with a second's delay
FILES = POLLS + 500  # that this process opens, and the server likewise
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def many_files():
    """Room for a socket per poll, here and in the server, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield wanted - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def seconds_each(client, for_s):
    """How long each call took, one after another, for so long."""
    took = []
    while sum(took) < for_s:
        began_at = time.monotonic()
        ok(await client.get("/scopes", params={"limit": 1}))
        took.append(time.monotonic() - began_at)
    return took


async def test_a_second_key_and_the_database_hardly_notice_thousands_of_polls(many_files, fresh_database):
    count = min(POLLS, many_files)
    crowd, other = spaces.create(fresh_database), spaces.create(fresh_database)
    with Replica(fresh_database) as replica:
        async with other.async_client(replica.url) as one, crowd.async_client(replica.url) as many:
            with crowd.client(replica.url) as api:
                once = Once(scope(api))
                token = held(api, once, lease_s=3600)
            alone_s = statistics.median(await seconds_each(one, 1))
            asked, polls = request_of(crowd, once.view(30_000)), []
            while len(polls) < count:
                polls += [asyncio.create_task(poll(replica, asked)) for _ in range(AT_ONCE)]
                await until_asleep(replica, len(polls))
            commits, began_at = await commits_of(fresh_database), time.monotonic()
            took = await seconds_each(one, MEASURED_S)
            among_s, seconds = statistics.median(took), time.monotonic() - began_at
            spent = await commits_of(fresh_database) - commits
            print(
                f"{count} polls: {among_s * 1000:.1f} ms, alone {alone_s * 1000:.1f} ms, "
                f"{spent} transactions for {len(took)} calls in {seconds:.1f} s"
            )
            # A call is two transactions at most; a key is looked up every three seconds, and so on.
            assert spent <= 2 * len(took) + 20 * seconds + 50
            assert among_s < 20 * alone_s + 0.1
            ok(await once.complete(token, 1).send(many))
            answers = await asyncio.gather(*polls)
            # All look again at once; on a busy machine some are told to come back.
            late = [answer for answer in answers if b'"state":"DONE"' not in answer]
            assert len(late) < count
            assert all(b" 503 " in answer and b"retry-after" in answer.lower() for answer in late)


def request_of(space, call):
    """The bytes of a GET inside the space, which is the only one on its connection."""
    line = f"GET /v1/spaces/{space.id}{call.path} HTTP/1.1"
    return head(line, f"Authorization: Bearer {space.key}", "Connection: close")


async def poll(replica, asked):
    """Not by httpx, to which every connection costs the more the more there are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", replica.port)
    writer.write(asked)
    try:
        return await reader.read()
    finally:
        writer.close()


async def until_asleep(replica, count):
    async def asleep():
        metrics = await asyncio.to_thread(Metrics.of, replica)
        return metrics.open_polls == count and not metrics.looking

    await races.until(asleep, patience_s=25, what=f"{count} polls asleep")


async def commits_of(url):
    return await asyncio.to_thread(database.fetchval, url, COMMITS)
