"""Task groups against their model: whatever is asked in whatever order, every reply is the model's."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, multiple, rule, run_state_machine_as_test

from tests.primitives.groups.model import Groups, Task
from tests.primitives.scopes.model import Refused
from tests.support import groups, machines
from tests.support.builders import ok, refused
from tests.support.machines import InScopes
from tests.support.queues import cancel, delivery, mailbox

CONDITIONS = st.sampled_from([("ALL_TERMINAL", None), ("FIRST_ACCEPTED", 1), ("N_ACCEPTED", 2)])
EXPECTED = st.sampled_from([None, None, 1, 2, 3])
DEADLINES_S = st.sampled_from([None, None, None, 1500, 2500])
KEYS = st.sampled_from(["a", "b", "c"])


class GroupsInScopes(InScopes):
    made = Bundle("made")
    tasks = Bundle("tasks")
    sweeps = ("group_sweep",)

    def __init__(self):
        super().__init__(Groups())
        self.box = mailbox(self.api, self.first.id)

    def a_moment_passes(self):
        self.model.now = self.now

    @initialize(target=made, asked=st.lists(st.tuples(CONDITIONS, EXPECTED), min_size=2, max_size=3))
    def groups_with_a_member(self, asked):
        """So that most of the steps are about groups that have something to decide."""
        some = [self.make_in(self.first, *each, None) for each in asked]
        for group in some:
            self.submit_into(group, "a")
        return multiple(*some)

    def handle(self, group):
        return groups.Group(group.id, self.box.within(group.scope.id))

    @rule(target=made, scope=InScopes.scopes, condition=CONDITIONS, expected=EXPECTED, after_s=DEADLINES_S)
    def make(self, scope, condition, expected, after_s):
        return self.make_in(scope, condition, expected, after_s) or multiple()

    def make_in(self, scope, condition, expected, after_s):
        """The new group; None when it is refused."""
        self.a_moment_passes()
        kind, threshold = condition
        deadline = self.later(after_s)
        call = groups.creation(
            self.box.id,
            kind,
            threshold=threshold,
            expectedMembers=expected,
            deadline=self.instant(deadline),
            parentScopeId=scope.id,
        )
        found = []

        def expect(told):
            facts = {"condition": kind, "threshold": threshold, "expected": expected, "deadline": deadline}
            group = self.model.create(self.now, scope, **facts)
            group.id, group.scope.id = told["groupId"], told["scopeId"]
            self.model.events.append(("group.created", group.id))
            found.append(group)
            return {"groupId": group.id, "scopeId": group.scope.id, "state": "OPEN"}

        self.agree(call, expect, 201)
        return found[0] if found else None

    @rule(target=tasks, group=made, key=KEYS)
    def submit(self, group, key):
        return self.submit_into(group, key)

    @rule(target=tasks, group=made)
    def find_a_member(self, group):
        """The first of a group, to be judged and the like."""
        return multiple(*list(group.verdicts)[:1])

    def submit_into(self, group, key):
        call = self.handle(group).submit(key)
        return self._submitted(call, lambda: self.model.submit(self.now, group, key), 200)

    @rule(target=tasks, scope=InScopes.scopes, key=KEYS)
    def submit_elsewhere(self, scope, key):
        call = self.box.within(scope.id).submit(key)
        return self._submitted(call, lambda: self.model.submitted(self.now, scope, key), 201)

    def _submitted(self, call, verb, status):
        self.a_moment_passes()
        found = []
        before = len(self.model.events)

        def expect(told):
            task, replay = verb()
            if not task.id:
                self._name(task, told["taskId"], before)
            found.append(task)
            state = {"state": task.seen(self.now)} if "state" in told else {}
            return {"taskId": task.id, "replay": replay} | state

        self.agree(call, expect, status)
        return found[0] if found else multiple()

    def _name(self, task, task_id, before):
        """A new task: what the model told of it so far gets its id."""
        task.id = task_id
        events = self.model.events
        events[before:] = [(kind, of or task_id) for kind, of in events[before:]]
        events.append(("task.submitted", task_id))

    @rule(group=made, task=tasks)
    def join(self, group, task):
        self.a_moment_passes()
        self.agree(self.handle(group).join(task.id), lambda _: self.model.join(self.now, group, task))

    @rule(scope=InScopes.scopes, good=st.booleans())
    def work(self, scope, good):
        self.work_in(scope, good)

    def work_in(self, scope, good):
        """A worker takes what waits longest in one scope and is done with it at once."""
        self.a_moment_passes()
        call = self.box.within(scope.id).admit()
        try:
            self.model.scopes.refuse_ended(self.now, scope)
        except Refused as refusal:
            refused(call.send(self.api), refusal.code)
            return
        waiting = [t for t in self.model.tasks if t.scope is scope and t.seen(self.now) == "QUEUED"]
        response = call.send(self.api)
        if not waiting:
            assert response.status_code == 204
            return
        task: Task = waiting[0]
        told = ok(response)
        assert told["taskId"] == task.id
        held = delivery(told)
        ok((held.complete(1) if good else held.nack(retry=False)).send(self.api))
        self.model.events.append(("task.started", task.id))
        self.model.end_task(self.now, task, "SUCCEEDED" if good else "FAILED")

    @rule(task=tasks)
    def cancel(self, task):
        self.a_moment_passes()

        self.model.end_task(self.now, task, "CANCELLED")
        assert ok(cancel(task.id).send(self.api))["state"] == task.seen(self.now)

    @rule(group=made, task=tasks, verdict=st.sampled_from(["accept", "accept", "reject"]))
    def judge(self, group, task, verdict):
        self._judge(group, task, verdict)

    @rule(group=made, n=st.integers(0, 2), verdict=st.sampled_from(["accept", "accept", "reject"]))
    def judge_a_member(self, group, n, verdict):
        for task in list(group.verdicts)[n : n + 1]:
            self._judge(group, task, verdict)

    @rule(group=made, good=st.booleans())
    def work_in_a_group(self, group, good):
        self.work_in(group.scope, good)

    def _judge(self, group, task, verdict):
        self.a_moment_passes()
        given = {"accept": "ACCEPTED", "reject": "REJECTED"}[verdict]
        call = self.handle(group).judge(task.id, verdict)
        self.agree(call, lambda _: self.model.judge(self.now, group, task, given))

    @rule(group=made, how=st.sampled_from(["close", "seal"]))
    def close(self, group, how):
        self.a_moment_passes()
        call = self.handle(group).close(how)
        self.agree(call, lambda _: self.model.close(self.now, group, strict=how == "seal"))

    @rule(group=made)
    def look(self, group):
        self.a_moment_passes()
        where = {"scopeId": group.scope.id, "mailboxId": self.box.id}
        self.agree(self.handle(group).view(), lambda _: where | self.model.look(self.now, group))


@pytest.mark.timeout(600)
def test_groups_answer_as_their_model_does(template):
    with machines.where(template) as where:
        machine = type("Machine", (GroupsInScopes,), {"where": where})
        run_state_machine_as_test(machine, settings=machines.how(60))
