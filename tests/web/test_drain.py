"""SIGTERM: long polls are answered at once, readyz turns 503, ordinary calls are answered, exit in 10 s."""

import asyncio
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support import races, spaces
from tests.support.builders import Call, Once, held, ok, refused, scope
from tests.support.metrics import until_polls
from tests.support.processes import STOP_S_MAX, Replica
from tests.support.queues import Claim, delivery, mailbox, row, sent, submitted, task, view

pytestmark = pytest.mark.processes


def ready(replica):
    return httpx.get(f"{replica.url}/readyz", timeout=10, trust_env=False)


def test_a_stopping_replica_answers_its_polls_and_its_calls_and_ends_well(fresh_database):
    space = spaces.create(fresh_database)
    replica = Replica(fresh_database, DRAIN_GRACE_S="4", TICK_S="60")
    with replica, space.client(replica.url) as api, ThreadPoolExecutor(5) as pool:
        once = Once(scope(api))
        token = held(api, once, holder="ann", lease_s=3600)
        polls = [pool.submit(once.view(30_000).send, api) for _ in range(5)]
        until_polls(replica, 5)
        replica.process.send_signal(signal.SIGTERM)

        for poll in polls:
            answer = ok(poll.result(8))
            assert (answer["state"], answer["holder"]) == ("HELD", "ann")
        response = ready(replica)
        assert "draining" in refused(response, "UNAVAILABLE")
        assert response.headers["retry-after"]
        # A failed renewal would be taken for a lost lease: everything but a wait goes on as ever.
        ok(once.renew(token, 600).send(api))
        assert ok(once.view(30_000).send(api))["state"] == "HELD"  # a new poll does not wait either
        assert ok(once.complete(token, 1).send(api)) == {"state": "DONE"}
        ok(api.post("/scopes", json={}), 201)
        assert httpx.get(f"{replica.url}/healthz", timeout=10, trust_env=False).status_code == 200

        assert replica.process.wait(STOP_S_MAX) == 0
    with pytest.raises(httpx.ConnectError):
        ready(replica)


def test_a_replica_without_anything_to_do_stops_well(fresh_database):
    with Replica(fresh_database, DRAIN_GRACE_S="0") as replica:
        assert replica.stop() == 0
        assert "Traceback" not in replica.log()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_not_needed_and_does_no_harm(fresh_database, number):
    space = spaces.create(fresh_database)
    replica = Replica(fresh_database, DRAIN_GRACE_S="1")
    with replica, space.client(replica.url) as api, ThreadPoolExecutor(1) as pool:
        once = Once(scope(api))
        held(api, once, lease_s=3600)
        poll = pool.submit(once.view(30_000).send, api)
        until_polls(replica, 1)
        replica.process.send_signal(number)
        assert poll.result(9).status_code == 200
        replica.process.send_signal(number)
        try:
            replica.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            pytest.fail("the replica hangs after a second signal")
        assert "Traceback" not in replica.log()


def test_what_a_stopped_replica_held_is_taken_over_by_the_other(fresh_database):
    """The bus of the one that stays does not need the one that went."""
    space = spaces.create(fresh_database)
    with Replica(fresh_database) as stays, space.client(stays.url) as api:
        with Replica(fresh_database) as goes, space.client(goes.url) as there:
            once = Once(scope(there))
            held(there, once, lease_s=1)
            assert goes.stop() == 0
        assert ok(once.view(30_000).send(api))["state"] == "OPEN"
        assert ok(once.acquire().send(api))["state"] == "ACQUIRED"
        metrics = f"{stays.url}/metrics"
        races.until_blocking(
            lambda: "runstate_replicas 1.0" in httpx.get(metrics, timeout=9, trust_env=False).text,
            what="one replica in the count",
        )


def polls_of(api):
    """A long poll of every kind, and what it is told when its replica stops."""
    root = scope(api)
    once, claim = Once(root), Claim(root)
    held(api, once, holder="ann", lease_s=3600)
    ok(claim.acquire(lease_s=3600).send(api), 201)
    empty, full = mailbox(api, root, "empty"), mailbox(api, root, "full")
    job = submitted(api, full)
    watched = ok(api.get("/events", params={"limit": 500}))["nextCursor"]
    return [
        (once.view(30_000), lambda response: ok(response)["state"] == "HELD"),
        (claim.acquire("other", waitMs=30_000), lambda response: refused(response, "CLAIM_HELD")),
        (empty.recv(waitMs=30_000), lambda response: response.status_code == 204),
        (empty.admit(waitMs=30_000), lambda response: response.status_code == 204),
        (view(job, 30_000), lambda response: ok(response)["state"] == "QUEUED"),
        (
            Call("GET", f"/watch?cursor={watched}&waitSeconds=8"),
            lambda response: ok(response)["events"] == [] and response.json()["nextCursor"] == watched,
        ),
    ]


