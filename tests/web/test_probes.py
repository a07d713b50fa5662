"""What a replica says without a key: alive, ready, its metrics, its document."""

import httpx
import pytest

from tests.support.builders import Once, held, ok, refused, scope
from tests.support.metrics import Metrics


@pytest.fixture
def probe(server):
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
        yield client


def test_alive_and_ready_need_no_key(probe):
    assert ok(probe.get("/healthz")) == {"status": "ok"}
    assert ok(probe.get("/readyz")) == {"status": "ready"}


def test_the_document_and_its_reader_need_no_key(probe):
    assert ok(probe.get("/openapi.json"))["openapi"].startswith("3.")
    docs = probe.get("/docs")
    assert docs.status_code == 200
    assert docs.headers["content-type"].startswith("text/html")


def test_metrics_count_requests_by_route_and_never_by_user_s_names(server, probe, api, space):
    once = Once(scope(api), "a-very-secret-key")
    before = Metrics.of(server)
    labels = {"method": "POST", "route": "/v1/spaces/{space_id}/once/acquire", "status": "200"}
    held(api, once)
    refused(once.renew("wrong").send(api), "STALE_CLAIM")
    after = Metrics.of(server)
    name = "runstate_requests_total"
    assert after.value(name, **labels) == before.value(name, **labels) + 1
    renewals = labels | {"route": "/v1/spaces/{space_id}/once/renew", "status": "409"}
    assert after.value(name, **renewals) == before.value(name, **renewals) + 1
    text = probe.get("/metrics").text
    for secret in ("a-very-secret-key", space.id, space.key, once.scope):
        assert secret not in text


def test_metrics_show_pool_polls_bus_sweeps_and_sequencer(server):
    metrics = Metrics.of(server)
    assert metrics.value("runstate_pool_max") == 8
    assert metrics.value("runstate_pool_connections") >= metrics.value("runstate_pool_idle")
    assert metrics.open_polls == 0
    assert metrics.value("runstate_listening") == 1
    assert metrics.value("runstate_replicas") >= 1
    names = {name for name, _ in metrics.samples}
    assert names >= {
        "runstate_wakeups_total",
        "runstate_swept_total",
        "runstate_sweep_lag_seconds",
        "runstate_journal_moved_total",
        "runstate_request_seconds_count",
    }


def test_an_unknown_path_is_counted_under_one_label(server, probe):
    before = Metrics.of(server)
    labels = {"method": "GET", "route": "unknown", "status": "404"}
    for i in range(3):
        assert probe.get(f"/nowhere-{i}").status_code == 404
    name = "runstate_requests_total"
    assert Metrics.of(server).value(name, **labels) == before.value(name, **labels) + 3
