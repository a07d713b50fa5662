"""Claims against their model: whatever is asked in whatever order, every reply is the model's."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, invariant, multiple, rule, run_state_machine_as_test

from tests.primitives.claims.model import Claims
from tests.support import machines
from tests.support.machines import InScopes
from tests.support.queues import Claim

LEASES_S = st.sampled_from([500, 1500, 3500])
KEYS = st.sampled_from(["a", "b"])
HOLDERS = st.sampled_from(["ann", "bob"])


class ClaimsInScopes(InScopes):
    tokens = Bundle("tokens")
    sweeps = ("claim_sweep",)

    def __init__(self):
        super().__init__(Claims())
        self.generations = {}

    @rule(target=tokens, scope=InScopes.scopes, key=KEYS, holder=HOLDERS, lease_s=LEASES_S)
    def acquire(self, scope, key, holder, lease_s):
        answer = self.agree(
            Claim(scope.id, key).acquire(holder, lease_s=lease_s),
            lambda told: self.model.acquire(
                self.now, scope, key, holder=holder, lease_s=lease_s, token=told.get("token")
            ),
            201,
        )
        if answer is None:
            return multiple()
        before = self.generations.get((scope.id, key), 0)
        assert int(answer["generation"]) == before + 1
        self.generations[scope.id, key] = before + 1
        return (scope, key, answer["token"])

    @rule(held=tokens, lease_s=st.none() | LEASES_S)
    def renew(self, held, lease_s):
        scope, key, token = held
        self.agree(
            Claim(scope.id, key).renew(token, lease_s),
            lambda _: self.model.renew(self.now, key, token=token, lease_s=lease_s),
        )

    @rule(held=tokens, observation=st.none() | st.integers() | st.text(max_size=5))
    def release(self, held, observation):
        scope, key, token = held
        self.agree(
            Claim(scope.id, key).release(token, observation=observation),
            lambda _: self.model.release(self.now, key, token=token, observation=observation),
        )

    @rule(scope=InScopes.scopes, key=KEYS)
    def look(self, scope, key):
        self.agree(Claim(scope.id, key).view(), lambda _: self.model.view(self.now, scope, key))

    @invariant()
    def what_is_stored_is_what_the_model_has(self):
        rows = self.where.sql(
            "SELECT scope_id::text, key, held, generation, holder, token"
            " FROM runstate.claims WHERE space_id = $1",
            self.space.id,
        )
        assert {tuple(row) for row in rows} == {
            (scope.id, key, row.held, row.generation, row.holder, row.token)
            for (scope, key), row in self.model.all.items()
        }


@pytest.mark.timeout(600)
def test_claims_answer_as_their_model_does(template):
    with machines.where(template) as where:
        machine = type("Machine", (ClaimsInScopes,), {"where": where})
        run_state_machine_as_test(machine, settings=machines.how(40))
