"""Whatever these suites send, no defect of the server answers it; and who sends it."""

import httpx
import pytest

from tests.promises.everyone import Everyone
from tests.support import spaces
from tests.support.journal import events
from tests.support.metrics import crashed


@pytest.fixture(scope="session", autouse=True)
def no_call_of_the_whole_run_ended_in_a_500(server):
    """Looked at when all is done, over every call of this worker's tests."""
    yield
    assert crashed(server) == "", "the log of the first crash"


@pytest.fixture
def everyone(server, space, api):
    """Callers of every kind, in a space of the test's own."""
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as door:
        yield Everyone(space, api, door)


@pytest.fixture(scope="module")
def residents(server, database_url):
    """The same in one space for all tests of a module that change nothing."""
    space = spaces.create(database_url)
    with (
        space.client(server.url) as api,
        httpx.Client(base_url=server.url, timeout=20, trust_env=False) as door,
    ):
        yield Everyone(space, api, door)


@pytest.fixture(scope="module")
def meant(residents, database_url):
    """Run what is meant to change something in the residents' space. Everything else changes nothing: at the
    end nobody has told of anything more, leases that ended by themselves apart."""
    told = []

    def tales():
        return [e.type for e in events(database_url, residents.space.id) if not e.type.endswith(".lapsed")]

    def run(make):
        before = len(tales())
        made = make()
        told.extend(tales()[before:])
        return made

    yield run
    assert tales()[1:] == told  # the first is of the space's own key


@pytest.fixture(scope="module")
def calls(residents, meant):
    """A call of each route, made at its first mention. It is sent with something wrong in it."""
    made = {}

    def call(route):
        if str(route) not in made:
            made[str(route)] = meant(lambda: residents.call(route))
        return made[str(route)]

    return call
