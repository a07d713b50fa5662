"""Messages and tasks against their model: whatever is asked in whatever order, every reply is the model's."""

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, invariant, multiple, precondition, rule, run_state_machine_as_test

from tests.primitives.messages.model import Box, Message, Queues
from tests.support import audit, machines
from tests.support.builders import ok
from tests.support.machines import InScopes
from tests.support.queues import Delivery, Mailbox, cancel, redrive, view

LEASES_S = st.sampled_from([500, 1500])
BOXES = st.sampled_from([0, 1, 1, 2])
PRIORITIES = st.sampled_from([0, 0, 1, -1])
MESSAGES_MAX = 60


class MessagesInScopes(InScopes):
    messages = Bundle("messages")
    deliveries = Bundle("deliveries")
    sweeps = ("message_sweep",)

    def __init__(self):
        super().__init__(Queues())
        self.boxes = [
            Box("work", inbox=False, max_attempts=2, backlog_limit=None),
            Box("inbox", inbox=True, max_attempts=2, backlog_limit=None),
            Box("small", inbox=False, max_attempts=1, backlog_limit=2),
        ]
        for box in self.boxes:
            settings = {"maxAttempts": box.max_attempts, "backlogLimit": box.backlog_limit}
            settings |= {"name": box.name, "mode": "INBOX" if box.inbox else "WORK"}
            box.id = ok(self.api.post("/mailboxes", json=settings), 201)["id"]

    def teardown(self):
        assert audit.broken(self.where.database_url) == {}
        super().teardown()

    @precondition(lambda self: len(self.model.all) < MESSAGES_MAX)
    @rule(
        target=messages,
        scope=InScopes.scopes,
        which=BOXES,
        key=st.sampled_from([None, "a", "b"]),
        when=st.sampled_from([(0, None), (0, None), (0, 1500), (500, None), (1500, 500)]),
        priority=PRIORITIES,
        is_task=st.booleans(),
    )
    def arrive(self, scope, which, key, when, priority, is_task):
        """Sent or submitted, with or without a key, a delay and a deadline."""
        box, payload, (delay_s, after_s) = self.boxes[which], len(self.model.all), when
        deadline, model = self.later(after_s), self.model
        asked = {"priority": priority, "delaySeconds": delay_s, "deadline": self.instant(deadline)}
        more = {"payload": payload, "priority": priority, "delay_s": delay_s, "deadline": deadline}
        if is_task:
            key = key or f"task {payload}"
            return self._arrived(
                Mailbox(box.id, scope.id).submit(key, input=payload, **asked),
                lambda told: model.at(self.now).submit(
                    box, scope, message_id=told.get("taskId"), task_key=key, **more
                ),
                lambda m: {"taskId": m.id, "state": m.task_state(self.now)},
            )
        return self._arrived(
            Mailbox(box.id, scope.id).send(payload, workKey=key, **asked),
            lambda told: model.at(self.now).send(box, scope, message_id=told.get("id"), work_key=key, **more),
            lambda m: {"id": m.id},
        )

    def _arrived(self, call, verb, shown):
        """The new message; nothing for one that was there, or a refusal."""
        count, found = len(self.model.all), []

        def expected(told):
            found.append(verb(told))
            return shown(found[0]) | {"replay": len(self.model.all) == count}

        self.agree(call, expected, 201)
        return found[0] if len(self.model.all) > count else multiple()

    @rule(
        target=deliveries,
        near=messages,
        up=st.sampled_from([None, 0, 1, 2]),
        form=st.sampled_from(["recv", "recv", "admit", "admit some"]),
        lease_s=LEASES_S,
    )
    def take(self, near, up, form, lease_s):
        """From the scope of some message, or from above it with what lies below."""
        box, below = near.box, up is not None
        scope = near.scope.chain[max(0, near.scope.depth - (up or 0))]
        where = Mailbox(box.id, scope.id)
        more = {"includeDescendants": below} | ({"max": 3} if form == "admit some" else {})
        call = (where.recv if form == "recv" else where.admit)("w", lease_s, **more)
        taken = []

        def expected(told):
            taken[:] = self.model.at(self.now).take(
                box,
                scope,
                below=below,
                tasks_only=form != "recv",
                count=3 if form == "admit some" else 1,
                lease_s=lease_s,
            )
            if not taken:
                return None
            answers = told["admitted"] if form == "admit some" else [told]
            for m, answer in zip(taken, answers, strict=True):
                m.token = answer["token"]
            shown = [self._shown(m, form) for m in taken]
            return {"admitted": shown} if form == "admit some" else shown[0]

        self.agree(call, expected)
        return multiple(*[(m, m.token) for m in taken])

    def _shown(self, m, form):
        lease = {"token": m.token, "leaseExpiresAt": float(m.expires_at)}
        what = {"payload": m.payload, "attempt": m.attempt, "scopeId": m.scope.id}
        if form == "recv":
            task_id = m.id if m.task_key is not None else None
            deadline = None if m.deadline is None else float(m.deadline)
            return lease | {"message": what | {"id": m.id, "taskId": task_id, "deadline": deadline}}
        empty = {"grants": [], "consumptions": [], "reservations": []}
        return lease | what | empty | {"taskId": m.id, "messageId": m.id, "taskKey": m.task_key}

    @rule(
        held=deliveries,
        how=st.sampled_from(["complete", "retry", "retry", "give up", "hand back", "renew"]),
        error=st.sampled_from([None, "boom"]),
        delay_s=st.sampled_from([0, 0, 500]),
    )
    def settle(self, held, how, error, delay_s):
        (m, token), model = held, self.model
        delivery = Delivery(m.id, token, 0, None)
        if how == "renew":
            self.agree(delivery.renew(), lambda _: model.at(self.now).renew(m, token, None))
        elif how == "complete":
            self.agree(delivery.complete([m.id]), lambda _: model.at(self.now).complete(m, token, [m.id]))
        else:
            retry, back = how != "give up", how == "hand back"
            self.agree(
                delivery.nack(retry=retry, error=error, delaySeconds=delay_s, handBack=back),
                lambda _: model.at(self.now).nack(
                    m, token, retry=retry, error=error, delay_s=delay_s, hand_back=back
                ),
            )

    @rule(m=messages, how=st.sampled_from(["redrive", "redrive", "cancel"]))
    def meddle(self, m, how):
        if how == "redrive":
            self.agree(redrive(m.id), lambda _: self.model.at(self.now).redrive(m))
        elif m.task_key is not None:
            self._task(cancel(m.id, reason="why"), lambda: self.model.at(self.now).cancel(m, "why"))

    @rule(m=messages)
    def look(self, m):
        if m.task_key is not None:
            self._task(view(m.id), lambda: m.view(self.now))
        self._list_the_messages(m.box)

    def _task(self, call, verb):
        told = ok(call.send(self.api))
        seen = verb()
        assert {name: told[name] for name in seen} == seen

    def _list_the_messages(self, box):
        page = ok(Mailbox(box.id, "").messages(limit=500).send(self.api))
        listed = [(m["id"], m["state"], m["attempt"], m["lastError"]) for m in page["messages"]]
        mine = [m for m in reversed(self.model.all) if m.box is box]
        assert listed == [(m.id, m.state(self.now), m.attempt, m.last_error) for m in mine]

    def a_moment_passes(self):
        self.model.at(self.now)

    @invariant()
    def what_is_stored_is_what_the_model_has(self):
        rows = self.where.sql(
            """
            SELECT m.id::text, COALESCE(m.ended, CASE WHEN l.seq IS NULL THEN 'READY' ELSE 'LEASED' END),
                   COALESCE(l.attempt, r.attempt, m.attempt), l.token, r.deliverable, m.outcome_reason
              FROM runstate.messages m
              LEFT JOIN runstate.queue_leased l ON l.space_id = m.space_id AND l.seq = m.seq
              LEFT JOIN runstate.queue_ready r ON r.space_id = m.space_id AND r.seq = m.seq
             WHERE m.space_id = $1""",
            self.space.id,
        )
        assert {tuple(row) for row in rows} == {
            (
                m.id,
                m.stored,
                m.attempt,
                m.token if m.stored == "LEASED" else None,
                m.deliverable if m.stored == "READY" else None,
                m.reason,
            )
            for m in self.model.all
        }


