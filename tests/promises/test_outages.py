"""The database is away: calls wait inside, then say so; it comes back: all goes on by itself.

Held over every route and every way in which a database can be away, see tests/support/faults.py; a new room
joins by its rows, see table.py.
"""

import asyncio
import contextlib
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from tests.promises.table import SHAPES
from tests.support import database, races, spaces
from tests.support.builders import Call, Once, held, ok, refused, scope
from tests.support.faults import AILING, AWAY, Victim, an_empty_one, crowded, frozen, stopped, swallowed
from tests.support.metrics import Metrics, until_polls
from tests.support.processes import Replica
from tests.support.proxy import RoundRobin, database_socket, database_through
from tests.support.queues import Claim, mailbox, submitted, view

pytestmark = pytest.mark.processes
WAITS_S = "1"
ANSWER_S_MAX = 30.0  # generous: what is to be seen is that nothing hangs as long as its fault does
WAITING = "calls wait for the database"
CONNECTIONS = "60"  # of the cluster: few enough to be used up at once


def named(fault):
    return fault.__name__


EVERY_ABSENCE = pytest.mark.parametrize("fault", AWAY, ids=named)


@pytest.fixture(scope="module")
def victim():
    """A database in a cluster that this file may do anything to."""
    own = database.Cluster(durable=True, max_connections=CONNECTIONS)
    with own as template, template.clone("victim") as url, RoundRobin([database_socket(url)]) as wire:
        yield Victim(own.postgres, urlsplit(url).path.removeprefix("/"), wire)


@pytest.fixture(scope="module")
def started(victim):
    """Replicas that wait so long for a database, reached directly or by wire; started when first asked for,
    and kept."""
    with contextlib.ExitStack() as exits:
        known = {}

        def start(wait_s, *, wired):
            if (wait_s, wired) not in known:
                url = database_through(victim.wire, victim.url) if wired else victim.url
                replica = Replica(url, OUTAGE_WAIT_S=wait_s, LOG_LEVEL="warning", SWEEP_S="0.2", TICK_S="0.2")
                known[wait_s, wired] = exits.enter_context(replica)
            return known[wait_s, wired]

        yield start


@pytest.fixture
def replica(started, request):
    fault = request.getfixturevalue("fault")
    return started(WAITS_S, wired=fault is swallowed)


@pytest.fixture
def space(victim):
    return spaces.create(victim.url)


@pytest.fixture
def api(replica, space):
    with space.client(replica.url) as client:
        yield client


def every_call(api):
    """A call of every route that will succeed, and a long poll of every kind."""
    once = Once(scope(api))
    held(api, once, lease_s=3600)
    claim = Claim(once.scope)
    ok(claim.acquire(lease_s=3600).send(api), 201)
    box = mailbox(api, once.scope, f"empty-{once.scope}")
    full = mailbox(api, once.scope, f"full-{once.scope}")
    polls = [
        once.view(30_000),
        claim.acquire("other", waitMs=30_000),
        box.recv(waitMs=30_000),
        box.admit(waitMs=30_000),
        view(submitted(api, full), 30_000),
    ]
    return [shape.call(api) for shape in SHAPES], polls


def sent(space, url, calls):
    """All of them at once, on a thread: a future of the responses, each with the seconds it took. A call has
    the same Idempotency-Key every time."""

    async def send(client, number, call):
        began_at = time.monotonic()
        response = await call.send(client, f"call-{number}")
        return response, time.monotonic() - began_at

    async def send_all():
        limits = httpx.Limits(max_connections=None)
        async with space.async_client(url, limits=limits, timeout=90) as client:
            return await asyncio.gather(*(send(client, n, call) for n, call in enumerate(calls)))

    thread = ThreadPoolExecutor(1)
    answers: Future = thread.submit(asyncio.run, send_all())
    thread.shutdown(wait=False)
    return answers


def away(response):
    """Refused as a database that is away must be."""
    refused(response, "UNAVAILABLE")
    assert float(response.headers["retry-after"]) > 0
    return True


def probe(replica, path):
    return httpx.get(f"{replica.url}{path}", timeout=20, trust_env=False)


