"""Task groups: several tasks with one outcome."""

from collections.abc import Mapping
from typing import Any

from runstate._transport import Space
from runstate._waits import until_answered
from runstate.errors import NotFoundError
from runstate.handles.mailboxes import mailbox_id
from runstate.handles.tasks import TaskTicket

_ROOM = "task-groups"


class GroupHandle:
    """One group by its id. Local: nothing is asked of the server until a verb is called."""

    def __init__(self, space: Space, group_id: str) -> None:
        self._space = space
        self.id = group_id

    def __repr__(self) -> str:
        return f"GroupHandle({self.id!r})"

    async def status(self) -> dict[str, Any]:
        """The group's view: `scopeId`, `state`, `outcome`, `outcomeReason`, `accepted`, `rejected`,
        `members` (each with `taskId`, `taskKey`, `state`, `verdict`) and more."""
        return await group_view(self._space, self.id)

    async def submit(
        self,
        input: Any,  # noqa: A002 - the name in the contract
        *,
        key: str,
        deadline: str | None = None,
    ) -> TaskTicket:
        """Submits a task into the group. The same `key` is the same task, whatever its input. Refuses:
        ConflictError when the group takes no more members, or BACKLOG_FULL."""
        body = {"taskKey": key, "input": input, "deadline": deadline}
        return TaskTicket(self._space, await add_member(self._space, self.id, body))

    async def join_task(self, task_id: str) -> dict[str, Any]:
        """Counts a task that was submitted elsewhere, which the group never cancels. Returns `{"taskId"}`.
        Refuses: ConflictError when the group takes no more members."""
        return await self._post("join-task", {"taskId": task_id})

    async def close(self) -> dict[str, Any]:
        """Takes no more members, and decides if it can. Returns `{"state", "outcome", "outcomeReason"}`; of
        a finalized group, what it came to."""
        return await self._post("close", {})

    async def seal(self) -> dict[str, Any]:
        """Deprecated: as `close`, but ConflictError when the group is finalized."""
        return await self._post("seal", {})

    async def accept(self, task_id: str) -> dict[str, Any]:
        """Counts the result of a member that has succeeded. Returns `{"verdict", "late", "groupState",
        "outcome", "outcomeReason"}`; `late` when the group was finalized before, and nothing was changed.
        Again is a no-op. Refuses: ConflictError for one that has not succeeded, or was rejected."""
        return await judged(self._space, self.id, task_id, "accept")

    async def reject(self, task_id: str) -> dict[str, Any]:
        """Counts a member out; answers as `accept`. Refuses: ConflictError for one that was accepted."""
        return await judged(self._space, self.id, task_id, "reject")

    async def wait(self, *, timeout_ms: int = 30_000, poll_ms: int = 250) -> dict[str, Any]:
        """`{"outcome", "outcomeReason"}` once the group is finalized: SUCCESS, or FAILURE and why. Asks every
        `poll_ms` where the server cannot hold the question. Refuses: WaitTimeoutError."""
        return await until_answered(
            self._finalized,
            timeout_s=timeout_ms / 1000,
            what=f"the outcome of task group {self.id}",
            poll_s=poll_ms / 1000,
        )

    async def _finalized(self, wait_ms: int) -> dict[str, Any] | None:
        view = await group_view(self._space, self.id, wait_ms=wait_ms)
        if view["state"] != "FINALIZED":
            return None
        return {"outcome": view["outcome"], "outcomeReason": view["outcomeReason"]}

    async def _post(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._space.call("POST", _ROOM, self.id, verb, body=body))


class GroupsAPI:
    """The task groups of one scope."""

    def __init__(self, space: Space, scope_id: str) -> None:
        self._space = space
        self._scope_id = scope_id

    async def create(
        self,
        *,
        mailbox: str,
        condition: str,
        threshold: int | None = None,
        expected_members: int | None = None,
        deadline: str | None = None,
        parent_scope_id: str | None = None,
    ) -> GroupHandle:
        """A new group of tasks for `mailbox`, by its name (or, where none has that name, its id). `condition`
        says when it succeeds: FIRST_ACCEPTED, N_ACCEPTED (`threshold` of them) or ALL_TERMINAL. With
        `expected_members` (1 to 100) it closes itself when so many have joined. Its tasks live in a scope of
        its own, a child of `parent_scope_id` (without it, of the scope that these are the groups of).
        Refuses: NotFoundError, an ended scope."""
        body = {
            "mailboxId": await _mailbox_id(self._space, mailbox),
            "condition": condition,
            "threshold": threshold,
            "expectedMembers": expected_members,
            "deadline": deadline,
            "parentScopeId": self._scope_id if parent_scope_id is None else parent_scope_id,
        }
        return GroupHandle(self._space, (await create_group(self._space, body))["groupId"])

    def by_id(self, group_id: str) -> GroupHandle:
        """A group whose id is known. Local."""
        return GroupHandle(self._space, group_id)


async def create_group(
    space: Space, body: Mapping[str, Any], idempotency_key: str | None = None
) -> dict[str, Any]:
    """A new group, by POST /task-groups: `{"groupId", "scopeId", "state"}`."""
    return dict(await space.call("POST", _ROOM, body=body, idempotency_key=idempotency_key))


async def add_member(
    space: Space, group_id: str, body: Mapping[str, Any], *, idempotency_key: str | None = None
) -> str:
    """The id of a task submitted into a group."""
    answer = await space.call("POST", _ROOM, group_id, "tasks", body=body, idempotency_key=idempotency_key)
    return str(answer["taskId"])


async def judged(
    space: Space, group_id: str, task_id: str, verdict: str, *, idempotency_key: str | None = None
) -> dict[str, Any]:
    """The answer to the verdict `accept` or `reject`."""
    path = (_ROOM, group_id, "tasks", task_id, verdict)
    return dict(await space.call("POST", *path, body={}, idempotency_key=idempotency_key))


async def group_view(
    space: Space, group_id: str, *, wait_ms: int = 0, finished: int | None = None
) -> dict[str, Any]:
    """The view of a group. `wait_ms`, at most 30,000: until it is FINALIZED or, with `finished`, more than so
    many of its members have ended."""
    query = {"finished": finished}
    return dict(await space.call("GET", _ROOM, group_id, query=query, wait_ms=wait_ms))


async def _mailbox_id(space: Space, given: str) -> str:
    try:
        return await mailbox_id(space, given)
    except NotFoundError:
        # The look for the name has brought the ids of all there are.
        if given not in space.ids.values():
            raise
        return given
