"""Tasks."""

import httpx

from tests.promises.kinds import Mutation, Shape
from tests.promises.rows_messages import PAYLOAD, TAKING, TAKING_REQUIRED, box
from tests.support.builders import Call, end, ok, scope
from tests.support.limits import limit
from tests.support.queues import Delivery, Mailbox, batch, cancel, submitted, taken, view

KEYS = ("a", "b", "c")


def _filled(client: httpx.Client) -> Mailbox:
    filled = box(client)
    for key in KEYS:
        submitted(client, filled, key, input=PAYLOAD)
    return filled


def _ended(client: httpx.Client) -> Mailbox:
    it = box(client)
    ok(end(it.scope).send(client))
    return it


def _task(client: httpx.Client) -> str:
    return submitted(client, box(client), input=PAYLOAD)


def _submitted_before(client: httpx.Client) -> Call:
    it = box(client)
    submitted(client, it, "k")
    return it.submit("k", input="other")


def _batch(it: Mailbox) -> Call:
    return batch([it.task(key, input=PAYLOAD) for key in KEYS])


def _full_batch(client: httpx.Client) -> Call:
    return _batch(box(client, backlogLimit=len(KEYS) - 1))


def _limited(client: httpx.Client, most: int, *before: str) -> tuple[Call, Call]:
    """Two submits, in a scope that may have so many unfinished tasks, and those that it has already."""
    it = box(client)
    limit(client, it.scope, most, "outstanding")
    for key in before:
        submitted(client, it, key, workLimit="outstanding")
    first, second = (it.submit(key, workLimit="outstanding") for key in ("k", "other"))
    return first, second


def _cancelled(client: httpx.Client) -> Call:
    task = _task(client)
    ok(cancel(task).send(client))
    return cancel(task)


def _held(client: httpx.Client) -> Delivery:
    return taken(client, _filled(client).admit())


def _join(client: httpx.Client, task: str) -> Call:
    return Call("POST", f"/tasks/{task}/join", {"subscriberId": "ann", "scopeId": scope(client)})


def _detach(task: str) -> Call:
    return Call("POST", f"/tasks/{task}/detach", {"subscriberId": "ann"})


def _joined(client: httpx.Client) -> Call:
    call = _join(client, _task(client))
    ok(call.send(client))
    return call


def _joined_and_detaching(client: httpx.Client) -> Call:
    task = submitted(client, box(client), subscriberId="ann")
    return _detach(task)


def _renewal(_: Call, told: dict) -> Call:
    first = told["admitted"][0] if "admitted" in told else told
    return Delivery(first["messageId"], first["token"], 1, None).renew()


MUTATIONS = [
    Mutation(
        "POST /tasks",
        lambda c: box(c).submit("k", input=PAYLOAD, priority=-5, subscriberId="ann"),
        ("task.submitted",),
        refused=lambda c: _ended(c).submit("k"),
        idle=_submitted_before,
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /tasks under a work limit",
        lambda c: _limited(c, 1)[0],
        ("task.submitted",),
        refused=lambda c: _limited(c, 1, "a")[1],
        idle=lambda c: _limited(c, 1, "k")[0],
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /tasks/batch",
        lambda c: _batch(box(c)),
        ("task.submitted",) * len(KEYS),  # a change of each task
        refused=_full_batch,
        idle=lambda c: _batch(_filled(c)),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /tasks/admit",
        lambda c: _filled(c).admit(),
        ("task.started",),
        refused=lambda c: _ended(c).admit(),
        idle=lambda c: box(c).admit(),
        after_end="SCOPE_CANCELLED",
        renewal=_renewal,
    ),
    Mutation(
        "POST /tasks/admit of many",
        lambda c: _filled(c).admit(max=10),
        ("task.started",) * len(KEYS),
        idle=lambda c: box(c).admit(max=10),
        after_end="SCOPE_CANCELLED",
        renewal=_renewal,
    ),
    Mutation(
        "POST /messages/{message_id}/complete of a task",
        lambda c: _held(c).complete(PAYLOAD),
        ("task.succeeded",),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /messages/{message_id}/nack of a task",
        lambda c: _held(c).nack(retry=False),
        ("task.failed",),
        after_end="SCOPE_CANCELLED",
    ),
    Mutation(
        "POST /tasks/{task_id}/cancel",
        lambda c: cancel(_task(c), reason="enough"),
        ("task.cancelled",),
        idle=_cancelled,
    ),
    # Who waits for a task is no state of it: the contract has no events of join and detach.
    Mutation("POST /tasks/{task_id}/join", lambda c: _join(c, _task(c)), (), idle=_joined),
    Mutation("POST /tasks/{task_id}/detach", _joined_and_detaching, (), idle=lambda c: _detach(_task(c))),
]

SHAPES = [
    Shape(
        "POST /tasks",
        lambda c: box(c).submit("k", input=PAYLOAD),
        {
            "scopeId": "id",
            "mailboxId": "id",
            "taskKey": "key",
            "input": "json",
            "deadline": "instant",
            "subscriberId": "name",
            "priority": "-100..100",
            "delaySeconds": "delay",
            "workLimit": "name of a limit",
            "requirements": "needs",
        },
        frozenset({"scopeId", "mailboxId", "taskKey"}),
        shows=lambda _, told: view(told["taskId"]),
    ),
    Shape(
        "POST /tasks/batch",
        lambda c: _batch(box(c)),
        {"tasks": "tasks"},
        frozenset({"tasks"}),
        body_bytes_max=4 * 1024 * 1024,
        shows=lambda _, told: view(told["tasks"][0]["taskId"]),
    ),
    Shape(
        "POST /tasks/admit",
        lambda c: _filled(c).admit(),
        TAKING | {"mailboxId": "id", "max": "1..50"},
        TAKING_REQUIRED | {"mailboxId"},
    ),
    Shape(
        "GET /tasks",
        lambda _: Call("GET", "/tasks"),
        query={
            "scopeId": "id",
            "mailboxId": "id",
            "state": "state",
            "taskKey": "key",
            "cursor": "cursor",
            "limit": "1..500",
        },
        needs=("observe",),
    ),
    Shape("GET /tasks/{task_id}", lambda c: view(_task(c)), query={"waitMs": "0..30000"}),
    Shape("POST /tasks/{task_id}/cancel", lambda c: cancel(_task(c)), {"reason": "text"}),
    Shape(
        "POST /tasks/{task_id}/join",
        lambda c: _join(c, _task(c)),
        {"subscriberId": "name", "scopeId": "id"},
        frozenset({"subscriberId", "scopeId"}),
    ),
    Shape(
        "POST /tasks/{task_id}/detach",
        lambda c: _detach(_task(c)),
        {"subscriberId": "name"},
        frozenset({"subscriberId"}),
    ),
]
