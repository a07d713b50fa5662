"""SIGTERM: long polls are answered at once, readyz turns 503, ordinary calls are answered, exit in 10 s."""

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support import races, spaces
from tests.support.builders import Once, held, ok, refused, scope
from tests.support.metrics import until_polls
from tests.support.processes import STOP_S_MAX, Replica

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
