"""`runstate space`, `key` and `settings`: the operator's verbs at a shell, straight on the database."""

import secrets
import stat
import subprocess

import pytest

from tests.support import database
from tests.support.builders import ok, refused
from tests.support.processes import RUNSTATE, environment
from tests.support.spaces import Space


@pytest.fixture(scope="module")
def runstate(database_url):
    """Run one command; returns what it printed, or with `fails` what it complained of."""

    def run(*arguments, fails=False, **variables):
        given = {"RUNSTATE_DATABASE_URL": database_url, "RUNSTATE_TEST_CLOCK": "1"} | variables
        command = [RUNSTATE, *arguments]
        done = subprocess.run(
            command, env=environment(**given), capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        if not fails:
            return done.stdout
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    return run


@pytest.fixture
def space_id(runstate):
    """A space made at the shell."""
    name = f"c-{secrets.token_hex(6)}"
    assert name in runstate("space", "create", name, "--name", "Acme, production")
    return name


@pytest.fixture(scope="module")
def existing(runstate):
    """One for tests that leave it as it is."""
    name = f"c-{secrets.token_hex(6)}"
    runstate("space", "create", name)
    return name


def line_of(listing, word):
    [line] = [line for line in listing.splitlines() if word in line]
    return line


def test_a_space_is_made_listed_suspended_and_resumed(runstate, space_id):
    line = line_of(runstate("space", "list"), space_id)
    assert "active" in line
    assert "Acme, production" in line
    runstate("space", "suspend", space_id)
    assert "suspended" in line_of(runstate("space", "list"), space_id)
    runstate("space", "resume", space_id)
    assert line_of(runstate("space", "list"), space_id) == line


def test_a_key_made_at_the_shell_is_shown_once_and_works(runstate, server, space_id):
    told = runstate("key", "create", space_id, "--label", "workers", "--permissions", "runtime, observe")
    key = told.splitlines()[-1]
    with Space(space_id, key).client(server.url) as client:
        ok(client.post("/scopes"), 201)
        refused(client.post("/mailboxes", json={"name": "m"}), "FORBIDDEN")
    listing = runstate("key", "list", space_id)
    line = line_of(listing, "workers")
    assert "active  never expires  used 2" in line
    assert "observe,runtime" in line
    assert key not in listing


def test_a_key_file_is_its_owner_s_alone_and_holds_the_key(runstate, server, space_id, tmp_path):
    out = tmp_path / "key"
    told = runstate("key", "create", space_id, "--label", "workers", "--out", str(out))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    key = out.read_text().strip()
    assert key not in told
    with Space(space_id, key).client(server.url) as client:
        ok(client.put("/mailboxes/by-name/m", json={"maxAttempts": 3}))  # the default permissions of a worker


def test_a_key_file_that_exists_is_left_alone_and_no_key_is_made(runstate, space_id, tmp_path):
    out = tmp_path / "key"
    out.write_text("mine")
    assert str(out) in runstate("key", "create", space_id, "--label", "l", "--out", str(out), fails=True)
    assert out.read_text() == "mine"
    assert runstate("key", "list", space_id) == ""


def test_a_key_that_is_not_made_leaves_no_file(runstate, tmp_path):
    out = tmp_path / "key"
    assert "nowhere" in runstate("key", "create", "nowhere", "--label", "l", "--out", str(out), fails=True)
    assert not out.exists()


def test_a_key_is_revoked_by_its_id(runstate, server, space_id):
    key = runstate("key", "create", space_id, "--label", "workers").splitlines()[-1]
    key_id = line_of(runstate("key", "list", space_id), "workers").split()[0]
    assert key_id in runstate("key", "revoke", space_id, key_id)
    assert "revoked" in line_of(runstate("key", "list", space_id), "workers")
    with Space(space_id, key).client(server.url) as client:
        refused(client.get("/scopes"), "UNAUTHENTICATED")


def test_a_key_of_the_shell_may_expire_and_cover_further_spaces(runstate, server, space_id, database_url):
    other = f"c-{secrets.token_hex(6)}"
    runstate("space", "create", other)
    made = ("key", "create", space_id, "--label", "both", "--also", other)
    key = runstate(*made, "--expires", "2999-01-01T00:00:00Z").splitlines()[-1]
    assert "expires 2999-01-01T00:00:00.000Z  never used" in line_of(
        runstate("key", "list", space_id), "both"
    )
    for name in (space_id, other):
        with Space(name, key).client(server.url) as client:
            ok(client.get("/scopes"))
    ends = "SELECT expires_at FROM runstate.api_keys WHERE space_id = $1"
    assert database.fetchval(database_url, ends, space_id).year == 2999


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["space", "create", "a b"], "'a b'"),
        (["space", "create", "{space}"], "exists already"),
        (["space", "create", "x1", "--name", ""], "--name"),
        (["space", "create", "x1", "--name", "x" * 257], "--name"),
        (["space", "suspend", "nowhere"], "nowhere"),
        (["space", "suspend", "a b"], "a b"),
        (["key", "list", "nowhere"], "nowhere"),
        (["key", "create", "nowhere", "--label", "l"], "nowhere"),
        (["key", "create", "{space}", "--label", "l", "--permissions", "root"], "'root'"),
        (["key", "create", "{space}", "--label", "l", "--permissions", ""], "permission"),
        (["key", "create", "{space}", "--label", ""], "--label"),
        (["key", "create", "{space}", "--label", "x" * 257], "--label"),
        (["key", "create", "{space}", "--label", "l", "--expires", "tomorrow"], "--expires"),
        (["key", "create", "{space}", "--label", "l", "--also", "nowhere"], "nowhere"),
        (["key", "revoke", "{space}", "nonsense"], "nonsense"),
        (["key", "revoke", "{space}", "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"], "0198c9a2"),
    ],
)
def test_what_a_person_can_mend_is_one_line_that_names_it(runstate, existing, arguments, says):
    assert says in runstate(*[a.format(space=existing) for a in arguments], fails=True)


def test_a_database_that_is_not_there_is_one_line_without_its_password(runstate):
    gone = "postgresql://someone:hidden-words@127.0.0.1:1/nothing"
    told = runstate("space", "list", fails=True, RUNSTATE_DATABASE_URL=gone)
    assert "hidden-words" not in told


def test_settings_names_every_variable_with_its_value_default_and_bound_and_no_secret(runstate):
    told = runstate(
        "settings",
        RUNSTATE_DATABASE_URL="postgresql://someone:hidden-words@127.0.0.1:1/nothing",
        RUNSTATE_ADMIN_TOKEN="hidden-token-0123456789",
        RUNSTATE_POOL_SIZE="7",
    )
    lines = told.splitlines()
    [pool] = [i for i, line in enumerate(lines) if line.startswith("RUNSTATE_POOL_SIZE=7")]
    assert ".." in lines[pool]
    assert "Default: " in lines[pool + 1]
    assert any(line.startswith("RUNSTATE_ADMIN_TOKEN=***") for line in lines)
    assert "hidden" not in told
