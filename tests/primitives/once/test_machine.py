"""Scopes and once against their models: whatever is asked in whatever order, every reply is the model's.

Time moves by thousands of seconds; leases and deadlines end half way between. So the seconds a run takes
decide nothing.
"""

import asyncio
import os
from collections import Counter
from datetime import datetime, timedelta

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.primitives.once.model import OnceKeys
from tests.primitives.scopes.model import Refused, Scope
from tests.support import database, spaces
from tests.support.builders import Call, Once, end, ok, refused
from tests.support.journal import events
from tests.support.machines import as_told
from tests.support.processes import Replica

SCALE = int(os.environ.get("SCALE", "1"))
SLACK_S = 400
SCOPES_MAX, RUNS_MAX = 8, 4  # few things, so that calls meet at the same ones
HOW = settings(
    max_examples=80 * SCALE,
    stateful_step_count=40,
    deadline=None,
    derandomize=SCALE == 1,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
LEASES_S = st.sampled_from([500, 1500, 3500])
DEADLINES_S = st.sampled_from([None, None, None, 500, 1500, 4500, -500])
CHILD_LIMITS = st.sampled_from([1000, 1, 2])
ENDS_SELDOM = st.sampled_from([None, None, ("cancel", "CANCELLED"), ("complete", "COMPLETED")])
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

    @initialize(target=scopes, deadlines_s=st.tuples(DEADLINES_S, DEADLINES_S))
    def a_first_tree(self, deadlines_s):
        """A root, its child and its grandchild, so that most runs have a depth."""
        child = self._create(self.first, deadlines_s[0], 1000)
        grandchild = child and self._create(child, deadlines_s[1], 1000)
        return multiple(*(scope for scope in (self.first, child, grandchild) if scope))

    @precondition(lambda self: len(self.model.scopes.all) < SCOPES_MAX)
    @rule(target=scopes, parent=scopes, after_s=DEADLINES_S, child_limit=CHILD_LIMITS)
    def create(self, parent, after_s, child_limit):
        return self._create(parent, after_s, child_limit) or multiple()

    def _create(self, parent, after_s, child_limit):
        deadline = self._in(after_s)
        body = {"parentId": parent.id, "childLimit": child_limit, "deadline": self._instant(deadline)}
        return self.agree(
            Call("POST", "/scopes", body),
            lambda _: self.model.scopes.create(
                self.now, parent=parent, deadline=deadline, child_limit=child_limit
            ),
            201,
        )

    @precondition(lambda self: len([s for s in self.model.scopes.all if s.parent is None]) < RUNS_MAX)
    @rule(target=scopes, name=KEYS, after_s=DEADLINES_S)
    def ensure_run(self, name, after_s):
        known = set(map(id, self.model.scopes.all))
        deadline = self._in(after_s)
        call = Call("PUT", f"/runs/{name}", {"deadline": self._instant(deadline)})
        run = self.agree(call, lambda _: self.model.scopes.ensure_run(self.now, name, deadline))
        return multiple() if id(run) in known else run

    @rule(scope=scopes, how=ENDS_SELDOM)
    def look_at_a_scope_or_end_it(self, scope, how):
        if how is None:
            self.agree(Call("GET", f"/scopes/{scope.id}"), lambda _: scope)
            return
        verb, state = how
        self.agree(
            end(scope.id, verb),
            lambda told: as_told(told, {"id": scope.id} | self.model.scopes.end(self.now, scope, state)),
        )

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

    # Reading everything there is

    @rule(wait_ms=st.sampled_from([0, 1]))
    def look_at_everything(self, wait_ms):
        for scope, key in self.model.all:
            self.agree(
                Once(scope.id, key).view(wait_ms), lambda _, s=scope, k=key: self.model.view(self.now, s, k)
            )
        for scope in self.model.scopes.all:
            self.agree(Call("GET", f"/scopes/{scope.id}"), lambda _, s=scope: s)
        page = ok(self.api.get("/scopes", params={"limit": 500}))
        listed = {seen["id"]: seen["effective"] for seen in page["scopes"]}
        roots = [s for s in self.model.scopes.all if s.parent is None]
        assert listed == {s.id: s.effective(self.now) for s in roots}

    # Time

    @rule(seconds=st.sampled_from([1000, 2000]))
    def time_passes(self, seconds):
        self.where.sql("UPDATE {k}.test_clock SET shift = shift + make_interval(secs => $1)", float(seconds))
        self.now += seconds

    @rule(function=st.sampled_from(["once_sweep", "scope_sweep"]))
    def a_sweep_comes_by(self, function):
        self.where.sql(f"SELECT count FROM {{k}}.{function}(1000)")
        (self.model.sweep if function == "once_sweep" else self.model.scopes.sweep)(self.now)

    @invariant()
    def what_is_stored_is_what_the_model_has(self):
        rows = self.where.sql(
            "SELECT id::text, stored, effective, version, children FROM runstate.scopes WHERE space_id = $1",
            self.space.id,
        )
        wanted = {(s.id, s.stored, s.written, s.version, s.children) for s in self.model.scopes.all}
        assert {tuple(row) for row in rows} == wanted
        rows = self.where.sql(
            "SELECT scope_id::text, key, state, attempts, holder, token, last_error FROM runstate.once"
            " WHERE space_id = $1",
            self.space.id,
        )
        assert {tuple(row) for row in rows} == {
            (scope.id, key, row.state, row.attempts, row.holder, row.token, row.last_error)
            for (scope, key), row in self.model.all.items()
        }


class Where:
    """A replica that does nothing by itself (it neither sweeps nor ticks), and a line to its database."""

    def __init__(self, database_url, replica):
        self.database_url = database_url
        self.replica = replica
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(database_url))

    def sql(self, sql, *args):
        """All rows of a statement, in which {k} is the schema of the functions."""
        sql = sql.replace("{k}", database.kernel_schema())
        return self._loop.run_until_complete(self._connection.fetch(sql, *args))

    def close(self):
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


@pytest.mark.timeout(600)
def test_scopes_and_once_answer_as_their_models_do(template):
    with template.clone("machine") as url, Replica(url, SWEEP_S="3600", TICK_S="60") as replica:
        where = Where(url, replica)
        machine = type("Machine", (ScopesAndOnce,), {"where": where})
        try:
            run_state_machine_as_test(machine, settings=HOW)
        finally:
            where.close()
