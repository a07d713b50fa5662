"""Whatever these suites send, no defect of the server answers it."""

import pytest

from tests.support.metrics import Metrics


@pytest.fixture(scope="session", autouse=True)
def no_call_of_the_whole_run_ended_in_a_500(server):
    """Looked at when all is done, over every call of this worker's tests."""
    yield
    crashed = [
        (dict(labels)["method"], dict(labels)["route"])
        for (name, labels), count in Metrics.of(server).samples.items()
        if name == "runstate_requests_total" and count and dict(labels)["status"] == "500"
    ]
    assert crashed == []