def test_every_kind_of_poll_is_told_how_things_stand_when_its_replica_stops(fresh_database):
    space = spaces.create(fresh_database)
    replica = Replica(fresh_database, DRAIN_GRACE_S="0.5", TICK_S="60", SWEEP_S="60")
    with replica, space.client(replica.url) as api, ThreadPoolExecutor() as pool:
        told = [(pool.submit(call.send, api), is_so) for call, is_so in polls_of(api)]
        until_polls(replica, len(told))
        stopped_at = time.monotonic()
        assert replica.stop() == 0
        for poll, is_so in told:
            assert is_so(poll.result(1))
        assert time.monotonic() - stopped_at < STOP_S_MAX


def test_calls_under_way_when_a_replica_stops_are_answered(fresh_database):
    """They wait at a lock until the signal has been heard."""
    space = spaces.create(fresh_database)
    replica = Replica(fresh_database, DRAIN_GRACE_S="0")
    with replica, space.client(replica.url) as api, ThreadPoolExecutor() as pool:
        once = Once(scope(api))
        token = held(api, once, lease_s=3600)
        calls = [once.renew(token, 600), once.complete(token, 1)]

        async def stopped_meanwhile():
            async with races.holding(fresh_database, LOCKED, once.scope):
                answers = [pool.submit(call.send, api) for call in calls]
                await races.until_waiting(fresh_database, count=len(calls))
                replica.process.send_signal(signal.SIGTERM)
                await races.until(closed, what="the end of the listening")
            return answers

        async def closed():
            try:
                await asyncio.to_thread(ready, replica)
            except httpx.ConnectError:
                return True
            return False

        for answer in asyncio.run(stopped_meanwhile()):
            assert answer.result(STOP_S_MAX).is_success or refused(answer.result(), "STALE_CLAIM")
        assert replica.process.wait(STOP_S_MAX) == 0
        assert "Traceback" not in replica.log()


LOCKED = "SELECT 1 FROM runstate.once o WHERE o.scope_id = $1::text::uuid FOR UPDATE"


@pytest.mark.parametrize("grace_s", ["0", "0.3"])
def test_what_is_granted_while_a_replica_stops_has_been_told_to_its_taker(fresh_database, grace_s):
    """Polls of every kind that grants, and a flood of things to be granted, with the signal in the middle."""
    space = spaces.create(fresh_database)
    settings = {"TICK_S": "0.1", "SWEEP_S": "60"}
    with Replica(fresh_database, **settings) as stays, space.client(stays.url) as api:
        root = scope(api)
        inbox, jobs = mailbox(api, root, "messages"), mailbox(api, root, "jobs")
        claims = [Claim(root, f"claim-{n}") for n in range(10)]
        tokens = [ok(claim.acquire(lease_s=3600).send(api), 201)["token"] for claim in claims]
        polls = [inbox.recv(lease_s=3600, waitMs=30_000), jobs.admit(lease_s=3600, waitMs=30_000)] * 10
        polls += [claim.acquire("other", lease_s=3600, waitMs=30_000) for claim in claims]
        with (
            Replica(fresh_database, DRAIN_GRACE_S=grace_s, **settings) as goes,
            ThreadPoolExecutor(len(polls)) as pool,
            space.client(goes.url) as there,
        ):
            answers = [pool.submit(poll.send, there) for poll in polls]
            until_polls(goes, len(polls))
            messages, tasks = [], []
            for n, (claim, token) in enumerate(zip(claims, tokens, strict=True)):
                messages.append(sent(api, inbox))
                tasks.append(submitted(api, jobs, f"job-{n}"))
                ok(claim.release(token).send(api))
                if n == len(claims) // 2:
                    goes.process.send_signal(signal.SIGTERM)
            assert goes.process.wait(STOP_S_MAX) == 0
            told = [answer.result(1) for answer in answers]
        given = {delivery(r.json()).id for r in told if r.status_code == 200}
        for message in messages:
            assert (row(api, inbox, message)["state"] == "LEASED") == (message in given)
        for job in tasks:
            seen = task(api, job)
            assert (seen["state"] == "RUNNING") == (seen["messageId"] in given)
        owned = {r.json()["key"] for r in told if r.status_code == 201}
        for claim in claims:
            assert (ok(claim.view().send(api))["state"] == "HELD") == (claim.key in owned)
