"""What the races of rooms need: many callers at once."""

import pytest

from tests.support.builders import at_once


@pytest.fixture
def storm(both_apis):
    """Send many calls at once over two replicas; returns the responses."""

    async def send(calls):
        return await at_once(both_apis, calls)

    return send
