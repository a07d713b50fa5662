"""Calls of task groups."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.builders import Call, ok
from tests.support.queues import Delivery, Mailbox, delivery


@dataclass(frozen=True)
class Group:
    """One group, and the mailbox its tasks go to."""

    id: str
    box: Mailbox

    @property
    def scope(self) -> str:
        """The group's own scope."""
        return self.box.scope

    def view(self, wait_ms: int = 0, finished: int | None = None) -> Call:
        seen = "" if finished is None else f"&finished={finished}"
        return Call("GET", f"{self._path}?waitMs={wait_ms}{seen}")

    def submit(self, key: str = "review:1", **more: Any) -> Call:
        return Call("POST", f"{self._path}/tasks", {"taskKey": key, "input": {"key": key}} | more)

    def join(self, task_id: str) -> Call:
        return Call("POST", f"{self._path}/join-task", {"taskId": task_id})

    def close(self, how: str = "close") -> Call:
        return Call("POST", f"{self._path}/{how}", {})

    def judge(self, task_id: str, verdict: str = "accept") -> Call:
        return Call("POST", f"{self._path}/tasks/{task_id}/{verdict}", {})

    @property
    def _path(self) -> str:
        return f"/task-groups/{self.id}"


def creation(mailbox_id: str, condition: str = "ALL_TERMINAL", **more: Any) -> Call:
    return Call("POST", "/task-groups", {"mailboxId": mailbox_id, "condition": condition} | more)


def group(client: httpx.Client, box: Mailbox, condition: str = "ALL_TERMINAL", **more: Any) -> Group:
    """A new group below the scope of `box`."""
    more.setdefault("parentScopeId", box.scope)
    made = ok(creation(box.id, condition, **more).send(client), 201)
    return Group(made["groupId"], box.within(made["scopeId"]))


def state(client: httpx.Client, of: Group) -> tuple[str, str | None, str | None]:
    """(state, outcome, outcomeReason)"""
    seen = ok(of.view().send(client))
    return seen["state"], seen["outcome"], seen["outcomeReason"]


def member(client: httpx.Client, of: Group, key: str = "review:1", **more: Any) -> str:
    """The id of a new member."""
    return ok(of.submit(key, **more).send(client))["taskId"]


def take(client: httpx.Client, of: Group, **more: Any) -> dict[str, Delivery]:
    """Everything that waits in the group's scope, in a worker's hands, by task key."""
    got = ok(of.box.admit(lease_s=600, **{"max": 50} | more).send(client))
    return {one["taskKey"]: delivery(one) for one in got["admitted"]}


def done(client: httpx.Client, of: Group, *keys: str) -> list[str]:
    """New members that a worker has completed: their ids."""
    ids = [member(client, of, key) for key in keys]
    held = take(client, of)
    for key in keys:
        ok(held[key].complete({"key": key}).send(client))
    return ids
