"""What every line promises those who look from outside: each wait that a client has open in it is told, with
its true holders, and nothing else is. A new kind of line joins by a row."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import allowances, permits
from tests.support.builders import Call, ok, scope

OPEN = {"WAITING", "SIGNALED"}
STEPS = 60


@dataclass(frozen=True)
class Line:
    """How one kind of line is made, looked at and left. `take` takes a unit of it, `free` gives it back; None
    where what was taken is held by nobody."""

    kind: str
    make: Callable[[Any, str], Any]
    look: Callable[[str], Call]
    leave: Callable[[str], Call]
    take: Callable[[Any, str], Call]
    free: Callable[[dict[str, Any]], Call] | None

    def __str__(self) -> str:
        return self.kind


LINES = [
    Line(
        "permit",
        lambda client, run: permits.pool(client, run, 3),
        permits.look,
        permits.leave,
        lambda pool, holder: pool.acquire(1, holder=holder, lease_s=3600),
        permits.release,
    ),
    Line(
        "allowance",
        lambda client, run: allowances.allowance(client, run, 3),
        allowances.look,
        allowances.leave,
        lambda quota, holder: quota.consume(1, holder=holder),
        None,
    ),
]


class World:
    """One line, the waits that clients have open in it, and who holds its units."""

    def __init__(self, api, line):
        self.api, self.line = api, line
        self.resource = line.make(api, scope(api))
        self.waiters = {}
        self.held = {}
        self.count = 0

    def join(self, chance):
        self.count += 1
        name, units = f"w{self.count}", chance.choice((1, 1, 2))
        call = self.resource.wait(units, holder=name, ttlSeconds=3600)
        self.waiters[name] = ok(call.send(self.api))["waiterId"], units

    def leave(self, chance):
        if self.waiters:
            name = chance.choice(sorted(self.waiters))
            ok(self.line.leave(self.waiters.pop(name)[0]).send(self.api))

    def take(self, _chance):
        self.count += 1
        answer = self.line.take(self.resource, f"h{self.count}").send(self.api)
        if answer.is_success and self.line.free is not None:
            self.held[f"h{self.count}"] = answer.json()

    def free(self, chance):
        if self.held:
            ok(self.line.free(self.held.pop(chance.choice(sorted(self.held)))).send(self.api))

    def look(self):
        """By name, as each client is told of its own wait: units, place, and who holds what it waits for."""
        found = {}
        for name, (waiter, units) in self.waiters.items():
            seen = ok(self.line.look(waiter).send(self.api))
            if seen["state"] in OPEN:
                blockers = set() if seen["state"] == "SIGNALED" else set(self.held)
                found[name] = units, seen.get("position"), blockers
        return found


@pytest.mark.parametrize("line", LINES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_wait_that_is_open_in_a_line_is_told_with_its_true_holders(api, line, seed):
    chance = random.Random(seed)
    world = World(api, line)
    most = 0
    for _ in range(STEPS):
        chance.choice((world.join, world.join, world.leave, world.take, world.take, world.free))(chance)
        known = world.look()
        most = max(most, len(known))
        told = ok(api.get("/ops/waits"))["waits"]
        assert {(w["kind"], w["resource"], w["cycle"]) for w in told} <= {
            (line.kind, world.resource.name, None)
        }
        assert {w["holder"]: (w["units"], {b["holder"] for b in w["blockedBy"]}) for w in told} == {
            name: (units, blockers) for name, (units, _, blockers) in known.items()
        }
        run = ok(api.get(f"/ops/runs/{world.resource.scope}"))
        places = {name: place for name, (_, place, _) in known.items() if place is not None}
        assert {w["holder"]: w["position"] for w in run["waiting"]}.items() >= places.items()
        assert {w["holder"] for w in run["waiting"]} == set(known)
        assert {worker["holder"] for worker in run["workers"]} == set(world.held)
    assert most > 2, "the line was tried"
