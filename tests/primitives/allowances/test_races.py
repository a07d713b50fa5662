"""Many at one allowance: no window lets more through than its limit, also at its edge and with a line."""

import asyncio
import time
from collections import Counter

import pytest

from tests.support.allowances import Allowance, allowance, leave, look
from tests.support.builders import end, ok, refused, scope
from tests.support.events import read


def by_window(events):
    """Units consumed in each window, as the journal has them."""
    units = Counter()
    for event in events:
        units[event["payload"]["windowStart"]] += event["payload"]["units"]
    return units


async def test_of_fifty_callers_over_two_replicas_as_many_consume_as_there_are_units(api, storm):
    searches = allowance(api, scope(api), 7)
    answers = await storm([searches.consume(holder=f"worker-{i}") for i in range(50)])
    assert sum(a.status_code == 200 for a in answers) == 7
    for answer in answers:
        if answer.status_code != 200:
            refused(answer, "ALLOWANCE_EXHAUSTED")
    assert ok(searches.view().send(api))["consumed"] == 7


async def test_windows_of_a_second_never_let_more_through_with_some_in_the_line_and_some_not(api, both_apis):
    searches = allowance(api, scope(api), 5, 1)
    until = time.monotonic() + 6
    granted: list[int] = []

    async def consume(client):
        while time.monotonic() < until:
            if (await searches.consume().send(client)).status_code == 200:
                granted.append(1)
            await asyncio.sleep(0.01)

    async def wait(client, units):
        while time.monotonic() < until:
            waiter = ok(await searches.wait(units).send(client))["waiterId"]
            seen = ok(await look(waiter, 10_000).send(client))
            assert seen["state"] == "GRANTED"
            granted.append(units)

    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        for i in range(4):
            tasks.create_task(consume(both_apis[i % 2]))
            tasks.create_task(wait(both_apis[i % 2], 1 + i))
    windows = by_window(read(api, types="allowance.consumed"))
    assert max(windows.values()) <= 5
    assert sum(windows.values()) == sum(granted)
    assert len(windows) >= 5


async def test_first_come_first_served_over_two_replicas(api, both_apis):
    searches = allowance(api, scope(api), 4, 1)
    ok(searches.cool(2).send(api))
    waiters = [ok(searches.wait(1, holder=f"w{i}", ttlSeconds=60).send(api))["waiterId"] for i in range(20)]
    served: list[int] = []

    async def stand(i, client):
        assert ok(await look(waiters[i], 30_000).send(client))["state"] == "GRANTED"
        served.append(i)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for i in range(20):
            tasks.create_task(stand(i, both_apis[i % 2]))
    told = [e["payload"]["holder"] for e in read(api, types="allowance.consumed")]
    assert told == [f"w{i}" for i in range(20)]
    assert sorted(served) == list(range(20))


@pytest.mark.parametrize("by", ["the limit is raised", "the head leaves", "the head's scope ends"])
async def test_whoever_waits_is_granted_as_soon_as_there_are_units(api, both_apis, by):
    searches = allowance(api, scope(api), 3)
    ok(searches.consume(2).send(api))
    other = scope(api)
    ahead = ok(Allowance(searches.id, other).wait(2, ttlSeconds=3600).send(api))["waiterId"]
    waiter = ok(searches.wait(1, ttlSeconds=3600).send(api))["waiterId"]
    asleep = asyncio.create_task(look(waiter, 30_000).send(both_apis[1]))
    await asyncio.sleep(0.3)
    assert not asleep.done()
    call = {
        "the limit is raised": searches.resize(unitsLimit=5),
        "the head leaves": leave(ahead),
        "the head's scope ends": end(other),
    }[by]
    ok(await call.send(both_apis[0]))
    assert ok(await asyncio.wait_for(asleep, 10))["state"] == "GRANTED"


def test_when_nobody_waits_the_first_request_of_a_window_is_never_refused(api):
    searches = allowance(api, scope(api), 1, 1)
    seen = set()
    for _ in range(400):
        answer = searches.consume().send(api)
        if answer.status_code == 200:
            seen.add(answer.json()["windowStart"])
        else:
            held = ok(searches.view().send(api))
            assert held["windowStart"] in seen or held["remaining"] == 1, "refused in a window nobody had"
        if len(seen) == 4:
            break
        time.sleep(0.01)
    assert len(seen) == 4
