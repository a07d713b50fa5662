"""One cluster per run, owned by whoever runs pytest (under xdist: the controller); one clone of the migrated
template per worker; a fresh space per test, never a rollback."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import database, patience, processes, proxy, spaces
from tests.support.clock import Clock
from tests.support.database import Cluster, Template
from tests.support.patience import Patient
from tests.support.processes import Replica
from tests.support.spaces import Space

_cluster = pytest.StashKey[Cluster]()


def _start_cluster(config: pytest.Config) -> Template:
    cluster = Cluster()
    template = cluster.start()
    config.stash[_cluster] = cluster
    return template


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """On xdist's controller, before a worker starts: the first one starts the cluster, all are told of it."""
    shared = node.config.stash.setdefault(_handed_over, {})
    if not shared:
        try:
            shared["admin_url"] = _start_cluster(node.config).admin_url
        except Exception as e:  # noqa: BLE001 (tests that need no database still run)
            shared["broken"] = f"{type(e).__name__}: {e}"
    node.workerinput |= shared


_handed_over = pytest.StashKey[dict[str, str]]()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The cluster ends with the run."""
    if _cluster in config.stash:
        config.stash[_cluster].stop()
        del config.stash[_cluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes would fight for the machine: one xdist group runs them one by one."""
    for item in items:
        if item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def template(request: pytest.FixtureRequest) -> Template:
    """The migrated template: clone() and empty() make further databases."""
    handed: dict[str, str] | None = getattr(request.config, "workerinput", None)
    if handed is None:
        return _start_cluster(request.config)
    if "broken" in handed:
        pytest.fail(f"the test cluster did not start: {handed['broken']}", pytrace=False)
    return Template(handed["admin_url"])


@pytest.fixture(scope="session")
def database_url(template: Template, worker_name: str) -> Iterator[str]:
    """This worker's migrated database, shared by its tests; a space of its own isolates each."""
    with template.clone(f"worker_{worker_name}") as url:
        yield url


@pytest.fixture(scope="session")
def worker_name(request: pytest.FixtureRequest) -> str:
    """gw0, gw1, ...; without xdist: main."""
    handed: dict[str, str] = getattr(request.config, "workerinput", {})
    return handed.get("workerid", "main")


@pytest.fixture
def fresh_database(template: Template) -> Iterator[str]:
    """A migrated database for one test alone: to count rows, or to shift time under several servers."""
    with template.clone() as url:
        yield url


@pytest.fixture(scope="session")
def server(database_url: str) -> Iterator[Replica]:
    """This worker's server, a real process on the worker's database.
    Leave it running: a test that kills servers starts Replicas of its own."""
    with Replica(
        database_url,
        BOOTSTRAP_SPACE_ID="bootstrap",
        BOOTSTRAP_API_KEY="rs_test_bootstrap_key",
        ADMIN_TOKEN=spaces.ADMIN_TOKEN,
    ) as replica:
        yield replica


@pytest.fixture(scope="session")
def second_server(database_url: str) -> Iterator[Replica]:
    """Another replica on the worker's database; leave it running, too."""
    with Replica(database_url) as replica:
        yield replica


@pytest.fixture
def space(database_url: str) -> Space:
    """A new space with a key of all permissions, in this worker's database."""
    return spaces.create(database_url)


@pytest.fixture
def api(server: Replica, space: Space) -> Iterator[Any]:
    """An httpx.Client whose paths are relative to the space: api.post("/scopes", json={})."""
    with space.client(server.url) as client:
        yield client


@pytest.fixture
async def async_api(server: Replica, space: Space) -> Any:
    """The same for async tests."""
    async with space.async_client(server.url) as client:
        yield client


@pytest.fixture
async def both_apis(server: Replica, second_server: Replica, space: Space) -> Any:
    """Two async clients, one for each of two replicas."""
    async with space.async_client(server.url) as one, space.async_client(second_server.url) as two:
        yield one, two


@pytest.fixture
def clock(database_url: str) -> Iterator[Clock]:
    """The clock of this worker's database, set back after the test."""
    clock = Clock(database_url)
    yield clock
    clock.reset()


@pytest.fixture
def two_replicas(fresh_database: str) -> Iterator[tuple[proxy.RoundRobin, list[Replica]]]:
    """Two servers on a fresh database behind one port."""
    with (
        processes.replicas(fresh_database) as both,
        proxy.RoundRobin([replica.port for replica in both]) as front,
    ):
        yield front, both


@pytest.fixture(scope="session")
def patient(template: Template, worker_name: str) -> Iterator[Patient]:
    """As a rule a call that waits 500 ms for a lock gets in line anew. A test of the order in that line needs
    calls that stay in it, and deadlocks need calls that wait for each other."""
    with template.clone(f"patient_{worker_name}") as url:
        database.execute(url, patience.SQL.format(name=database.fetchval(url, "SELECT current_database()")))
        with Replica(url) as replica:
            yield Patient(url, replica)


@pytest.fixture(scope="session")
def kernel_schema() -> str:
    """The schema of the kernel's functions in every database of the run."""
    return database.kernel_schema()
