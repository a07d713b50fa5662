"""GET /watch: held open until there is something, on any replica, whatever wakes it."""

import asyncio
import random
import time

import pytest

from tests.support import spaces
from tests.support.builders import end, ok, refused, scope
from tests.support.events import end_of, page, read, watch
from tests.support.metrics import until_polls
from tests.support.processes import Replica
from tests.support.queues import Claim

pytestmark = pytest.mark.processes
ROUNDS = 200


@pytest.fixture
def group(waits_group):
    return waits_group


@pytest.fixture
def api(group):
    with group.space.client(group.here.url) as client:
        yield client


@pytest.mark.parametrize(("where", "by"), [("here", "commit"), ("there", "notify"), ("deaf", "tick")])
def test_an_event_wakes_a_watch_by_the_bus_and_with_the_bus_cut_by_the_tick(group, api, *, where, by):
    after = end_of(api)
    with group.poll(where, watch(cursor=after, waitSeconds=8)) as poll:
        run = scope(api)
        told = ok(poll.response())
        assert [e["aggregate"]["id"] for e in told["events"]] == [run]
        assert by in poll.causes()


def test_a_watch_that_sees_nothing_ends_with_a_cursor_and_is_held_eight_seconds_at_most(api):
    after = end_of(api)
    for seconds, least_s in ((0, 0), (0.3, 0.3), (3600, 8)):
        began = time.monotonic()
        told = ok(watch(cursor=after, waitSeconds=seconds).send(api))
        took = time.monotonic() - began
        assert told == {"events": [], "nextCursor": after}
        assert least_s <= took < least_s + 10
    for bad in ("-1", "x", "1e3", "", "nan"):
        assert "waitSeconds" in refused(watch(waitSeconds=bad).send(api), "VALIDATION_FAILED")


def test_what_a_filter_hides_ends_no_watch_and_moves_its_cursor(api):
    after = end_of(api)
    run = scope(api)
    told = ok(watch(cursor=after, types="claim.acquired", waitSeconds=0.2).send(api))
    assert told["events"] == []
    assert told["nextCursor"] == end_of(api)
    ok(end(run).send(api))


def test_a_drain_answers_a_watch_at_once(template):
    with template.clone() as url, Replica(url, DRAIN_GRACE_S="5") as replica:
        space = spaces.create(url)
        with space.client(replica.url) as client:
            after = end_of(client)

            async def watched():
                async with space.async_client(replica.url) as watcher:
                    asked = asyncio.create_task(watcher.get(watch(cursor=after, waitSeconds=8).path))
                    await asyncio.to_thread(until_polls, replica, 1)
                    replica.process.terminate()
                    began = time.monotonic()
                    response = await asked
                    return response, time.monotonic() - began

            response, took = asyncio.run(watched())
            assert ok(response) == {"events": [], "nextCursor": after}
            assert took < 4


async def test_an_event_before_during_or_after_the_start_of_a_watch_is_seen_exactly_once(group):
    picked = random.Random(1)
    replicas = [group.here, group.there]
    async with (
        group.space.async_client(replicas[0].url) as writer,
        group.space.async_client(replicas[1].url) as reader,
    ):
        made = (await writer.post("/scopes", json={})).json()["id"]
        query = {"scopeId": made, "types": "claim.acquired"}
        cursor = (await reader.get(page(**query).path)).json()["nextCursor"]
        for n in range(ROUNDS):
            held = asyncio.create_task(reader.get(watch(cursor=cursor, waitSeconds=8, **query).path))
            await asyncio.sleep(picked.choice([0, 0, 0.001, 0.004]))  # before, during or after its first look
            call = Claim(made, str(n)).acquire()
            assert (await writer.request(call.method, call.path, json=call.body)).status_code == 201
            told = (await held).json()
            assert [e["aggregate"]["id"] for e in told["events"]] == [str(n)]
            cursor = told["nextCursor"]
    with group.space.client(group.deaf.url) as client:
        assert [e["aggregate"]["id"] for e in read(client, **query)] == [str(n) for n in range(ROUNDS)]


async def test_many_who_watch_the_same_space_with_filters_of_their_own_see_each_what_is_theirs(group):
    picked = random.Random(3)
    async with (
        group.space.async_client(group.here.url) as here,
        group.space.async_client(group.there.url) as there,
    ):
        chain = [(await here.post("/scopes", json={})).json()["id"]]
        for _ in range(4):
            chain.append((await here.post("/scopes", json={"parentId": chain[-1]})).json()["id"])
        start = (await here.get(page(types="none.such").path)).json()["nextCursor"]
        queries = [{"scopeId": scope_id} for scope_id in chain]
        queries += [{"types": "claim.released"}, {"aggregate": "claim:3"}, {"limit": 1}, {}]
        queries += [{"scopeId": chain[1], "types": "claim.acquired", "aggregate": "claim:2", "limit": 2}]
        stop = asyncio.Event()

        async def watched(client, query):
            seen, cursor = [], start
            while True:
                last = stop.is_set()
                told = (
                    await client.get(watch(cursor=cursor, waitSeconds=0 if last else 2, **query).path)
                ).json()
                seen += told["events"]
                if last and not told["events"]:
                    return seen
                cursor = told["nextCursor"]

        watching = [asyncio.create_task(watched(c, q)) for q in queries for c in (here, here, there)]
        for n in range(60):
            claim = Claim(picked.choice(chain), str(n % 5))
            call = claim.acquire()
            took = await picked.choice([here, there]).request(call.method, call.path, json=call.body)
            if took.status_code == 201:
                call = claim.release(took.json()["token"])
                await here.request(call.method, call.path, json=call.body)
        stop.set()
        journals = await asyncio.gather(*watching)
    with group.space.client(group.deaf.url) as client:
        for n, query in enumerate(queries):
            wanted = read(client, cursor=start, **query)
            assert wanted, query
            for seen in journals[3 * n : 3 * n + 3]:
                assert seen == wanted, query
