"""What the races and waits of rooms need: many callers at once, and replicas that differ in what may wake
them."""

import pytest

from tests.support import waits
from tests.support.builders import at_once


@pytest.fixture(scope="session")
def waits_group(template):
    """Three replicas that differ in what may wake their long polls."""
    with waits.group(template) as group:
        yield group


@pytest.fixture
def storm(both_apis):
    """Send many calls at once over two replicas; returns the responses."""

    async def send(calls):
        return await at_once(both_apis, calls)

    return send