@pytest.mark.timeout(600)
def test_messages_and_tasks_answer_as_their_model_does(template):
    with machines.where(template) as where:
        machine = type("Machine", (MessagesInScopes,), {"where": where})
        run_state_machine_as_test(machine, settings=machines.how(60))


class Walk:
    """A long way through the machine: more steps than Hypothesis takes, by chance alone."""

    def __init__(self, machine, chance):
        self._machine, self._chance = machine, chance
        self._scopes, self._messages, self._deliveries = [], [], []

    def go(self, steps):
        pick = self._chance.choice
        self._scopes = self._machine.a_tree((None, pick([None, 4500]))).values
        for _ in range(steps):
            step = self._chance.choices(
                [self._arrive, self._take, self._settle, self._meddle, self._time, self._other],
                [30, 30, 30, 6, 3, 3],
            )[0]
            step(pick)
            self._machine.what_is_stored_is_what_the_model_has()

    def _arrive(self, pick):
        when = pick([(0, None), (0, None), (0, 1500), (500, None), (1500, 500)])
        made = self._machine.arrive(
            pick(self._scopes),
            pick([0, 1, 1, 2]),
            pick([None, None, "a", "b"]),
            when,
            pick([0, 0, 1, -1]),
            pick([False, True]),
        )
        self._messages += [made] if isinstance(made, Message) else []

    def _take(self, pick):
        if self._messages:
            form = pick(["recv", "recv", "admit", "admit some"])
            got = self._machine.take(pick(self._messages), pick([None, 0, 1, 2]), form, pick([500, 1500]))
            self._deliveries += got.values

    def _settle(self, pick):
        if self._deliveries:
            how = pick(["complete", "complete", "retry", "give up", "hand back", "renew"])
            held = pick(self._deliveries[-3:] + self._deliveries)
            self._machine.settle(held, how, pick([None, "boom"]), pick([0, 0, 500]))

    def _meddle(self, pick):
        if self._messages:
            self._machine.meddle(pick(self._messages), pick(["redrive", "redrive", "cancel"]))

    def _time(self, pick):
        self._machine.time_passes(1000)

    def _other(self, pick):
        kind = self._chance.random()
        if kind < 0.5 and self._messages:
            self._machine.look(pick(self._messages))
        elif kind < 0.9:
            self._machine.sweep_by(pick(["message_sweep", "scope_sweep"]))
        else:
            self._machine.end_a_scope(pick(self._scopes[1:]), pick(["CANCELLED", "COMPLETED"]))


@pytest.mark.timeout(600)
def test_long_walks_answer_as_the_model_does(template):
    with machines.where(template) as where:
        for seed in range(10 * machines.SCALE):
            machine = type("Machine", (MessagesInScopes,), {"where": where})()
            try:
                Walk(machine, random.Random(seed)).go(120)
            finally:
                machine.teardown()
