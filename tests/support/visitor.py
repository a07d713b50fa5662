"""A pytest plugin for an interpreter without the server: fixtures backed by tests/support/bridge.py.

`pytest -p tests.support.visitor --confcutdir=tests/sdk tests/sdk`; names and shapes are those of conftest.py.
"""

import os
from types import SimpleNamespace

import httpx
import pytest

from tests.support.spaces import Space

HOSTED = {"clock", "database_url", "fresh_database", "kernel_schema", "template", "two_replicas"}


def pytest_collection_modifyitems(config, items):
    """A test that handles servers or databases itself runs on the server's Python only."""
    hosted = [item for item in items if HOSTED & set(item.fixturenames)]
    items[:] = [item for item in items if item not in hosted]
    config.hook.pytest_deselected(items=hosted)


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def server():
    return SimpleNamespace(url=os.environ["TESTS_SERVER_URL"])


@pytest.fixture
def space():
    return Space(**httpx.get(os.environ["TESTS_SPACES_URL"], timeout=30, trust_env=False).json())


@pytest.fixture
def api(server, space):
    with space.client(server.url) as client:
        yield client
