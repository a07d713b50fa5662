"""Scopes and runs: the units of cancellation. A run is a root scope."""

from datetime import datetime
from typing import Any

from runstate._transport import Space
from runstate.errors import ConfigError
from runstate.handles.allowances import AllowanceRef
from runstate.handles.barriers import BarriersAPI
from runstate.handles.budgets import BudgetRef
from runstate.handles.claims import ClaimRef
from runstate.handles.groups import GroupsAPI
from runstate.handles.mailboxes import MailboxRef
from runstate.handles.permits import PoolRef
from runstate.handles.tasks import TaskTicket
from runstate.handles.timers import TimersAPI


class ScopeHandle:
    """One scope by its id. Local: nothing is asked of the server until a verb is called."""

    def __init__(self, space: Space, scope_id: str) -> None:
        self._space = space
        self.id = scope_id
        self.barriers = BarriersAPI(space, scope_id)
        self.timers = TimersAPI(space, scope_id)
        self.groups = GroupsAPI(space, scope_id)

    def __repr__(self) -> str:
        return f"ScopeHandle({self.id!r})"

    async def status(self) -> dict[str, Any]:
        """The scope's view; `effective` says whether it and everything above it is still ACTIVE."""
        return dict(await self._space.call("GET", "scopes", self.id))

    async def child(
        self, *, name: str | None = None, deadline: str | None = None, child_limit: int | None = None
    ) -> "ScopeHandle":
        """A new scope below this one, ended with it. Refuses: an ended scope, more than its child limit."""
        return await create_scope(
            self._space, name=name, parent_id=self.id, deadline=deadline, child_limit=child_limit
        )

    def claim(self, key: str) -> ClaimRef:
        """A key of this scope, to be owned. Local."""
        return ClaimRef(self._space, self.id, key)

    def mailbox(self, name: str) -> MailboxRef:
        """The mailbox of that name, as this scope uses it. Local; the name is looked up at the first use."""
        return MailboxRef(self._space, self.id, name=name)

    def mailbox_by_id(self, mailbox_id: str) -> MailboxRef:
        """As `mailbox`, where the id is known."""
        return MailboxRef(self._space, self.id, mailbox_id=mailbox_id)

    def pool(self, name: str) -> PoolRef:
        """The permit pool of that name, as this scope uses it. Local; the name is looked up at the first
        use."""
        return PoolRef(self._space, self.id, name=name)

    def pool_by_id(self, permit_id: str) -> PoolRef:
        """As `pool`, where the id is known."""
        return PoolRef(self._space, self.id, permit_id=permit_id)

    def quota(self, name: str) -> AllowanceRef:
        """The quota of that name, as this scope uses it. Local; the name is looked up at the first use."""
        return AllowanceRef(self._space, self.id, name=name)

    def quota_by_id(self, allowance_id: str) -> AllowanceRef:
        """As `quota`, where the id is known."""
        return AllowanceRef(self._space, self.id, allowance_id=allowance_id)

    def budget(self, name: str) -> BudgetRef:
        """The budget of that name, as this scope uses it. Local; the name is looked up at the first use."""
        return BudgetRef(self._space, self.id, name)

    def task(self, task_id: str) -> TaskTicket:
        """A task whose id is known. Local."""
        return TaskTicket(self._space, task_id)

    async def cancel(self) -> dict[str, Any]:
        """Cancels the scope and all below it. Repeating is a no-op; a completed one is ConflictError."""
        return dict(await self._space.call("POST", "scopes", self.id, "cancel", body={}))

    async def complete(self) -> dict[str, Any]:
        """Completes the scope and all below it. Repeating is a no-op; a cancelled one is ConflictError."""
        return dict(await self._space.call("POST", "scopes", self.id, "complete", body={}))


class ScopesAPI:
    """The scopes of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def create(
        self,
        *,
        name: str | None = None,
        parent_id: str | None = None,
        deadline: str | None = None,
        child_limit: int | None = None,
    ) -> ScopeHandle:
        """A new scope: a run, or a child of `parent_id`. `name` is a label; `deadline` is RFC 3339."""
        return await create_scope(
            self._space, name=name, parent_id=parent_id, deadline=deadline, child_limit=child_limit
        )


async def create_scope(
    space: Space,
    *,
    name: str | None,
    parent_id: str | None,
    deadline: str | datetime | None,
    child_limit: int | None = None,
) -> ScopeHandle:
    """A new scope, by POST /scopes."""
    body = {"name": name, "parentId": parent_id, "deadline": instant(deadline), "childLimit": child_limit}
    view = await space.call("POST", "scopes", body=body)
    return ScopeHandle(space, view["id"])


async def join_run(space: Space, name: str, deadline: str | datetime | None) -> ScopeHandle:
    """The one active run of that name, created if there is none; `deadline` counts only then."""
    view = await space.call("PUT", "runs", name, body={"deadline": instant(deadline)})
    return ScopeHandle(space, view["id"])


def instant(value: str | datetime | None) -> str | None:
    """An instant as the API takes it. Refuses (ConfigError) a datetime without an offset."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(f"a deadline needs a time zone: {value.isoformat()} has none")
        return value.isoformat()
    return value
