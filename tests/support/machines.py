"""What the state machines of rooms share: a space with a tree of scopes, its model, and time that they move.

Time moves by thousands of seconds; leases, delays and deadlines end half way between. So the seconds a run
takes decide nothing.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, ClassVar

import asyncpg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

from tests.primitives.scopes.model import Refused, Scope, Scopes
from tests.support import database, spaces
from tests.support.builders import Call, end, ok, refused
from tests.support.database import Template
from tests.support.journal import events
from tests.support.processes import Replica

SCALE = int(os.environ.get("SCALE", "1"))
SLACK_S = 400
DEADLINES_S = st.sampled_from([None, None, None, 1500, 4500])
ENDS_SELDOM = st.sampled_from([None, None, None, "CANCELLED", "COMPLETED"])


def how(examples: int) -> settings:
    """So many runs, the same ones every time; SCALE=10 in the environment: ten times as many, others each."""
    return settings(
        max_examples=examples * SCALE,
        stateful_step_count=40,
        deadline=None,
        derandomize=SCALE == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )


class Where:
    """A replica that does nothing by itself (it neither sweeps nor ticks), and a line to its database."""

    def __init__(self, database_url: str, replica: Replica) -> None:
        self.database_url = database_url
        self.replica = replica
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(database_url))

    def sql(self, sql: str, *args: Any) -> Any:
        """All rows of a statement, in which {k} is the schema of the functions."""
        sql = sql.replace("{k}", database.kernel_schema())
        return self._loop.run_until_complete(self._connection.fetch(sql, *args))

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


@contextmanager
def where(template: Template) -> Iterator[Where]:
    with template.clone("machine") as url, Replica(url, SWEEP_S="3600", TICK_S="60") as replica:
        found = Where(url, replica)
        try:
            yield found
        finally:
            found.close()


def as_told(told: dict[str, Any], modelled: dict[str, object]) -> dict[str, object]:
    """The answer of an end, with how much it ended as the server says: the models do not count."""
    return modelled | {name: told[name] for name in ("ended",) if name in told}


class InScopes(RuleBasedStateMachine):
    """A machine whose things live in scopes. A subclass gives `sweeps` and makes `model` before this one's
    __init__ ends; the model has `scopes`, `events` and, for each sweep, a method of its name."""

    scopes = Bundle("scopes")
    where: ClassVar[Where]
    sweeps: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.space = spaces.create(self.where.database_url)
        self.api = self.space.client(self.where.replica.url)
        self.model = model
        self.now = 0.0
        start = ok(self.api.post("/scopes", json={}), 201)
        self.start = datetime.fromisoformat(start["createdAt"])
        self.first = self._tree.create(0, parent=None, deadline=None, child_limit=1000)
        self.first.id = start["id"]

    @property
    def _tree(self) -> Scopes:
        return self.model.scopes

    def teardown(self) -> None:
        try:
            told = events(self.where.database_url, self.space.id)
            seen = Counter(
                (e.type, e.aggregate) for e in told if not e.type.startswith(("key.", "resource."))
            )
            modelled = Counter((kind, scope.id) for kind, scope in self._tree.events)
            assert seen == modelled + Counter(self.model.events)
        finally:
            self.api.close()

    def agree(
        self, call: Call, expected: Callable[[Any], Any], status: int = 200, *, key: str | None = None
    ) -> Any:
        """Send the call; its reply must be what the model's verb gives or raises. Returns the model's."""
        response = call.send(self.api, key)
        told = response.json() if response.content else None
        try:
            answer = expected(told)
        except Refused as refusal:
            refused(response, refusal.code)
            return None
        if answer is None:
            assert response.status_code == 204, response.text
            return None
        body = ok(response, status)
        assert self.without_times(body, answer) == answer, (body, answer)
        return answer

    def without_times(self, told: Any, modelled: Any) -> Any:
        """The server's answer with its instants in the model's numbers, where the model has a number."""
        if isinstance(told, dict) and isinstance(modelled, dict):
            return {k: self.without_times(v, modelled.get(k)) for k, v in told.items()}
        if isinstance(told, list) and isinstance(modelled, list) and len(told) == len(modelled):
            return [self.without_times(a, b) for a, b in zip(told, modelled, strict=True)]
        if isinstance(told, str) and isinstance(modelled, float):
            at = (datetime.fromisoformat(told) - self.start).total_seconds()
            return modelled if abs(at - modelled) < SLACK_S else at
        return told

    def a_moment_passes(self) -> None:
        """For a model that has to know that another call comes."""

    def instant(self, at_s: float | None) -> str | None:
        return None if at_s is None else (self.start + timedelta(seconds=at_s)).isoformat()

    def later(self, after_s: float | None) -> float | None:
        return None if after_s is None else self.now + after_s

    @initialize(target=scopes, deadlines_s=st.tuples(DEADLINES_S, DEADLINES_S))
    def a_tree(self, deadlines_s: tuple[float | None, float | None]) -> Any:
        """A root, a child, a grandchild, and another child."""
        child = self._child(self.first, deadlines_s[0])
        tree = [self.first, child, self._child(child, deadlines_s[1]), self._child(self.first, None)]
        return multiple(*tree)

    def _child(self, parent: Scope, after_s: float | None) -> Scope:
        deadline = self.later(after_s)
        made = ok(
            self.api.post("/scopes", json={"parentId": parent.id, "deadline": self.instant(deadline)}), 201
        )
        scope = self._tree.create(self.now, parent=parent, deadline=deadline, child_limit=1000)
        scope.id = made["id"]
        return scope

    @rule(scope=scopes, state=ENDS_SELDOM)
    def end_a_scope(self, scope: Scope, state: str | None) -> None:
        if state is not None:
            self.a_moment_passes()
            verb = {"CANCELLED": "cancel", "COMPLETED": "complete"}[state]
            self.agree(
                end(scope.id, verb),
                lambda told: as_told(told, {"id": scope.id} | self._tree.end(self.now, scope, state)),
            )

    @rule(seconds=st.sampled_from([1000, 2000]))
    def time_passes(self, seconds: int) -> None:
        self.where.sql("UPDATE {k}.test_clock SET shift = shift + make_interval(secs => $1)", float(seconds))
        self.now += seconds

    @rule(data=st.data())
    def a_sweep_comes_by(self, data: Any) -> None:
        self.sweep_by(data.draw(st.sampled_from((*self.sweeps, "scope_sweep"))))

    def sweep_by(self, function: str) -> None:
        """One step of that sweep."""
        self.a_moment_passes()
        self.where.sql(f"SELECT count FROM {{k}}.{function}(1000)")
        if function == "scope_sweep":
            self._tree.sweep(self.now)
        else:
            self.model.sweep(self.now)
