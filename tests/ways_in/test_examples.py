"""The programs of examples/ do what they say, on a real server."""

import contextlib
import json
import shutil
import subprocess
import sys

import pytest

from tests.support import races, sources
from tests.support.builders import ok
from tests.support.processes import environment

EXAMPLES = sources.ROOT / "examples"
NODE = [pytest.param(path, id="node") for path in [shutil.which("node")] if path]

pytestmark = pytest.mark.processes


@pytest.fixture
def start(server, space):
    """Start an example; it is gone when the test is over."""
    with contextlib.ExitStack() as exits:

        def started(*command):
            process = subprocess.Popen(
                command,
                cwd=sources.ROOT,
                env=environment(**space.environment(server.url)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            exits.enter_context(process)
            exits.callback(process.kill)
            return process

        yield started


@pytest.fixture
def python(start):
    return lambda name, *arguments: start(sys.executable, EXAMPLES / name, *arguments)


@pytest.fixture
def run_id(api):
    """The run in which the examples work."""
    return ok(api.put("/runs/default"))["id"]


def end(process):
    """What it printed until its end, which must be a success."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    return out.splitlines(), err.splitlines()


def test_a_report_is_written_by_one_process_and_printed_by_all(python):
    ended = [end(each) for each in [python("once_report.py", "acme") for _ in range(3)]]
    report = {"company": "acme", "chapters": ["people of acme", "money of acme", "news of acme"]}
    assert [json.loads(line) for out, _ in ended for line in out] == [report] * 3
    assert [len(err) for _, err in sorted(ended, key=lambda each: len(each[1]))] == [0, 0, 3]


def test_a_crawl_fetches_every_page_once_and_ends_its_workers(python):
    workers = [python("crawl_queue.py", "work") for _ in range(2)]
    told, _ = end(python("crawl_queue.py", "crawl"))
    assert told == [
        "pages: / /about /news /news/1 /news/2 /people",
        "dead links: /gone (LookupError: /gone is not there)",
    ]
    fetched = [line.split()[-1] for worker in workers for line in end(worker)[0]]
    assert sorted(fetched) == ["/", "/about", "/gone", "/gone", "/news", "/news/1", "/news/2", "/people"]


def test_a_leader_that_is_killed_is_followed_by_another_with_the_next_generation(python, api, run_id):
    first = python("leader_claim.py", "anna")
    assert first.stdout.readline() == "anna leads, generation 1\n"
    second = python("leader_claim.py", "berta")
    first.kill()
    assert second.stdout.readline() == "berta leads, generation 2\n"
    ok(api.post(f"/scopes/{run_id}/complete"))
    assert end(second)[0][-1] == "berta goes home: the run is over"


SHOUT = """
import runstate, sys
try:
    print(runstate.queue("shout")({sys.argv[1]: sys.argv[2]}))
except runstate.TaskFailedError as error:
    print("failed:", error.reason)
"""


@pytest.fixture
def shell_worker(start):
    """The worker in plain shell, once it works."""

    def started(*program):
        worker = start(EXAMPLES / "raw_http_worker.sh", *program)
        assert worker.stdout.readline().endswith(" works\n"), worker.communicate()
        return worker

    return started


@pytest.fixture
def task(api, run_id):
    """A job for the worker, submitted over HTTP; a function that reads it."""
    box = ok(api.put("/mailboxes/by-name/shout"))["id"]
    asked = {"scopeId": run_id, "mailboxId": box, "taskKey": "shout:1", "input": {"text": "hello"}}
    path = f"/tasks/{ok(api.post('/tasks', json=asked), 201)['taskId']}"

    def until(state):
        return races.until_blocking(
            lambda: seen if (seen := ok(api.get(path)))["state"] == state else None, what=state
        )

    until.cancel = lambda: ok(api.post(f"{path}/cancel"))
    return until


def test_a_worker_in_plain_shell_does_the_jobs_of_python_producers_and_ends_with_the_run(
    shell_worker, start, api, run_id
):
    ok(api.put("/mailboxes/by-name/shout", json={"maxAttempts": 1}))
    worker = shell_worker()
    assert end(start(sys.executable, "-c", SHOUT, "text", "hello"))[0] == ["HELLO"]
    assert end(start(sys.executable, "-c", SHOUT, "word", "hello"))[0] == ["failed: the program ended with 1"]
    ok(api.post(f"/scopes/{run_id}/complete"))
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    assert out.splitlines()[-1].endswith("ends with the run")


def test_a_worker_in_plain_shell_whose_program_prints_no_json_fails_the_job_at_once(shell_worker, task):
    worker = shell_worker("echo", "no", "JSON")
    assert task("FAILED")["outcomeReason"] == "handler_error: its result cannot be recorded"
    worker.terminate()
    assert end(worker) == ([], [])


def test_a_worker_in_plain_shell_that_is_stopped_hands_its_job_back(shell_worker, task):
    worker = shell_worker("sleep", "600")
    task("RUNNING")
    worker.terminate()
    assert end(worker) == ([], [])
    assert task("QUEUED")["attempt"] == 0


def test_a_worker_in_plain_shell_that_loses_its_job_ends_the_work(shell_worker, task, monkeypatch):
    monkeypatch.setenv("LEASE_SECONDS", "3")
    worker = shell_worker("sleep", "600")
    task("RUNNING")
    task.cancel()
    assert " has lost " in worker.stdout.readline()
    worker.terminate()
    assert end(worker) == ([], [])


REPORT = """
import runstate
@runstate.once
def write_report(company):
    return "python"
print(write_report("acme"))
"""


@pytest.mark.parametrize("node", NODE)
def test_once_in_javascript_and_in_python_are_the_same_work(start, node):
    first = [start(node, EXAMPLES / "raw_http_once.mjs", "acme") for _ in range(2)]
    ended = [end(each) for each in first]
    assert [json.loads(line) for out, _ in ended for line in out] == [{"company": "acme", "pages": 12}] * 2
    assert sum(len(err) for _, err in ended) == 1
    assert end(start(sys.executable, "-c", REPORT))[0] == ["{'company': 'acme', 'pages': 12}"]
