"""Many who arrive at once: as many as the target are counted, and the barrier is released once."""

import asyncio
import collections

import pytest

from tests.support import database, races
from tests.support.barriers import Barrier, barrier, made, named
from tests.support.builders import end, ok, refused, scope
from tests.support.journal import events

ROW = "SELECT 1 FROM runstate.barriers WHERE id = $1::text::uuid FOR NO KEY UPDATE"
KEYS = "SELECT key FROM runstate.barrier_arrivals WHERE barrier_id = $1::text::uuid"


async def test_of_more_than_the_target_each_twice_the_target_is_counted_and_released_once(
    api, storm, space, database_url
):
    meeting = barrier(api, scope(api), 20)
    keys = [f"worker-{n}" for n in range(30)] * 2
    answers = await storm([meeting.arrive(key) for key in keys])
    told = collections.defaultdict(set)
    for key, answer in zip(keys, answers, strict=True):
        if answer.is_success:
            assert answer.json()["epoch"] == 1
        told[key].add("in" if answer.is_success else refused(answer, "BARRIER_RELEASED") and "late")
    members = {row["key"] for row in database.fetch(database_url, KEYS, meeting.id)}
    assert {key for key, said in told.items() if said == {"in"}} == members
    assert {key for key, said in told.items() if said == {"late"}} == set(keys) - members
    assert len(members) == 20
    counted = sorted(e.payload["arrivals"] for e in events(database_url, space.id, "barrier.arrived"))
    assert counted == list(range(1, 21))
    assert len(events(database_url, space.id, "barrier.released")) == 1
    view = ok(meeting.view().send(api))
    assert (view["state"], view["arrivals"]) == ("RELEASED", 20)


async def test_of_many_who_make_one_name_all_get_the_same_barrier(api, storm):
    root = scope(api)
    answers = await storm([named(root, "start", 2) for _ in range(20)])
    assert len({ok(answer)["id"] for answer in answers}) == 1


async def test_arrivals_and_resets_at_once_lose_nobody_within_an_epoch(api, storm, space, database_url):
    meeting = barrier(api, scope(api), 3)
    calls = [meeting.reset() if n % 4 == 3 else meeting.arrive(f"worker-{n}") for n in range(40)]
    for answer in await storm(calls):
        assert answer.is_success or refused(answer, "BARRIER_RELEASED")
    by_epoch = collections.defaultdict(list)
    for event in events(database_url, space.id, "barrier.arrived", "barrier.released"):
        by_epoch[event.payload["epoch"]].append((event.type, event.payload["arrivals"]))
    for told in by_epoch.values():
        counts = [n for kind, n in told if kind == "barrier.arrived"]
        assert counts == list(range(1, len(counts) + 1))
        assert [n for kind, n in told if kind == "barrier.released"] == [3] * (len(counts) == 3)
    assert ok(meeting.view().send(api))["epoch"] == 11


async def test_an_arrival_that_waited_for_a_reset_counts_in_the_next_epoch(api, database_url):
    meeting = barrier(api, scope(api), 1)
    ok(meeting.arrive("a").send(api))
    async with races.holding(database_url, ROW, meeting.id) as holder:
        reset = asyncio.create_task(asyncio.to_thread(meeting.reset().send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
    assert ok(await reset)["epoch"] == 2
    assert ok(meeting.arrive("b").send(api)) == {"state": "RELEASED", "arrivals": 1, "epoch": 2}


async def test_the_last_of_two_who_wait_for_the_row_is_too_late_for_a_place(api, database_url):
    """What a call knew when it began to wait counts for nothing."""
    meeting = barrier(api, scope(api), 1)
    async with races.holding(database_url, ROW, meeting.id) as holder:
        both = [asyncio.create_task(asyncio.to_thread(meeting.arrive(key).send, api)) for key in "ab"]
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
    answers = sorted([await each for each in both], key=lambda answer: answer.status_code)
    assert ok(answers[0])["state"] == "RELEASED"
    refused(answers[1], "BARRIER_RELEASED")


async def test_an_arrival_that_comes_after_a_cancel_has_begun_is_refused(patient):
    async with patient.client() as (_, client):
        root = ok(await client.post("/scopes", json={}), 201)["id"]
        meeting = Barrier(ok(await made(root, 1).send(client))["id"])
        async with races.holding(patient.database_url, ROW, meeting.id) as holder:
            cancel = asyncio.create_task(end(root).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            arrive = asyncio.create_task(meeting.arrive().send(client))
            await races.until_waiting(patient.database_url, count=2)
        assert ok(await cancel)["state"] == "CANCELLED"
        refused(await arrive, "SCOPE_CANCELLED")
        assert ok(await meeting.view().send(client))["state"] == "CANCELLED"


@pytest.mark.parametrize("last", [True, False])
async def test_arrivals_against_the_cancel_of_their_scope_end_one_way(api, storm, space, database_url, last):
    """Released before, or cancelled: never both, and nobody is counted after the end."""
    for _ in range(5):
        root = scope(api)
        meeting = barrier(api, root, 2)
        ok(meeting.arrive("a").send(api))
        calls = [meeting.arrive("b"), end(root)]
        arrival, cancel = (await storm(calls if last else calls[::-1]))[:: 1 if last else -1]
        ok(cancel)
        state = ok(meeting.view().send(api))["state"]
        told = [e.type for e in events(database_url, space.id) if e.aggregate == meeting.id]
        if arrival.is_success:
            assert (state, told[-1]) == ("RELEASED", "barrier.released")
        else:
            refused(arrival, "SCOPE_CANCELLED")
            assert (state, told[-1]) == ("CANCELLED", "barrier.cancelled")
        assert len(told) == (
            4 if arrival.is_success else 3
        )  # created, a, and b with the release, or the cancel
