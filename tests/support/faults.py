"""What may befall a database that is being served from: each fault a context manager, mended at its end.

Faults are of the real thing: processes stopped, connections used up, databases renamed. They need a cluster
of their own.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from runstate_server import migrator
from runstate_server.embedded import EmbeddedPostgres
from runstate_server.embedded.cluster import DATABASE
from runstate_server.kernel import install
from tests.support import database, races
from tests.support.proxy import RoundRobin

TERMINATE = """
SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a
 WHERE a.datname = $1 AND a.pid <> pg_backend_pid()
"""
FULL_DISK = """
CREATE SCHEMA fault;
CREATE FUNCTION fault.full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
DO $$
DECLARE t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_class c
              WHERE c.relnamespace = 'runstate'::regnamespace AND c.relkind IN ('r', 'p') LOOP
        EXECUTE format('CREATE TRIGGER fault BEFORE INSERT OR UPDATE OR DELETE ON %s
                        EXECUTE FUNCTION fault.full()', t);
    END LOOP;
END $$
"""


@dataclass(frozen=True)
class Victim:
    """A database of a cluster, and the wire on which a replica reaches it, if there is one."""

    postgres: EmbeddedPostgres
    name: str = DATABASE
    wire: RoundRobin | None = None

    @property
    def url(self) -> str:
        """The database, past the wire."""
        return self.postgres.database_url(self.name)

    @property
    def admin_url(self) -> str:
        """A database beside it."""
        return self.postgres.database_url("postgres")

    def terminate(self) -> int:
        """End every backend of the database. Returns: how many there were."""
        return database.fetchval(self.admin_url, TERMINATE, self.name)

    def rename(self, old: str, new: str) -> None:
        """Whoever is connected to it is thrown out."""
        quoted = f'ALTER DATABASE "{old}"'
        database.execute(self.admin_url, f"{quoted} ALLOW_CONNECTIONS false")
        database.fetchval(self.admin_url, TERMINATE, old)

        def renamed() -> bool:  # a backend takes a moment to end
            with contextlib.suppress(asyncpg.ObjectInUseError):
                database.execute(self.admin_url, f'{quoted} RENAME TO "{new}"')
                return True
            return False

        races.until_blocking(renamed, what="the end of the database's last backend")
        database.execute(self.admin_url, f'ALTER DATABASE "{new}" ALLOW_CONNECTIONS true')


def _children(parent: int) -> list[int]:
    """The processes that it has started and that still run."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(ppid) == parent and state != "Z":
                pids.append(int(entry.name))
    return pids


@contextlib.contextmanager
def stopped(victim: Victim) -> Iterator[None]:
    """Nobody listens."""
    victim.postgres.stop()
    try:
        yield
    finally:
        victim.postgres.start()


@contextlib.contextmanager
def killed(victim: Victim) -> Iterator[None]:
    """The postmaster died without a word; at its return there is a recovery."""
    victim.postgres.kill()
    try:
        yield
    finally:
        victim.postgres.start()


@contextlib.contextmanager
def frozen(victim: Victim) -> Iterator[None]:
    """All its processes stand still: it takes connections and says nothing."""
    postmaster = victim.postgres.pid
    os.kill(postmaster, signal.SIGSTOP)  # first: it starts no more of them
    pids = [postmaster, *_children(postmaster)]
    _send(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        _send(signal.SIGCONT, pids)


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, number)


@contextlib.contextmanager
def swallowed(victim: Victim) -> Iterator[None]:
    """The wire takes everything and carries nothing."""
    assert victim.wire is not None
    victim.wire.blackhole(True)
    try:
        yield
    finally:
        victim.wire.blackhole(False)


@contextlib.contextmanager
def crowded(victim: Victim) -> Iterator[None]:
    """Others have all the connections that there are."""
    full, over = threading.Event(), threading.Event()

    async def crowd() -> None:
        held = [await asyncpg.connect(victim.admin_url)]
        try:
            before = 0
            while before < len(held) or await held[0].fetchval(TERMINATE, victim.name):
                before = len(held)
                with contextlib.suppress(asyncpg.TooManyConnectionsError):
                    while True:
                        held.append(await asyncpg.connect(victim.admin_url))
            full.set()
            await asyncio.to_thread(over.wait)
        finally:
            for connection in held:
                await connection.close()

    with ThreadPoolExecutor(1) as thread:
        crowding = thread.submit(asyncio.run, crowd())
        try:
            assert full.wait(races.PATIENCE_S)
            yield
        finally:
            over.set()
            crowding.result()


@contextlib.contextmanager
def full_disk(victim: Victim) -> Iterator[None]:
    """Whatever writes to a table is told that the disk is full."""
    database.execute(victim.url, FULL_DISK)
    try:
        yield
    finally:
        database.execute(victim.url, "DROP SCHEMA fault CASCADE")


@contextlib.contextmanager
def read_only(victim: Victim) -> Iterator[None]:
    """As a standby is, or a primary that was demoted. Whoever connected meanwhile stays so."""
    setting = f'ALTER DATABASE "{victim.name}"'
    database.execute(victim.admin_url, f"{setting} SET default_transaction_read_only = on")
    victim.terminate()
    try:
        yield
    finally:
        database.execute(victim.admin_url, f"{setting} RESET default_transaction_read_only")


@contextlib.contextmanager
def locked_out(victim: Victim) -> Iterator[None]:
    """The role may not log in. It is the cluster's only one: a connection is kept open to let it in again."""
    ready, over = threading.Event(), threading.Event()

    async def lock() -> None:
        async with database.connected(victim.admin_url) as connection:
            role = await connection.fetchval("SELECT quote_ident(current_user)")
            await connection.execute(f"ALTER ROLE {role} NOLOGIN")
            try:
                await connection.fetchval(TERMINATE, victim.name)
                ready.set()
                await asyncio.to_thread(over.wait)
            finally:
                await connection.execute(f"ALTER ROLE {role} LOGIN")

    with ThreadPoolExecutor(1) as thread:
        locking = thread.submit(asyncio.run, lock())
        try:
            assert ready.wait(races.PATIENCE_S)
            yield
        finally:
            over.set()
            locking.result()


@contextlib.contextmanager
def nothing_there(victim: Victim) -> Iterator[None]:
    """The server of the database is there, the database is not."""
    aside = victim.name + "_aside"
    victim.rename(victim.name, aside)
    try:
        yield
    finally:
        victim.rename(aside, victim.name)


@contextlib.contextmanager
def an_empty_one(victim: Victim) -> Iterator[None]:
    """In its place there is another database, with nothing in it."""
    with nothing_there(victim):
        database.execute(victim.admin_url, f'CREATE DATABASE "{victim.name}"')
        try:
            yield
        finally:
            database.execute(victim.admin_url, f'DROP DATABASE "{victim.name}" WITH (FORCE)')


@contextlib.contextmanager
def an_older_one(victim: Victim) -> Iterator[None]:
    """In its place there is one as the first build left it: fewer tables, none of this build's functions."""
    with an_empty_one(victim):
        database.execute(victim.url, "CREATE SCHEMA runstate")
        database.blocking(migrator._revise(victim.url, "0001"))
        yield


@contextlib.contextmanager
def a_newer_one(victim: Victim) -> Iterator[None]:
    """In its place there is one as a newer build left it, which has taken this build's functions away."""
    with nothing_there(victim):
        copy = f'CREATE DATABASE "{victim.name}" TEMPLATE "{database.TEMPLATE}"'
        database.execute(victim.admin_url, copy)
        database.execute(victim.url, "UPDATE runstate.alembic_version SET version_num = '9999'")
        database.execute(victim.url, f"DROP SCHEMA {install.schema_name(test_clock=True)} CASCADE")
        try:
            yield
        finally:
            database.execute(victim.admin_url, f'DROP DATABASE "{victim.name}" WITH (FORCE)')


@contextlib.contextmanager
def terminating(victim: Victim) -> Iterator[None]:
    """Every backend is ended over and over again."""
    over = threading.Event()

    def terminate() -> None:
        while not over.wait(0.05):
            victim.terminate()

    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(terminate)
        try:
            yield
        finally:
            over.set()
            ending.result()


Fault = Callable[[Victim], contextlib.AbstractContextManager[None]]
# While one of these lasts, no call can be answered from the database.
AWAY: list[Fault] = [
    stopped,
    killed,
    frozen,
    swallowed,
    crowded,
    locked_out,
    nothing_there,
    an_empty_one,
    an_older_one,
    a_newer_one,
]
# Under one of these some calls can be, reads for one.
AILING: list[Fault] = [full_disk, read_only, terminating]
