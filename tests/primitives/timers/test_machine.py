"""Timers against their model: whatever is asked in whatever order, every reply is the model's."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, invariant, multiple, rule, run_state_machine_as_test

from tests.primitives.scopes.model import ACTIVE
from tests.primitives.timers.model import Timers
from tests.support import machines
from tests.support import timers as calls
from tests.support.machines import InScopes

AFTER_S = st.sampled_from([0, 500, 1500, 3500])
NAMES = st.none() | st.sampled_from(["a", "b"])


class TimersInScopes(InScopes):
    timers = Bundle("timers")
    sweeps = ("timer_sweep",)

    def __init__(self):
        super().__init__(Timers())

    @rule(target=timers, scope=InScopes.scopes, name=NAMES, after_s=AFTER_S)
    def set_one(self, scope, name, after_s):
        return self._set(scope, name, after_s)

    @rule(target=timers, scope=InScopes.scopes, name=NAMES, deadline_s=st.sampled_from([None, 1700]))
    def set_one_whose_time_comes_unnoticed(self, scope, name, deadline_s):
        """Perhaps together with a deadline."""
        if deadline_s is not None and scope.effective(self.now) == ACTIVE:
            scope = self._child(scope, deadline_s)
        timer = self._set(scope, name, 1500)
        self.time_passes(2000)
        return timer

    def _set(self, scope, name, after_s):
        mine = calls.Timers(scope.id)
        made = []

        def expected(told):
            timer, facts = self.model.set(self.now, scope, name, float(self.now + after_s), told)
            made.append(timer)
            return facts

        call = mine.create(after_s) if name is None else mine.named(name, after_s)
        answer = self.agree(call, expected)
        return multiple() if answer is None else made[0]

    @rule(timer=timers)
    def look(self, timer):
        self.agree(calls.look(timer.id), lambda _: self.model.view(self.now, timer))

    @rule(scope=InScopes.scopes)
    def poll(self, scope):
        self.agree(calls.Timers(scope.id).poll(), lambda told: self.model.poll(self.now, scope, told))

    @rule(timer=timers, other=timers)
    def acknowledge(self, timer, other):
        """As a rule with its own token."""
        for token in (other.token or "never told", timer.token or "never told"):
            self.agree(calls.ack(timer.id, token), lambda _, token=token: self.model.ack(timer, token))

    @rule(timer=timers)
    def cancel(self, timer):
        self.agree(calls.cancel(timer.id), lambda _: self.model.cancel(self.now, timer))

    @invariant()
    def what_is_stored_is_what_the_model_has(self):
        rows = self.where.sql(
            "SELECT id::text, scope_id::text, name, state FROM runstate.timers WHERE space_id = $1",
            self.space.id,
        )
        assert {tuple(row) for row in rows} == {(t.id, t.scope.id, t.name, t.state) for t in self.model.all}


@pytest.mark.timeout(600)
def test_timers_answer_as_their_model_does(template):
    with machines.where(template) as where:
        machine = type("Machine", (TimersInScopes,), {"where": where})
        run_state_machine_as_test(machine, settings=machines.how(40))
