"""The scripts of bench/ run, and the one that judges judges rightly."""

import dataclasses
import re
import subprocess
import sys

import pytest

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
def test_the_load_script_compares_http_with_pgbench():
    said = run("bench.load_once", "--seconds", "1", "--rounds", "1")
    assert re.search(r"(?m)^ 1 x once/acquire over HTTP +[\d,]+ ", said)
    assert re.search(r"(?m)^32 x once_acquire by pgbench +[\d,]+ ", said)
    assert re.search(r"at 32: HTTP does [\d.]+ of pgbench", said)


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
