"""The scripts of bench/ run, and the one that judges judges rightly."""

import dataclasses
import re
import socket
import subprocess
import sys
import threading

import pytest

from bench import connections, load, workloads
from bench.verdict import Counts, Record, judge
from tests.support import sources
from tests.support.processes import environment
from tests.support.site import Event


def run(module, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=sources.ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_exactly_one_result_is_recorded_per_key_though_owners_and_servers_are_killed():
    said = run("bench.chaos_once", "--seconds", "10", "--seed", "1")
    keys = int(re.search(r"(?m)^keys asked for +(\d+)$", said)[1])
    assert keys > 20
    assert re.search(rf"(?m)^recorded results per key +1 for {keys} keys$", said)
    assert re.search(r"(?m)^answers to callers +\d+, 0 of them other", said)
    assert re.search(r"(?m)^owners killed, paused +1, ", said)
    assert re.search(r"(?m)^servers killed +1$", said)


@pytest.mark.processes
def test_nothing_acknowledged_is_lost_though_the_database_stands_still_is_stopped_and_killed():
    said = run("bench.chaos_database", "--away", "2", "--seed", "1")
    counts = re.findall(
        r"submits acknowledged (\d+), in the database (\d+): (\d+) recorded, (\d+) dead", said
    )
    assert len(counts) == 7
    acknowledged, submitted, recorded, dead = map(int, counts[-1])
    assert acknowledged == submitted == recorded + dead > 20
    assert (
        len(re.findall(r"(?m)^the first success came [\d.]+ s after its return, to an SDK [\d.]+ s$", said))
        == 3
    )
    assert re.search(r"(?m)^client-visible errors +none ", said)
    assert re.search(r"(?m)^recorded results per key +1 for \d+ keys$", said)


MEASURED = {
    "once": ("once/acquire", "once_acquire"),
    "submit": ("POST tasks", "task_submit"),
    "batch": ("tasks/batch of 100", "task_submit of 100"),
    "admit": ("admit + complete", "take + complete"),
    "spend": ("reserve + settle", "reserve + settle"),
    "lend": ("acquire + release", "acquire + release"),
    "take": ("consume", "consume"),
    "render": ("admit with needs + complete", "take with needs + complete"),
}


@pytest.mark.processes
@pytest.mark.parametrize(
    "chosen", [("once", "batch"), ("submit", "admit"), ("spend", "lend"), ("take", "render")], ids="+".join
)
def test_the_load_script_compares_what_it_is_told_to_with_pgbench_and_finds_all_of_it_recorded(chosen):
    only = [part for name in chosen for part in ("--only", name)]
    said = run("bench.load", "--seconds", "1", "--rounds", "1", *only)
    for name, (over_http, by_pgbench) in MEASURED.items():
        measured = name in chosen
        assert bool(re.search(rf"(?m)^ 1 x {re.escape(over_http)} over HTTP +[\d,]+ ", said)) == measured
        assert bool(re.search(rf"(?m)^32 x {re.escape(by_pgbench)} by pgbench +[\d,]+ ", said)) == measured
        assert bool(re.search(rf"(?m)^{name} +at 32: HTTP does [\d.]+ of pgbench", said)) == measured


def test_every_workload_is_among_those_that_were_tried():
    assert set(MEASURED) == set(workloads.MAKERS)


def test_a_workload_of_which_something_is_not_recorded_is_called_wrong():
    made = {"journal": 7, "table": 8}
    workload = workloads.Workload("once", "", "", [], "", 1, lambda _: None, lambda: made)
    assert list(load.lost(workload, 8)) == ["WRONG: once made 8, the journal has 7"]


@pytest.mark.processes
def test_the_fetch_script_compares_every_depth_and_obstacle_with_a_short_queue():
    said = run("bench.fetch_depth", "--million", "20000", "--fetches", "20")
    for what in (
        "20,000 waiting, analysed",
        "20,000 waiting, a snapshot open for 600 fetches",
        "1,000 waiting, 20,000 finished",
        "2,000 delayed of higher priority before 1,000",
        "2,000 of another scope before 1,000",
        "2,000 expired before 1,000: the first fetch",
        "1,000 waiting in the last of 201 priorities",
    ):
        assert re.search(rf"(?m)^{what} +[\d.]+ ms +[\d.]+", said)


@pytest.mark.processes
def test_the_script_of_reports_compares_many_with_few_of_every_kind():
    said = run("bench.ops_depth", "--many", "2000", "--looks", "3")
    for what in ("finished tasks", "tasks finished at once", "failed tasks", "events", "waiting tasks"):
        for name in ("ops/runs", "ops/waits", "ops/summary", "GET /tasks, queued", "ops/runs, first look"):
            assert re.search(rf"(?m)^ +2,000 {what} +{name} +[\d.]+ ms +[\d.]+", said)


@pytest.mark.processes
def test_the_script_of_cancels_compares_large_runs_with_small_ones():
    said = run("bench.cancel_size", "--sizes", "5,400", "--turns", "1")
    assert re.search(r"(?m)^5 scopes +[\d.]+ ms +1\.0 .* then 1 steps", said)
    assert re.search(r"(?m)^400 scopes +[\d.]+ ms +[\d.]+ .* then [2-9] steps", said)
    assert re.search(r"(?m)^400 scopes of a branch +[\d.]+ ms", said)
    assert said.count("locks held: 1 advisory") == 3


class Peer:
    """Answers requests on one connection with the given ones, in two pieces each; keeps what it was asked."""

    def __init__(self, answers):
        self._answers = answers
        self.asked = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection:
            for answer in self._answers:
                self.asked.append(self._request(connection))
                connection.sendall(answer[:20])
                connection.sendall(answer[20:])

    @staticmethod
    def _request(connection):
        got = b""
        while True:
            got += connection.recv(1000)
            head, end, body = got.partition(b"\r\n\r\n")
            if end and len(body) == int(head.rpartition(b"Content-Length: ")[2]):
                return got.decode()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(30)
        self._listener.close()


def answer(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


HEAD = "POST %s HTTP/1.1\r\nIdempotency-Key: %%(key)s\r\nContent-Length: %%(length)s\r\n\r\n"
TAKE = connections.Request(HEAD % "/admit", '{"for":"%(key)s"}', '"id"')
SETTLE = connections.Request(HEAD % "/messages/%(id)s/complete", '{"token":"%(token)s"}', '"ACKED"')


def units(*answers):
    """What a client tells of units of two requests that are answered so, and what it had asked."""
    with Peer(answers) as peer:
        mine = connections.Connections(connections.Order(peer.port, 1, 0, [TAKE, SETTLE], "k"))
        mine.run(0)  # one unit
    return mine.told(), peer.asked


def test_a_client_of_the_bench_makes_its_second_request_from_the_first_answer():
    told, asked = units(answer('{"id":"m-1","token":"secret"}'), answer('{"state":"ACKED"}'))
    assert len(told["took_us"]) == 1
    assert told["wrong"] == 0
    assert asked[0].endswith('\r\nIdempotency-Key: k-1\r\nContent-Length: 13\r\n\r\n{"for":"k-1"}')
    assert asked[1].startswith("POST /messages/m-1/complete HTTP/1.1\r\nIdempotency-Key: k-2\r\n")
    assert asked[1].endswith('\r\n\r\n{"token":"secret"}')


NO_CONTENT = b"HTTP/1.1 204 No Content\r\nx-request-id: 1\r\n\r\n"


@pytest.mark.parametrize(
    "answers",
    [
        [answer('{"error":{}}', "409 Conflict")],
        [NO_CONTENT],
        [answer('{"id":"m-1","token":"secret"}'), answer('{"error":{}}', "409 Conflict")],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{"],
    ],
    ids=["refused", "nothing there", "second refused", "cut off"],
)
def test_a_client_of_the_bench_counts_a_unit_that_went_wrong_as_wrong(answers):
    told, _ = units(*answers)
    assert told["wrong"] == 1
    assert told["took_us"] == []
    assert told["sample"] == answers[-1].decode()


@pytest.mark.processes
def test_the_soak_shows_that_every_watch_sees_everything():
    said = run("bench.soak", "--seconds", "5")
    assert re.search(r"(?m)^events written +100$", said)
    assert re.search(r"(?m)^events seen by watches +\d+, missed 0$", said)
    assert re.search(r"(?m)^an idle server +[\d.]+ statements/s$", said)


@pytest.mark.processes
def test_the_cost_of_the_sequencer_is_a_ratio_and_all_is_numbered_in_the_end():
    said = run("bench.sequencer", "--seconds", "1", "--rounds", "1")
    assert re.search(r"(?m)^ratio +[\d.]+$", said)


REPORT = {"company": "0-0", "by": "caller-1", "page": "1"}
COUNTS = Counts(executions=2, answers=[("k", REPORT), ("k", REPORT)], keys={"k"})
RECORD = Record(
    views={"k": {"state": "DONE", "attempts": 0, "result": REPORT}},
    events=[
        Event(1, "once.acquired", "k", "a"),
        Event(2, "once.lapsed", "k", "a"),
        Event(2, "once.acquired", "k", "b"),
        Event(3, "once.completed", "k", "b"),
    ],
    numbers=[1, 2, 3, 4, 5],
)


def test_a_good_record_is_called_good():
    verdict = judge(RECORD, COUNTS, all_answered=True)
    assert verdict.good, verdict.text()
    assert ("takeovers", "1") in verdict.lines


BAD_RECORDS = {
    "two results": {"events": [*RECORD.events, Event(4, "once.completed", "k", "a")]},
    "no result": {"views": {"k": {"state": "HELD", "attempts": 0}}},
    "another result than callers got": {
        "views": {"k": RECORD.views["k"] | {"result": REPORT | {"page": "2"}}}
    },
    "a result nobody asked for": {"events": [*RECORD.events, Event(4, "once.completed", "x", "a")]},
    "fewer leases than executions": {"events": RECORD.events[2:]},
    "a gap in the journal": {"numbers": [1, 2, 4, 5]},
    "a number twice": {"numbers": [1, 2, 2, 3]},
}


@pytest.mark.parametrize("bad", BAD_RECORDS)
def test_a_bad_record_is_called_bad(bad):
    verdict = judge(dataclasses.replace(RECORD, **BAD_RECORDS[bad]), COUNTS, all_answered=True)
    assert not verdict.good
    assert "WRONG" in verdict.text()


def test_callers_that_disagree_or_wait_for_ever_are_called_bad():
    other = dataclasses.replace(COUNTS, answers=[("k", REPORT), ("k", REPORT | {"page": "2"})])
    assert not judge(RECORD, other, all_answered=True).good
    assert not judge(RECORD, COUNTS, all_answered=False).good
