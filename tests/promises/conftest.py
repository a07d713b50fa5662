"""Whatever these suites send, no defect of the server answers it."""

import pytest

from tests.support.metrics import Metrics


@pytest.fixture(scope="session", autouse=True)
def no_call_of_the_whole_run_ended_in_a_500(server):
    """Looked at when all is done, over every call of this worker's tests."""
    yield
    log = server.log()
    counts = Metrics.of(server).samples.items()
    crashed = [labels for (_, labels), count in counts if count and ("status", "500") in labels]
    assert crashed == [], log[log.find("a request crashed") :][:4000]
