"""Barriers against their model: whatever is asked in whatever order, every reply is the model's."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, invariant, multiple, rule, run_state_machine_as_test

from tests.primitives.barriers.model import Barriers
from tests.support import barriers, machines
from tests.support.machines import InScopes

NAMES = st.sampled_from([None, "a", "b"])
TARGETS = st.sampled_from([1, 2, 2, 2, 3])
KEYS = st.sampled_from(["ann", "bob", "cid", "dan"])


class BarriersInScopes(InScopes):
    made = Bundle("made")
    sweeps = ()

    def __init__(self):
        super().__init__(Barriers())

    @rule(target=made, scope=InScopes.scopes, name=NAMES, wanted=TARGETS)
    def make(self, scope, name, wanted):
        call = barriers.made(scope.id, wanted) if name is None else barriers.named(scope.id, name, wanted)
        found = []

        def expected(told):
            found.append(self.model.make(self.now, scope, name, wanted, told.get("id")))
            return found[0].seen(self.now)

        self.agree(call, expected)
        return found[0] if found else multiple()

    @rule(barrier=made, key=KEYS)
    def arrive(self, barrier, key):
        call = barriers.Barrier(barrier.id).arrive(key)
        self.agree(call, lambda _: self.model.arrive(self.now, barrier, key))

    @rule(barrier=made)
    def reset(self, barrier):
        self.agree(barriers.Barrier(barrier.id).reset(), lambda _: self.model.reset(self.now, barrier))

    @rule(barrier=made)
    def look(self, barrier):
        self.agree(barriers.Barrier(barrier.id).view(), lambda _: barrier.seen(self.now))

    @invariant()
    def what_is_stored_is_what_the_model_has(self):
        rows = self.where.sql(
            "SELECT b.id::text, b.state, b.epoch, b.arrivals, ARRAY("
            " SELECT a.key FROM runstate.barrier_arrivals a"
            "  WHERE a.space_id = b.space_id AND a.barrier_id = b.id ORDER BY a.key)"
            " FROM runstate.barriers b WHERE b.space_id = $1",
            self.space.id,
        )
        assert sorted((row[0], *row[1:4], row[4]) for row in rows) == sorted(
            (b.id, b.state, b.epoch, len(b.keys), sorted(b.keys)) for b in self.model.all
        )


@pytest.mark.timeout(600)
def test_barriers_answer_as_their_model_does(template):
    with machines.where(template) as where:
        machine = type("Machine", (BarriersInScopes,), {"where": where})
        run_state_machine_as_test(machine, settings=machines.how(30))
