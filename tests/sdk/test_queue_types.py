"""What a type checker sees of the public names."""

import subprocess
import sys
from pathlib import Path

import pytest

import runstate

PROGRAM = """
from collections.abc import Coroutine
from typing import Any

import runstate
from runstate import AsyncRunstate, ClaimLease, Delivery, Job, MailboxRef, Queue, TaskRequirements, TaskTicket


@runstate.queue("plain", attempts=5, lease="60s", concurrency=4)
def plain(given: dict[str, str]) -> list[int]:
    return [len(given)]


@runstate.queue("coroutine", key=lambda given: given["company"])
async def coroutine(given: dict[str, str]) -> int:
    return 1


@runstate.run("other").queue("bound")
def bound(given: str) -> str:
    return given


@runstate.once(attempts=2)
def once(name: str) -> int:
    return 1


reveal_type(plain)
reveal_type(plain({"company": "acme"}))
reveal_type(plain.send({"company": "acme"}))
reveal_type(coroutine)
reveal_type(bound("a"))
reveal_type(once("a"))
reveal_type(runstate.queue("producer").send(1))
reveal_type(runstate.serve(concurrency=2, queues=["plain", coroutine]))
reveal_type(plain.gather([{"company": "acme"}], need=1, accept=lambda got, given: len(got) == len(given)))
reveal_type(coroutine.gather([{"company": "acme"}], need="all"))
reveal_type(runstate.queue("producer").gather([1], timeout="2m"))
plain(5)
plain.gather([5])
plain.gather([], need="some")


async def graph(rs: AsyncRunstate) -> None:
    scope = rs.scope("s")
    reveal_type(await scope.claim("k").acquire(wait=True))
    reveal_type(await scope.claim("k").run(lambda lease: lease.generation))

    async def work(lease: ClaimLease) -> int:
        return int(lease.generation)

    reveal_type(await scope.claim("k").run(work))
    requirements: TaskRequirements = {"pools": [{"name": "browser", "units": 1}]}
    reveal_type(await scope.mailbox("m").submit(1, key="k", requirements=requirements))
    reveal_type(await scope.mailbox("m").receive())
    reveal_type(await coroutine.agather([{"company": "acme"}]))
    reveal_type(await plain.agather([{"company": "acme"}], accept=lambda result, given: True))
    group = await scope.groups.create(mailbox="m", condition="N_ACCEPTED", threshold=2)
    reveal_type(group)
    reveal_type(await group.submit(1, key="k"))
    reveal_type(await group.wait(timeout_ms=1))
    wrong: TaskRequirements = {"pools": [{"name": "browser"}]}


def blocking(rs: runstate.Runstate) -> None:
    reveal_type(rs.new_event())
"""

SEEN = [
    '"runstate.decorators.queue.Queue[dict[str, str], list[int]]"',
    '"list[int]"',
    '"runstate.decorators.queue.Job"',
    '"runstate.decorators.queue.Queue[dict[str, str], Coroutine[Any, Any, int]]"',
    '"str"',
    '"int"',
    '"runstate.decorators.queue.Job"',
    '"None"',
    '"list[list[int]]"',
    '"list[int]"',
    '"list[Any]"',
    '"runstate.handles.claims.ClaimLease"',
    '"str"',
    '"int"',
    '"runstate.handles.tasks.TaskTicket"',
    '"runstate.handles.messages.Delivery | None"',
    '"list[int]"',
    '"list[list[int]]"',
    '"runstate.handles.groups.GroupHandle"',
    '"runstate.handles.tasks.TaskTicket"',
    '"dict[str, Any]"',
    '"runstate._flags.ThreadSafeEvent"',
]
WRONG = [
    'List item 0 has incompatible type "int"',
    'Argument "need" to "gather" of "Queue" has incompatible type',
    'Argument 1 to "__call__" of "Queue" has incompatible type "int"',
    'Missing key "units" for TypedDict "UnitsRequirement"',
]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-warn-unused-configs",
            "--config-file=",
            "program.py",
        ],
        cwd=folder,
        env={"MYPYPATH": str(Path(runstate.__file__).parents[1]), "PATH": "", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_types_are_what_the_contract_says(checked):
    found = [
        line.split("Revealed type is ")[1] for line in checked.splitlines() if "Revealed type is" in line
    ]
    plain = [
        each.replace("builtins.", "")
        .replace("typing.", "")
        .replace(
            "Union[runstate.handles.messages.Delivery, None]", "runstate.handles.messages.Delivery | None"
        )
        for each in found
    ]
    assert plain == SEEN, checked


def test_mistakes_are_found(checked):
    errors = [line for line in checked.splitlines() if ": error:" in line]
    for text in WRONG:
        assert any(text in error for error in errors), checked
    assert len(errors) == len(WRONG), checked


def test_the_package_says_that_it_is_typed():
    assert (Path(runstate.__file__).parent / "py.typed").is_file()
