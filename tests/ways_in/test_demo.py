"""`make demo` tells the truth, ends well, and leaves nothing behind."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import account
from examples.demo.account import Scene
from tests.support import sources
from tests.support.crowd import Telling
from tests.support.processes import environment
from tests.support.site import Event

DEMO = [sys.executable, "-m", "examples.demo", "--seconds", "240"]


def start_demo():
    return subprocess.Popen(
        DEMO,
        cwd=sources.ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.processes
def test_the_demo_shows_what_it_says_and_ends_0():
    with start_demo() as demo:
        said = demo.stdout.read()
    assert demo.returncode == 0, said
    assert re.findall(r"(?m)^\d\. (.*)", said) == [
        "The process that does the work is killed",
        "A server is killed while callers wait at it",
        "A slow owner comes back too late",
        "The same by plain HTTP",
        "A queue, with a worker killed and a deploy in the middle",
        "Twenty workers share three browsers, 60 searches a minute and 5.00 USD",
        "Ten reviewers, stop at the first three good answers",
        "A durable sleep through the death of the sleeper and of every server",
    ]
    claims = re.findall(r"(?m)^   (true|FALSE) ", said)
    assert set(claims) == {"true"}
    assert f"All {len(claims)} claims are true" in said


@pytest.mark.processes
def test_ctrl_c_ends_the_demo_and_everything_it_started():
    with start_demo() as demo:
        for line in demo.stdout:
            if line.startswith("1. "):
                break
        started = descendants(demo.pid)
        assert len(started) > 12, "ten callers, two servers, the postmaster and its children"
        os.killpg(demo.pid, signal.SIGINT)
        said = demo.stdout.read()
        assert demo.wait(60) == 130, said
    assert "Traceback" not in said
    assert not [pid for pid in started if alive(pid)]


def descendants(pid):
    """Every process below that one, whatever session it is in."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # ended meanwhile
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


RESULT = {"company": "acme", "by": "b", "page": "1"}
OTHER = RESULT | {"page": "2"}
TRUE = Scene(
    key="research:acme",
    askers=("a", "b", "c"),
    told=(
        Telling(1, "a", "runs", {"attempt": 1}),
        Telling(5, "b", "runs", {"attempt": 1}),
        Telling(6, "b", "got", {"report": RESULT}),
        Telling(6, "c", "got", {"report": RESULT}),
    ),
    journal=(
        Event(1, "once.acquired", "research:acme", "a"),
        Event(4, "once.lapsed", "research:acme", "a"),
        Event(5, "once.acquired", "research:acme", "b"),
        Event(6, "once.completed", "research:acme", "b"),
    ),
    view={"state": "DONE", "attempts": 0, "result": RESULT},
    killed=frozenset({"a"}),
    lease_ends_at=4,
)


def claims(scene):
    return [
        account.cut_off(scene, "a"),
        account.one_result(scene),
        account.everybody_got_it(scene),
        account.ran_by(scene, "a", "b"),
        account.no_early_takeover(scene),
        account.history_is(scene, ("acquired", "a"), ("lapsed", "a"), ("acquired", "b"), ("completed", "b")),
        account.no_failures(scene),
    ]


def test_a_true_account_is_called_true():
    assert all(claim.holds for claim in claims(TRUE))


LIES = {
    "two results": {"journal": (*TRUE.journal, Event(7, "once.completed", "research:acme", "c"))},
    "no result": {"view": {"state": "HELD", "attempts": 0}},
    "another result": {"view": TRUE.view | {"result": OTHER}},
    "a caller with another result": {"told": (*TRUE.told[:3], Telling(6, "c", "got", {"report": OTHER}))},
    "a caller with nothing": {"told": TRUE.told[:3]},
    "a third run": {"told": (*TRUE.told, Telling(5, "c", "runs", {"attempt": 1}))},
    "the dead had finished": {"told": (*TRUE.told, Telling(2, "a", "worked", {}))},
    "an early takeover": {"lease_ends_at": 5.5},
    "a lease never seen": {"lease_ends_at": None},
    "a failure": {"view": TRUE.view | {"attempts": 1}},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_false_account_is_called_false(lie, capsys):
    told = claims(dataclasses.replace(TRUE, **LIES[lie]))
    teller = account.Teller(began_at=0)
    teller.claims(told)
    assert teller.false == sum(not claim.holds for claim in told) >= 1
    assert "FALSE" in capsys.readouterr().out


def test_a_refusal_that_did_not_happen_is_called_false():
    late = Telling(9, "a", "worked", {"report": OTHER, "signal": True})
    refused = Telling(9, "a", "refused", {"error": "LeaseLostError", "message": "too late"})
    slow = dataclasses.replace(TRUE, killed=frozenset(), told=(*TRUE.told, late, refused))
    assert account.was_refused(slow, "a").holds
    accepted = Telling(9, "a", "got", {"report": OTHER})
    for told in ((late, accepted), (refused,), (late,)):
        scene = dataclasses.replace(slow, told=(*TRUE.told, *told))
        assert not account.was_refused(scene, "a").holds
