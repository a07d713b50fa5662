"""What docs/deploy.md tells an operator to do works as printed, and what can be wrong with a database's URL
is said in one line."""

import os
import re
import subprocess
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from runstate_server.foundation import db
from tests.support import database, sources
from tests.support.builders import ok
from tests.support.processes import RUNSTATE, Replica, environment

PAGE = (sources.ROOT / "docs/deploy.md").read_text()
KEY = "rs_deploy_0123456789abcdef"
CREATES = {"/claims", "/tasks"}

# What the page's lines ask of Docker, done here: programs of PostgreSQL, and `runstate`.
DOCKER = """#!/bin/sh -eu
shift
case "$1" in
  exec) shift 3; exec "$@" ;;
  run) shift 3; echo "${*:-migrate}" >>told; exec runstate "${@:-migrate}" ;;
  *) echo "$*" >>told ;;
esac
"""


@pytest.fixture
def cluster():
    """One of its own, since databases of fixed names come and go in it."""
    mine = database.Cluster()
    with mine:
        yield mine.postgres


@pytest.fixture
def shell(cluster, tmp_path):
    """Run lines of the page in a folder where `docker` is the above."""
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    url = urlsplit(cluster.url)
    variables = {
        "PATH": f"{docker.parent}:{cluster.bin_dir}:{RUNSTATE.parent}:{os.environ['PATH']}",
        "PGHOST": parse_qs(url.query)["host"][0],
        "RUNSTATE_DATABASE_URL": db.with_database(cluster.url, "runstate"),
        "RUNSTATE_TEST_CLOCK": "1",
    }

    def run(script):
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=tmp_path,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run.folder = tmp_path
    return run


def blocks(heading):
    """The shell lines below a heading of the page."""
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```sh\n(.*?)```", part, re.DOTALL)


class Tenant:
    """Somebody who uses the server."""

    def __init__(self, url):
        self._base = f"{url}/v1/spaces/main"
        self.run = self.call("PUT", "/runs/default", {})["id"]
        self.mailbox = self.call("PUT", "/mailboxes/by-name/work", {})["id"]

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {KEY}"}
        given = {"headers": headers, "json": body, "trust_env": False, "timeout": 30}
        return ok(httpx.request(method, self._base + path, **given), 201 if path in CREATES else 200)

    def own(self):
        """Acquire and release the one claim; returns its generation."""
        holder = {"holder": "h", "holderSession": "s", "leaseSeconds": 30}
        got = self.call("POST", "/claims", {"key": "account", "scopeId": self.run} | holder)
        self.call("POST", "/claims/account/release", {"token": got["token"]})
        return int(got["generation"])

    def submit(self, key):
        task = {"scopeId": self.run, "mailboxId": self.mailbox, "taskKey": key, "input": {"n": 1}}
        return self.call("POST", "/tasks", task)

    def ready(self):
        return self.call("GET", f"/mailboxes/{self.mailbox}")["depth"]["ready"]


@pytest.mark.processes
def test_a_restored_dump_serves_on_and_never_hands_out_a_generation_again(cluster, shell):
    dump, restore = blocks("Backup and restore")
    shell("runstate migrate")
    url = db.with_database(cluster.url, "runstate")
    bootstrap = {"BOOTSTRAP_SPACE_ID": "main", "BOOTSTRAP_API_KEY": KEY}
    with Replica(url, **bootstrap) as replica:
        before = Tenant(replica.url)
        assert before.own() == 1
        first = before.submit("first")["taskId"]
        shell(dump)
        assert before.own() == 2
        before.submit("forgotten")
        assert before.ready() == 2
        replica.stop()
        shell(restore)
        replica.start()
        after = Tenant(replica.url)
        assert (after.run, after.mailbox, after.ready()) == (before.run, before.mailbox, 1)
        assert after.submit("first") == {"taskId": first, "replay": True, "state": "QUEUED"}
        assert after.submit("second")["replay"] is False
        assert after.own() > 2
        assert after.ready() == 2
    told = (shell.folder / "told").read_text().splitlines()
    assert told == ["stop server", "migrate", "bump-epoch", "start server"]


@pytest.mark.processes
def test_a_database_url_may_say_what_libpq_s_may(template):
    with template.empty() as url:
        given = f"{url}&sslmode=prefer&application_name=ours"
        made = runstate(given, "migrate")
        assert made.returncode == 0, made.stderr
        listed = runstate(given, "space", "list")
        assert listed.returncode == 0, listed.stderr
        with Replica(given, BOOTSTRAP_SPACE_ID="main", BOOTSTRAP_API_KEY=KEY) as replica:
            tenant = Tenant(replica.url)
            assert tenant.call("GET", "/scopes")["scopes"][0]["id"] == tenant.run


WRONG = {
    "no such database": (lambda url: db.with_database(url, "nowhere"), 'database "nowhere" does not exist'),
    "no port": (lambda _: "postgresql://u:secret/with@slash:x/d", "percent-encoded"),
    "an sslmode that is none": (lambda url: f"{url}&sslmode=never", "sslmode"),
    "a parameter of libpq's alone": (lambda url: f"{url}&channel_binding=require", "channel_binding"),
}


@pytest.mark.processes
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("command", ["migrate", "serve", "space list", "bump-epoch"])
def test_what_is_wrong_with_a_database_url_is_one_line_without_its_password(fresh_database, command, wrong):
    spoil, named = WRONG[wrong]
    said = runstate(spoil(fresh_database), *command.split())
    assert said.returncode == 1
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert named in line
    assert "secret" not in line


def runstate(url, *words):
    given = environment(RUNSTATE_DATABASE_URL=url, RUNSTATE_TEST_CLOCK="1", RUNSTATE_PORT="0")
    return subprocess.run(
        [RUNSTATE, *words], env=given, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_page_s_other_commands_are_commands_of_runstate():
    for words in re.findall(r"exec server runstate (\w[\w-]*)(?: (\w+))?", PAGE):
        done = subprocess.run(
            [RUNSTATE, *filter(None, words), "--help"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
