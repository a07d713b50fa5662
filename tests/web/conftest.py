"""Whatever these suites send, no defect of the server answers it."""

import pytest

from tests.support.metrics import crashed


@pytest.fixture(scope="session", autouse=True)
def no_call_of_the_web_suites_ended_in_a_500(server):
    """Looked at when all is done, over every call of this worker's tests."""
    yield
    assert crashed(server) == "", "the log of the first crash"
