"""Task groups."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.promises.rows_messages import PAYLOAD, box
from tests.support.builders import Call, ok
from tests.support.groups import Group, creation, done, group, member
from tests.support.queues import submitted


def _group(client: httpx.Client, condition: str = "ALL_TERMINAL", **more: object) -> Group:
    return group(client, box(client), condition, **more)


def _creation(client: httpx.Client, condition: str = "N_ACCEPTED") -> Call:
    it = box(client)
    return creation(it.id, condition, threshold=1, parentScopeId=it.scope)


def _closed(client: httpx.Client) -> Group:
    over = _group(client)
    ok(over.close().send(client))
    return over


def _with_member(client: httpx.Client) -> Group:
    one = _group(client)
    member(client, one, "k")
    return one


def _joining(client: httpx.Client) -> Call:
    it = box(client)
    return group(client, it).join(submitted(client, it, "outside"))


def _joined(client: httpx.Client) -> Call:
    call = _joining(client)
    ok(call.send(client))
    return call


def _judging(client: httpx.Client, verdict: str = "accept") -> Call:
    """Of a member that has succeeded, in a group that goes on after it."""
    some = _group(client)
    return some.judge(done(client, some, "k")[0], verdict)


def _judged(client: httpx.Client, verdict: str = "accept", then: str | None = None) -> Call:
    some = _group(client)
    (task,) = done(client, some, "k")
    ok(some.judge(task, verdict).send(client))
    return some.judge(task, then or verdict)


def _winning(client: httpx.Client) -> Call:
    some = _group(client, "FIRST_ACCEPTED")
    return some.judge(done(client, some, "k")[0])


MUTATIONS = [
    Mutation(
        "POST /task-groups",
        _creation,
        ("scope.created", "group.created"),  # the group's, and its scope's
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /task-groups/{group_id}/tasks",
        lambda c: _group(c).submit("k", input=PAYLOAD),
        ("task.submitted",),
        refused=lambda c: _closed(c).submit("k"),
        idle=lambda c: _with_member(c).submit("k", input="other"),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /task-groups/{group_id}/tasks of the last expected",
        lambda c: _group(c, expectedMembers=1).submit("k"),
        ("task.submitted", "group.sealed"),
        after_end="SCOPE_CANCELLED",
    ),
    # Who watches a task is no state of it, nor of the group until it is sealed: the contract has no event.
    Mutation(
        "POST /task-groups/{group_id}/join-task",
        _joining,
        (),
        idle=_joined,
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /task-groups/{group_id}/close",
        lambda c: _with_member(c).close(),
        ("group.sealed",),
        idle=lambda c: _closed(c).close(),
    ),
    Mutation(
        "POST /task-groups/{group_id}/seal",
        lambda c: _with_member(c).close("seal"),
        ("group.sealed",),
        refused=lambda c: _closed(c).close("seal"),
        after_end="CONFLICT",
    ),
    Mutation(
        "POST /task-groups/{group_id}/tasks/{task_id}/accept",
        _judging,
        ("group.accepted",),
        refused=lambda c: _judged(c, "reject", "accept"),
        idle=_judged,
    ),
    Mutation(
        "POST /task-groups/{group_id}/tasks/{task_id}/accept of the last that was wanted",
        _winning,
        ("group.accepted", "group.finalized"),
    ),
    Mutation(
        "POST /task-groups/{group_id}/tasks/{task_id}/reject",
        lambda c: _judging(c, "reject"),
        ("group.rejected",),
        refused=lambda c: _judged(c, "accept", "reject"),
        idle=lambda c: _judged(c, "reject"),
    ),
]

SHAPES = [
    Shape(
        "POST /task-groups",
        lambda c: _creation(c, "FIRST_ACCEPTED"),
        {
            "mailboxId": "id",
            "condition": "condition",
            "threshold": "threshold",
            "expectedMembers": "1..100",
            "deadline": "instant",
            "parentScopeId": "id",
        },
        frozenset({"mailboxId", "condition"}),
    ),
    Shape(
        "GET /task-groups/{group_id}",
        lambda c: _group(c).view(),
        query={"waitMs": "0..30000", "finished": "0..1000"},
    ),
    Shape(
        "POST /task-groups/{group_id}/tasks",
        lambda c: _group(c).submit("k", input=PAYLOAD),
        {
            "taskKey": "key",
            "input": "json",
            "deadline": "instant",
            "requirements": "needs",
            "priority": "-100..100",
        },
        frozenset({"taskKey"}),
        shows=lambda _, told: Call("GET", f"/tasks/{told['taskId']}"),
    ),
    Shape("POST /task-groups/{group_id}/join-task", _joining, {"taskId": "id"}, frozenset({"taskId"})),
    Shape("POST /task-groups/{group_id}/close", lambda c: _group(c).close()),
    Shape("POST /task-groups/{group_id}/seal", lambda c: _group(c).close("seal")),
    Shape("POST /task-groups/{group_id}/tasks/{task_id}/accept", _judging),
    Shape("POST /task-groups/{group_id}/tasks/{task_id}/reject", lambda c: _judging(c, "reject")),
]
