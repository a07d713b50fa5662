"""The tools that the other tests lean on do what they say."""

import asyncio
import socket
import threading

import asyncpg
import pytest

from tests.support import database, races, spaces
from tests.support.clock import Clock
from tests.support.proxy import RoundRobin, database_socket, database_through


class Echo:
    """A server that answers each chunk with its name and the chunk, and counts what it was asked."""

    def __init__(self, name):
        self.name = name.encode()
        self.asked = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                while chunk := connection.recv(1000):
                    self.asked.append(chunk)
                    connection.sendall(self.name + b":" + chunk)
            except OSError:
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def ask(connection, text):
    connection.sendall(text)
    return connection.recv(1000)


def dial(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


@pytest.fixture
def echoes():
    with Echo("a") as a, Echo("b") as b:
        yield a, b


def test_a_round_robin_deals_connections_in_turn_and_passes_over_the_dead(echoes):
    a, b = echoes
    with RoundRobin([a.port, b.port]) as proxy:
        with dial(proxy) as one, dial(proxy) as two:
            assert {ask(one, b"x"), ask(two, b"x")} == {b"a:x", b"b:x"}
            assert ask(one, b"y")[2:] == b"y"
        with socket.create_server(("127.0.0.1", 0)) as gone:
            dead = gone.getsockname()[1]
        proxy.backends = [dead, b.port]
        for _ in range(3):
            with dial(proxy) as connection:
                assert ask(connection, b"z") == b"b:z"


def test_a_severed_connection_is_cut_and_a_new_one_works(echoes):
    with RoundRobin([echoes[0].port]) as proxy, dial(proxy) as connection:
        assert ask(connection, b"x") == b"a:x"
        proxy.sever()
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
        with dial(proxy) as another:
            assert ask(another, b"x") == b"a:x"


def test_a_black_hole_keeps_connections_open_and_delivers_when_it_ends(echoes):
    with RoundRobin([echoes[0].port]) as proxy, dial(proxy) as connection:
        assert ask(connection, b"x") == b"a:x"
        proxy.blackhole(True)
        connection.sendall(b"y")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        connection.settimeout(10)
        proxy.blackhole(False)
        assert connection.recv(10) == b"a:y"


def test_a_dropped_reply_has_reached_the_backend(echoes):
    with RoundRobin([echoes[0].port]) as proxy, dial(proxy) as connection:
        proxy.drop_reply(b"acquire")
        assert ask(connection, b"other") == b"a:other"
        connection.sendall(b"please acquire")
        assert connection.recv(10) == b""
        assert proxy.dropped.is_set()
        assert echoes[0].asked == [b"other", b"please acquire"]
        with dial(proxy) as another:
            assert ask(another, b"acquire") == b"a:acquire"


async def test_the_database_is_reached_through_a_proxy_that_can_cut_it(fresh_database):
    with RoundRobin([database_socket(fresh_database)]) as proxy:
        connection = await asyncpg.connect(database_through(proxy, fresh_database))
        assert await connection.fetchval("SELECT 1") == 1
        proxy.sever()
        with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
            await connection.fetchval("SELECT 1")
        connection.terminate()


async def test_a_waiting_backend_is_seen_before_the_lock_is_let_go(fresh_database):
    async with (
        races.holding(fresh_database, "SELECT pg_advisory_xact_lock(1)") as holder,
        database.connected(fresh_database) as other,
    ):
        late = asyncio.create_task(other.fetchval("SELECT pg_advisory_lock(1)"))
        seen = await races.until_waiting(fresh_database, behind=await races.backend_pid(holder))
        assert seen == [other.get_server_pid()]
        assert not late.done()
        await holder.execute("SELECT pg_advisory_unlock_all(); ROLLBACK; BEGIN")
        await late


def test_a_clone_has_the_template_s_tables_and_the_role_s_settings(fresh_database):
    assert database.fetchval(fresh_database, "SHOW plan_cache_mode") == "force_generic_plan"
    assert database.fetchval(fresh_database, "SELECT count(*) FROM runstate.spaces") == 0


def test_the_clock_is_shifted_and_set_back(fresh_database, kernel_schema):
    ahead = f"SELECT extract(epoch FROM {kernel_schema}.kernel_now() - clock_timestamp())::float8"
    clock = Clock(fresh_database)
    clock.shift(3600)
    assert database.fetchval(fresh_database, ahead) == pytest.approx(3600, abs=1)
    clock.reset()
    assert database.fetchval(fresh_database, ahead) == pytest.approx(0, abs=1)


def test_each_space_is_another(fresh_database):
    one, two = spaces.create(fresh_database), spaces.create(fresh_database)
    assert one.id != two.id
    assert database.fetchval(fresh_database, "SELECT count(*) FROM runstate.api_keys") == 2
    assert one.key not in repr(one)
