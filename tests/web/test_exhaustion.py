"""More callers than connections: each is served in its turn or refused in time, and a second space does not
feel it."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support import database, races, spaces
from tests.support.builders import ok, refused, scope
from tests.support.metrics import Metrics
from tests.support.processes import Replica
from tests.support.queues import mailbox, row, sent, submitted, task
from tests.support.sockets import Connection, head

pytestmark = pytest.mark.processes
UNLIMITED = httpx.Limits(max_connections=None)
CALLERS = 200
WAIT_S = 2
ANSWER_S_MAX = 30.0
SLOW = """
CREATE FUNCTION runstate.slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END $$;
CREATE TRIGGER slowly BEFORE INSERT ON runstate.scopes FOR EACH ROW WHEN (NEW.space_id = '{space}')
    EXECUTE FUNCTION runstate.slowly();
"""


@pytest.fixture
def replica(fresh_database):
    with Replica(fresh_database, POOL_SIZE="2", OUTAGE_WAIT_S=str(WAIT_S), SWEEP_S="60", TICK_S="60") as it:
        yield it


def slow_space(url, seconds):
    """A space whose new scopes take so long each."""
    space = spaces.create(url)
    database.execute(url, SLOW.format(space=space.id, seconds=seconds))
    return space


@pytest.fixture
def slow(fresh_database):
    return slow_space(fresh_database, 0.2)


async def timed(call):
    began_at = time.monotonic()
    return await call, time.monotonic() - began_at


async def test_two_hundred_callers_of_two_connections_are_served_in_turn_or_refused_in_time(
    replica, slow, fresh_database
):
    other = spaces.create(fresh_database)
    async with (
        slow.async_client(replica.url, limits=UNLIMITED) as busy,
        other.async_client(replica.url) as quiet,
    ):
        ok(await quiet.get("/scopes"))
        ok(await busy.get("/scopes"))
        crowd = [asyncio.create_task(timed(busy.post("/scopes", json={}))) for _ in range(CALLERS)]

        async def waiting():
            metrics = await asyncio.to_thread(Metrics.of, replica)
            return metrics.value("runstate_calls_waiting") > 20

        await races.until(waiting, what="a line of callers")
        asked = 0
        while not all(caller.done() for caller in crowd):
            response, took_s = await timed(quiet.post("/scopes", json={}))
            ok(response, 201)
            assert took_s < ANSWER_S_MAX
            asked += 1
        assert asked > 2  # one after another, while the others wait in their line
        ready = await quiet.get(f"{replica.url}/readyz")
        assert ready.status_code == 200
        answers = [await caller for caller in crowd]
    served = [response for response, _ in answers if response.is_success]
    for response, took_s in answers:
        assert took_s < ANSWER_S_MAX
        if not response.is_success:
            assert "busy" in refused(response, "UNAVAILABLE")
            assert float(response.headers["retry-after"]) > 0
            assert took_s > WAIT_S * 0.9  # nobody is sent away before his time
    assert 0 < len(served) < CALLERS
    with slow.client(replica.url) as api:
        listed = ok(api.get("/scopes", params={"limit": 500}))["scopes"]
    assert {scope["id"] for scope in listed} == {response.json()["id"] for response in served}


def test_a_replica_whose_connections_are_all_in_use_is_ready_all_the_same(replica, slow):
    """Else the balancer would send its callers to the others, and then theirs."""

    async def crowd():
        async with slow.async_client(replica.url, limits=UNLIMITED) as busy:
            callers = [asyncio.create_task(busy.post("/scopes", json={})) for _ in range(60)]

            async def probed():
                metrics = await asyncio.to_thread(Metrics.of, replica)
                return metrics.value("runstate_calls_waiting") > 20

            await races.until(probed, what="a line of callers")
            ready = [await busy.get(f"{replica.url}/readyz") for _ in range(3)]
            await asyncio.gather(*callers)
            return [response.status_code for response in ready]

    assert asyncio.run(crowd()) == [200] * 3


@pytest.mark.parametrize("take", ["recv", "admit"])
def test_who_hangs_up_while_his_call_waits_for_a_connection_leases_nothing(replica, fresh_database, take):
    """The call has its turn all the same, when nobody is left to take what it would get."""
    very_slow, space = slow_space(fresh_database, 1.2), spaces.create(fresh_database)
    with (
        space.client(replica.url) as api,
        very_slow.client(replica.url) as busy,
        ThreadPoolExecutor() as pool,
    ):
        box = mailbox(api, scope(api))
        message = sent(api, box) if take == "recv" else task(api, submitted(api, box))["messageId"]
        taking = getattr(box, take)(waitMs=30_000, lease_s=3600)
        crowd = [pool.submit(busy.post, "/scopes", json={}) for _ in range(2)]
        races.until_blocking(lambda: Metrics.of(replica).value("runstate_requests_open") >= 3, what="calls")
        with Connection(replica.port) as connection:
            connection.send(request_of(space, taking))
            waiting = "runstate_calls_waiting"
            races.until_blocking(lambda: Metrics.of(replica).value(waiting) == 1, what="a call in line")
        for caller in crowd:
            ok(caller.result(ANSWER_S_MAX), 201)
        races.until_blocking(lambda: gone(replica) == 1, what="a call that was given up")
        assert row(api, box, message)["state"] == "READY"


def gone(replica):
    """How many callers have hung up."""
    samples = Metrics.of(replica).samples.items()
    return sum(
        n
        for (name, labels), n in samples
        if name == "runstate_requests_total" and ("status", "499") in labels
    )


def request_of(space, call):
    content = json.dumps(call.body).encode()
    line = f"{call.method} /v1/spaces/{space.id}{call.path} HTTP/1.1"
    return head(line, f"Authorization: Bearer {space.key}", f"Content-Length: {len(content)}") + content
