"""The database goes away: calls wait inside, then say so; it comes back: all goes on by itself."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support import database, races, spaces
from tests.support.builders import Once, ok, refused, scope
from tests.support.metrics import until_polls
from tests.support.processes import Replica
from tests.support.proxy import RoundRobin, database_socket, database_through

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    """A cluster that this file may stop and start."""
    own = database.Cluster(durable=True)
    with own:
        yield own.postgres


@pytest.fixture(scope="module")
def url(cluster):
    return cluster.database_url(database.TEMPLATE)


@pytest.fixture(scope="module")
def replica(url):
    """Waits for a second, not for five."""
    with Replica(url, OUTAGE_WAIT_S="1", SWEEP_S="0.1", TICK_S="0.2", LOG_LEVEL="warning") as replica:
        yield replica


@pytest.fixture
def api(url, replica):
    with spaces.create(url).client(replica.url) as client:
        yield client


class Workers(threading.Thread):
    """Does keys one after another until told to stop; keeps every answer that is not a success."""

    def __init__(self, url, space, scope_id, name):
        super().__init__(name=name)
        self._url, self._space, self._scope = url, space, scope_id
        self.enough = threading.Event()
        self.done = 0
        self.refusals = []

    def run(self):
        with self._space.client(self._url) as client:
            while not self.enough.is_set():
                once = Once(self._scope, f"{self.name}-{self.done}")
                acquired = once.acquire().send(client, f"a-{once.key}")
                token = acquired.json().get("token", "none")
                completed = once.complete(token, self.done).send(client, f"c-{once.key}")
                self.refusals += [r.text for r in (acquired, completed) if r.status_code != 200]
                self.done += 1


def test_a_restart_of_the_database_is_waited_out_by_the_calls_under_way(cluster, url):
    space = spaces.create(url)
    with Replica(url, OUTAGE_WAIT_S="30", LOG_LEVEL="warning") as replica, space.client(replica.url) as api:
        root = scope(api)
        workers = [Workers(replica.url, space, root, f"w{i}") for i in range(6)]
        for worker in workers:
            worker.start()
        for restart in (cluster.stop, cluster.kill):
            counts = [worker.done for worker in workers]
            races.until_blocking(
                lambda c=counts: all(w.done > n + 2 for w, n in zip(workers, c, strict=True)), what="work"
            )
            restart()
            cluster.start()
        counts = [worker.done for worker in workers]
        races.until_blocking(
            lambda: all(w.done > n for w, n in zip(workers, counts, strict=True)),
            what="work after the restarts",
        )
        for worker in workers:
            worker.enough.set()
            worker.join(60)
        assert [worker.refusals for worker in workers] == [[]] * len(workers)
        for worker in workers:
            for i in range(worker.done):
                seen = ok(Once(root, f"{worker.name}-{i}").view().send(api))
                assert seen == {"state": "DONE", "attempts": 0, "result": i}


def test_while_the_database_is_away_calls_answer_503_and_afterwards_all_recovers(cluster, url, replica, api):
    once = Once(scope(api))
    ok(once.acquire().send(api))
    ok(api.get("/scopes"))
    cluster.stop()
    try:
        with ThreadPoolExecutor() as pool:
            asked_at = time.monotonic()
            calls = [once.acquire("b"), once.view(), once.view(30_000)]
            answers = [pool.submit(call.send, api) for call in calls]
            answers += [pool.submit(api.get, "/scopes"), pool.submit(api.post, "/scopes", json={})]
            for answer in answers:
                response = answer.result(60)
                refused(response, "UNAVAILABLE")
                assert float(response.headers["retry-after"]) > 0
            assert time.monotonic() - asked_at < 30
        response = httpx.get(f"{replica.url}/readyz", timeout=20, trust_env=False)
        assert "database" in refused(response, "UNAVAILABLE")
        assert httpx.get(f"{replica.url}/healthz", timeout=20, trust_env=False).status_code == 200
        assert httpx.get(f"{replica.url}/metrics", timeout=20, trust_env=False).status_code == 200
    finally:
        cluster.start()
    replica.wait_ready()
    assert ok(once.acquire("b").send(api))["state"] == "HELD"
    assert len(ok(api.get("/scopes"))["scopes"]) == 1
    assert ok(api.post("/scopes", json={}), 201)


def test_a_new_key_is_not_called_unknown_while_the_database_is_away(cluster, url, replica):
    """401 would make a client give up; the truth is that nobody knows."""
    space = spaces.create(url)
    cluster.stop()
    try:
        with space.client(replica.url) as client:
            refused(client.get("/scopes"), "UNAVAILABLE")
    finally:
        cluster.start()


def test_a_sleeping_poll_outlives_a_restart_and_the_bus_is_heard_again(cluster, url, replica, api):
    once = Once(scope(api))
    token = ok(once.acquire(lease_s=3600).send(api))["token"]
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(once.view(30_000).send, api)
        until_polls(replica, 1)
        cluster.stop()
        cluster.start()
        replica.wait_ready()
        response = poll.result(60) if poll.done() else None
        assert response is None or response.status_code == 503
        ok(once.complete(token, 1).send(api))
        if response is None:
            assert ok(poll.result(60))["state"] == "DONE"
    listening = f"{replica.url}/metrics"
    races.until_blocking(
        lambda: "runstate_listening 1.0" in httpx.get(listening, timeout=20, trust_env=False).text,
        what="the listener's return",
    )


@pytest.fixture
def cut(url):
    """A replica whose every byte to the database goes through a proxy."""
    with (
        RoundRobin([database_socket(url)]) as proxy,
        Replica(database_through(proxy, url), OUTAGE_WAIT_S="5", NOTIFY="false") as replica,
        spaces.create(url).client(replica.url) as client,
    ):
        yield proxy, client


def test_a_connection_lost_after_the_commit_is_repaired_by_the_key_or_told_as_unknown(cut):
    proxy, client = cut
    root = scope(client)
    ok(Once(root, "warm").acquire().send(client))

    proxy.drop_reply(b"kept-by-its-key")
    kept = Once(root, "kept-by-its-key")
    response = kept.acquire().send(client, "some key")
    assert proxy.dropped.is_set()
    answer = ok(response)
    assert answer["state"] == "ACQUIRED"
    assert "idempotent-replayed" not in response.headers  # to the client it is the first answer
    assert ok(kept.complete(answer["token"], 1).send(client)) == {"state": "DONE"}

    proxy.drop_reply(b"without-a-key")
    lost = Once(root, "without-a-key")
    message = refused(lost.acquire().send(client), "UNAVAILABLE")
    assert proxy.dropped.is_set()
    assert "unknown" in message
    assert "Idempotency-Key" in message
    assert ok(lost.view().send(client))["state"] == "HELD"  # it had been committed

    proxy.drop_reply(b"only-a-look")
    assert ok(Once(root, "only-a-look").view().send(client))["state"] == "OPEN"  # a read is simply repeated
    assert proxy.dropped.is_set()