@EVERY_ABSENCE
def test_while_the_database_is_away_every_call_is_refused_in_time_and_later_goes_through(
    victim, replica, space, api, fault
):
    calls, polls = every_call(api)
    with fault(victim):
        answers = sent(space, replica.url, calls + polls).result(90)
        for response, took_s in answers:
            assert away(response)
            assert took_s < ANSWER_S_MAX
        assert "database" in refused(probe(replica, "/readyz"), "UNAVAILABLE")
        assert probe(replica, "/healthz").status_code == 200
        assert probe(replica, "/metrics").status_code == 200
    replica.wait_ready()
    for response, _ in sent(space, replica.url, calls).result(90):
        assert response.is_success, response.text


@EVERY_ABSENCE
def test_an_outage_that_is_shorter_than_the_wait_is_noticed_by_no_call(victim, started, space, fault):
    replica = started("40", wired=fault is swallowed)
    with space.client(replica.url) as api:
        calls, _ = every_call(api)
        logged = replica.log().count(WAITING)
        with fault(victim):
            answers = sent(space, replica.url, calls)
            if fault not in {frozen, swallowed}:  # then nobody can see that something is amiss
                races.until_blocking(lambda: replica.log().count(WAITING) > logged, what="a call that waits")
        for response, _ in answers.result(90):
            assert response.is_success, response.text
            assert "idempotent-replayed" not in response.headers


@pytest.mark.parametrize("fault", AILING, ids=named)
def test_an_ailing_database_answers_what_it_can_and_the_rest_is_refused_and_later_goes_through(
    victim, replica, space, api, fault
):
    calls, _ = every_call(api)
    with fault(victim):
        first = sent(space, replica.url, calls).result(90)
        for response, took_s in first:
            assert response.is_success or away(response)
            assert took_s < ANSWER_S_MAX
    again = sent(space, replica.url, calls).result(90)
    for (before, _), (after, _) in zip(first, again, strict=False):
        assert after.is_success, after.text
        if before.is_success and "idempotent-replayed" in after.headers:
            assert after.content == before.content


@pytest.mark.parametrize("fault", [stopped, frozen, swallowed, crowded], ids=named)
def test_a_replica_stops_in_time_though_its_database_is_away_and_answers_what_is_inside(victim, space, fault):
    url = database_through(victim.wire, victim.url) if fault is swallowed else victim.url
    with Replica(url) as replica, space.client(replica.url) as api:
        once = Once(scope(api))
        held(api, once, lease_s=3600)
        polls = sent(space, replica.url, [once.view(30_000)] * 3)
        until_polls(replica, 3)
        calls, _ = every_call(api)
        with fault(victim):
            answers = sent(space, replica.url, calls)
            races.until_blocking(lambda: inside(replica, len(calls)), what="calls inside")
            assert replica.stop() == 0
        for response, _ in answers.result(5):
            assert away(response)
        for response, _ in polls.result(5):
            assert ok(response)["state"] == "HELD"
        assert "Traceback" not in replica.log()


def inside(replica, count):
    """Whether so many calls have come and not been answered."""
    return Metrics.of(replica).value("runstate_requests_open") >= count


@pytest.mark.parametrize("fault", [stopped, frozen, swallowed, an_empty_one], ids=named)
def test_a_poll_that_sleeps_through_an_outage_is_woken_by_what_comes_after_it(
    victim, replica, space, api, fault
):
    once = Once(scope(api))
    token = held(api, once, lease_s=3600)
    polls = sent(space, replica.url, [once.view(30_000)] * 3)
    until_polls(replica, 3)
    with fault(victim):
        away(Call("POST", "/scopes", {}).send(api))
    replica.wait_ready()
    ok(once.complete(token, 1).send(api))
    for response, _ in polls.result(60):
        assert response.json().get("state") == "DONE" or away(response)


@pytest.mark.parametrize("fault", [stopped, frozen], ids=named)
def test_a_stream_of_events_outlives_an_outage_and_tells_none_twice(victim, replica, api, fault):
    def told():
        found = []
        with api.stream("GET", "/events/stream") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: ")))
                    if found[-1]["aggregate"]["id"] == "the last":
                        return [event["eventId"] for event in found]
        return "the stream ended"

    root = scope(api)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(told)
        until_polls(replica, 1)
        for _ in range(3):
            scope(api)
        with fault(victim):
            away(Call("POST", "/scopes", {}).send(api))  # by then the stream has looked in vain
        replica.wait_ready()
        held(api, Once(root, "the last"))
        ids = reading.result(30)
    assert len(ids) == len(set(ids)) >= 6
