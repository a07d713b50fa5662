"""Scopes and once against their models: whatever is asked in whatever order, every reply is the model's.

Time moves by thousands of seconds; leases and deadlines end half way between. So the seconds a run takes
decide nothing.
"""

import os
from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests.primitives.once.model import OnceKeys
from tests.primitives.scopes.model import Refused, Scope
from tests.support import database, spaces
from tests.support.builders import Call, Once, end, ok, refused
from tests.support.clock import Clock
from tests.support.journal import events
from tests.support.processes import Replica

SCALE = int(os.environ.get("SCALE", "1"))
SLACK_S = 400
LEASES_S = st.sampled_from([500, 1500, 3500])
DEADLINES_S = st.none() | st.sampled_from([-500, 500, 1500, 4500])
CHILD_LIMITS = st.sampled_from([1, 2, 1000])
KEYS = st.sampled_from(["a", "b"])
HOLDERS = st.sampled_from(["ann", "bob"])


class ScopesAndOnce(RuleBasedStateMachine):
    scopes = Bundle("scopes")
    tokens = Bundle("tokens")
    where: "Where"

    def __init__(self):
        super().__init__()
        self.space = spaces.create(self.where.database_url)
        self.api = self.space.client(self.where.replica.url)
        self.clock = Clock(self.where.database_url)
        self.model = OnceKeys()
        self.now = 0.0
        start = ok(self.api.post("/scopes", json={}), 201)
        self.start = datetime.fromisoformat(start["createdAt"])
        self.first = self.model.scopes.create(0, parent=None, deadline=None, child_limit=1000)
        self.first.id = start["id"]

    def teardown(self):
        try:
            self._journal_agrees()
        finally:
            self.api.close()

    def _journal_agrees(self):
        told = events(self.where.database_url, self.space.id)
        assert [e.num for e in told] == list(range(1, len(told) + 1))
        modelled = Counter((kind, scope.id, None) for kind, scope in self.model.scopes.events)
        modelled += Counter(self.model.events)
        modelled[("key.created", told[0].aggregate, None)] += 1
        assert Counter((e.type, e.aggregate, e.payload.get("reason")) for e in told) == modelled

    def agree(self, call, expected, status=200):
        """Send the call; its reply must be what the model's verb gives or raises. Returns the model's."""
        response = call.send(self.api)
        try:
            answer = expected(response.json())
        except Refused as refusal:
            refused(response, refusal.code)
            return None
        body = ok(response, status)
        if isinstance(answer, Scope):
            answer.id = answer.id or body["id"]
            self._is_view_of(body, answer)
        else:
            lease = answer.get("leaseExpiresAt")
            if lease is not None:
                shown = (datetime.fromisoformat(body["leaseExpiresAt"]) - self.start).total_seconds()
                assert abs(shown - lease) < SLACK_S
                answer = answer | {"leaseExpiresAt": body["leaseExpiresAt"]}
            assert body == answer
        return answer

    def _is_view_of(self, body, scope):
        assert body == body | {
            "id": scope.id,
            "name": scope.name,
            "parentId": scope.parent.id if scope.parent else None,
            "rootId": scope.root.id,
            "depth": scope.depth,
            "storedState": scope.stored,
            "effective": scope.effective(self.now),
            "childLimit": scope.child_limit,
            "version": scope.version,
        }
        assert (body["endedAt"] is None) == (scope.stored == "ACTIVE")
        assert (body["deadline"] is None) == (scope.deadline is None)

    def _instant(self, at_s):
        return None if at_s is None else (self.start + timedelta(seconds=at_s)).isoformat()

    def _in(self, after_s):
        return None if after_s is None else self.now + after_s

    # Scopes

    @rule(target=scopes)
    def the_first_scope(self):
        return self.first

    @rule(
        target=scopes,
        parent=st.none() | scopes,
        after_s=DEADLINES_S,
        child_limit=st.sampled_from([1, 2, 1000]),
    )
    def create(self, parent, after_s, child_limit):
        deadline = self._in(after_s)
        body = {
            "parentId": parent and parent.id,
            "deadline": self._instant(deadline),
            "childLimit": child_limit,
        }
        made = self.agree(
            Call("POST", "/scopes", body),
            lambda _: self.model.scopes.create(
                self.now, parent=parent, deadline=deadline, child_limit=child_limit
            ),
            201,
        )
        return multiple() if made is None else made

    @rule(target=scopes, name=KEYS, after_s=DEADLINES_S)
    def ensure_run(self, name, after_s):
        deadline = self._in(after_s)
        call = Call("PUT", f"/runs/{name}", {"deadline": self._instant(deadline)})
        return self.agree(call, lambda _: self.model.scopes.ensure_run(self.now, name, deadline))

    @rule(scope=scopes)
    def look_at_a_scope(self, scope):
        self.agree(Call("GET", f"/scopes/{scope.id}"), lambda _: scope)

    @rule(scope=scopes, how=st.sampled_from([("cancel", "CANCELLED"), ("complete", "COMPLETED")]))
    def end_a_scope(self, scope, how):
        verb, state = how
        self.agree(
            end(scope.id, verb), lambda _: {"id": scope.id} | self.model.scopes.end(self.now, scope, state)
        )

    @rule()
    def list_the_roots(self):
        page = ok(self.api.get("/scopes", params={"limit": 500}))
        listed = {seen["id"]: seen["effective"] for seen in page["scopes"]}
        roots = [s for s in self.model.scopes.all if s.parent is None]
        assert listed == {s.id: s.effective(self.now) for s in roots}

    # Once

    @rule(target=tokens, scope=scopes, key=KEYS, holder=HOLDERS, lease_s=LEASES_S)
    def acquire(self, scope, key, holder, lease_s):
        answer = self.agree(
            Once(scope.id, key).acquire(holder, lease_s=lease_s),
            lambda body: self.model.acquire(
                self.now, scope, key, holder=holder, lease_s=lease_s, token=body.get("token")
            ),
        )
        granted = answer is not None and answer["state"] == "ACQUIRED"
        return (scope, key, answer["token"]) if granted else multiple()

    @rule(scope=scopes, key=KEYS, wait_ms=st.sampled_from([0, 1]))
    def look_at_a_key(self, scope, key, wait_ms):
        self.agree(Once(scope.id, key).view(wait_ms), lambda _: self.model.view(self.now, scope, key))

    @rule(held=tokens, lease_s=LEASES_S)
    def renew(self, held, lease_s):
        scope, key, token = held
        self.agree(
            Once(scope.id, key).renew(token, lease_s),
            lambda _: self.model.renew(self.now, scope, key, token=token, lease_s=lease_s),
        )

    @rule(held=tokens, result=st.none() | st.integers() | st.text(max_size=5))
    def complete(self, held, result):
        scope, key, token = held
        self.agree(
            Once(scope.id, key).complete(token, result),
            lambda _: self.model.complete(self.now, scope, key, token=token, result=result),
        )

    @rule(held=tokens, error=st.sampled_from(["e1", "e2", ""]), max_attempts=st.integers(1, 3))
    def fail(self, held, error, max_attempts):
        scope, key, token = held
        self.agree(
            Once(scope.id, key).fail(token, error, max_attempts),
            lambda _: self.model.fail(
                self.now, scope, key, token=token, error=error, max_attempts=max_attempts
            ),
        )

    # Time

    @rule(seconds=st.sampled_from([1000, 2000]))
    def time_passes(self, seconds):
        self.clock.shift(seconds)
        self.now += seconds

    @rule(function=st.sampled_from(["once_sweep", "scope_sweep"]))
    def a_sweep_comes_by(self, function):
        database.fetch(
            self.where.database_url, f"SELECT count FROM {database.kernel_schema()}.{function}(1000)"
        )
        (self.model.sweep if function == "once_sweep" else self.model.scopes.sweep)(self.now)

    @invariant()
    def at_most_one_live_holder_and_none_in_an_ended_scope(self):
        rows = database.fetch(
            self.where.database_url,
            "SELECT count(*) FILTER (WHERE s.effective <> 'ACTIVE') AS ended, count(*) AS held"
            " FROM runstate.once o JOIN runstate.scopes s ON s.id = o.scope_id"
            " WHERE o.space_id = $1 AND o.state = 'HELD'",
            self.space.id,
        )
        assert rows[0]["ended"] == 0
        assert rows[0]["held"] == sum(row.state == "HELD" for row in self.model.all.values())


class Where:
    """A replica that does nothing by itself: it neither sweeps nor ticks."""

    def __init__(self, database_url, replica):
        self.database_url = database_url
        self.replica = replica


@pytest.mark.timeout(600)
def test_scopes_and_once_answer_as_their_models_do(template):
    with template.clone("machine") as url, Replica(url, SWEEP_S="3600", TICK_S="60") as replica:

        class Machine(ScopesAndOnce):
            where = Where(url, replica)

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=25 * SCALE,
                stateful_step_count=30,
                deadline=None,
                derandomize=SCALE == 1,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
