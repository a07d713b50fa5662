"""Mailboxes: definitions of queues by name, and one mailbox as a scope uses it."""

import asyncio
from collections.abc import Callable
from typing import Any

from runstate._config import check_name, check_whole
from runstate._crew import Crew, attended
from runstate._flags import until_set
from runstate._transport import Space
from runstate.errors import AuthenticationError, ConfigError, ConflictError, NotFoundError
from runstate.handles.consuming import Consuming, OnError
from runstate.handles.leases import seconds
from runstate.handles.lines import Errand, taken
from runstate.handles.messages import Delivery, Held, Taking, delivered, kept
from runstate.handles.tasks import AdmittedWork, TaskRequirements, TaskTicket

_ROOM = "mailboxes"
_CONCURRENCY_MAX = 1000
_RECEIVE_LEASE_S = 30
_WAIT_MS_MAX = 30_000
_POLL_MS_MAX = 3_600_000
_LEASE_S_MIN, _LEASE_S_MAX = 1, 3600


class MailboxesAdminAPI:
    """The mailboxes of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def ensure(
        self, name: str, *, mode: str | None = None, backlog_limit: int | None = None
    ) -> dict[str, Any]:
        """The view of the mailbox of that name, created if there is none: `mode` WORK (the default) or INBOX,
        `backlog_limit` waiting messages (none by default). Refuses: ConflictError when it is there with other
        settings than those passed; AuthenticationError when it is missing and the key may not create it."""
        check_name("name", name)
        wanted = {"mode": mode, "backlogLimit": backlog_limit}
        found = await _found(self._space, name)
        if found is None:
            try:
                body = {"name": name, **wanted}
                return dict(await self._space.call("POST", _ROOM, body=body))
            except (ConflictError, AuthenticationError):  # somebody was faster, or may do it instead of us
                found = await _found(self._space, name)
                if found is None:
                    raise
        differing = [
            f"{field} {found[field]!r}, not {value!r}"
            for field, value in wanted.items()
            if value is not None and found[field] != value
        ]
        if differing:
            raise ConflictError(f"mailbox {name!r} has {' and '.join(differing)}")
        return found


class MailboxRef:
    """A mailbox, by its id or by its name (looked up at the first use), as one scope uses it."""

    def __init__(
        self, space: Space, scope_id: str, *, name: str | None = None, mailbox_id: str | None = None
    ) -> None:
        self._space = space
        self._name = None if name is None else check_name("name", name)
        self._id = mailbox_id
        self.scope_id = scope_id

    def __repr__(self) -> str:
        return f"MailboxRef({self._name or self._id!r}, scope_id={self.scope_id!r})"

    async def send(
        self, data: Any, *, work_key: str | None = None, deadline: str | None = None
    ) -> dict[str, Any]:
        """Sends a message. Returns `{"id", "replay"}`: the same `work_key` is the same message, `replay`
        then. Refuses: ConflictError (BACKLOG_FULL)."""
        path = (_ROOM, await self._found_id(), "messages")
        body = {"scopeId": self.scope_id, "payload": data, "workKey": work_key, "deadline": deadline}
        return dict(await self._space.call("POST", *path, body=body))

    async def submit(
        self,
        input: Any,  # noqa: A002 - the name in the contract
        *,
        key: str,
        deadline: str | None = None,
        subscriber_id: str | None = None,
        requirements: TaskRequirements | None = None,
        work_limit: str | None = None,
    ) -> TaskTicket:
        """Submits a task. The same `key` in this scope and mailbox is the same task, whatever its input.
        Refuses: ConflictError (BACKLOG_FULL)."""
        body = {
            "scopeId": self.scope_id,
            "mailboxId": await self._found_id(),
            "taskKey": key,
            "input": input,
            "deadline": deadline,
            "subscriberId": subscriber_id,
            "requirements": requirements,
            "workLimit": work_limit,
        }
        return TaskTicket(self._space, (await self._space.call("POST", "tasks", body=body))["taskId"])

    async def receive(self, *, wait_ms: int = 0) -> Delivery | None:
        """The next message or task, leased for 30 s and not renewed; None if there is none within
        `wait_ms`, at most 30,000."""
        path = (_ROOM, await self._found_id(), "recv")
        taking = Taking(self._space, path, self._asked({}, _RECEIVE_LEASE_S, wait_ms), wait_ms)

        async def take() -> Delivery | None:
            answer = await taking.answer()
            return None if answer is None else delivered(self._space, answer, _RECEIVE_LEASE_S)

        return await taken(Errand(take, taking.leave))

    async def admit(self, *, lease_seconds: float = 30, wait_ms: int = 0) -> AdmittedWork | None:
        """The next task, with the resources it needs, under a lease that is renewed until it is settled or
        the object is dropped; None if there is none within `wait_ms`, at most 30,000."""
        place = {"mailboxId": await self._found_id()}
        body = self._asked(place, lease_seconds, wait_ms)
        taking = Taking(self._space, ("tasks", "admit"), body, wait_ms)

        async def take() -> AdmittedWork | None:
            answer = await taking.answer()
            if answer is None:
                return None
            held = Held(self._space, answer["messageId"], answer["token"], lease_seconds)
            if not await kept(held, taking.asked_at, lambda _: None):
                return None
            return AdmittedWork(
                task=TaskTicket(self._space, answer["taskId"]),
                delivery=Delivery(held, answer["payload"], answer["attempt"], answer["scopeId"]),
                resources={name: answer[name] for name in ("grants", "consumptions", "reservations")},
                attempt=answer["attempt"],
            )

        return await taken(Errand(take, taking.leave))

    async def consume(
        self,
        handler: Callable[[Any, Delivery], Any],
        *,
        concurrency: int = 1,
        lease_seconds: float = 30,
        poll_ms: int = 250,
        wait_ms: int = 20_000,
        shutdown_timeout: float = 30.0,
        stop_event: Any = None,
        on_error: OnError | None = None,
    ) -> None:
        """Takes messages and tasks, `concurrency` at once, and gives each to `handler(data, delivery)`: an
        async one on this loop, a plain one in a thread, while the SDK's own thread renews the lease. What
        returns is completed, what raises is given to `on_error(error, delivery)` and retried.

        Ends when `stop_event` is set (an asyncio.Event, ThreadSafeEvent or threading.Event), with the scope,
        or when cancelled. Then no more is taken; what is under way has `shutdown_timeout` seconds (none when
        cancelled); what is unfinished is handed back without costing an attempt. Raises AuthenticationError,
        ConfigError and NotFoundError of its own calls; other errors are waited out."""
        check_whole("concurrency", concurrency, 1, _CONCURRENCY_MAX)
        check_whole("wait_ms", wait_ms, 0, _WAIT_MS_MAX)
        check_whole("poll_ms", poll_ms, 0, _POLL_MS_MAX)
        if not _LEASE_S_MIN <= lease_seconds <= _LEASE_S_MAX:
            raise ConfigError(f"lease_seconds must be from 1 to {_LEASE_S_MAX}, not {lease_seconds!r}")
        crew = Crew(shutdown_s=shutdown_timeout)
        loop = asyncio.get_running_loop()
        line = Consuming(
            space=self._space,
            scope_id=self.scope_id,
            mailbox_id=self._found_id,
            crew=crew,
            handler=handler,
            on_error=on_error,
            launch=lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop),
            concurrency=concurrency,
            lease_s=lease_seconds,
            poll_s=poll_ms / 1000,
            wait_ms=wait_ms,
        )
        watching = None if stop_event is None else asyncio.ensure_future(_stop_when(stop_event, crew))
        try:
            await attended(crew, [line])
        finally:
            if watching is not None:
                watching.cancel()

    def _asked(self, place: dict[str, str], lease_s: float, wait_ms: int) -> dict[str, Any]:
        return {
            "scopeId": self.scope_id,
            **place,
            **self._space.holder(),
            "leaseSeconds": seconds(lease_s),
            "waitMs": wait_ms or None,
        }

    async def _found_id(self) -> str:
        if self._id is None:
            assert self._name is not None  # noqa: S101 - one of the two is given
            self._id = await mailbox_id(self._space, self._name)
        return self._id


async def mailbox_id(space: Space, name: str) -> str:
    """The id of the mailbox of that name; looked up once, never created. Refuses: NotFoundError."""
    if (_ROOM, name) not in space.ids and await _found(space, name) is None:
        raise NotFoundError(f"there is no mailbox {name!r} in the space {space.space_id!r}")
    return space.ids[_ROOM, name]


async def ensured_id(
    space: Space,
    name: str,
    *,
    max_attempts: int | None = None,
    requirements: TaskRequirements | None = None,
) -> str:
    """The id of the mailbox of that name, created if there is none, with the settings that are given.
    Refuses: NotFoundError for requirements that do not exist."""
    body = {"maxAttempts": max_attempts, "requirements": requirements}
    view = await space.call("PUT", _ROOM, "by-name", name, body=body)
    space.ids[_ROOM, name] = view["id"]
    return str(view["id"])


async def _found(space: Space, name: str) -> dict[str, Any] | None:
    for view in (await space.call("GET", _ROOM))["mailboxes"]:
        space.ids[_ROOM, view["name"]] = view["id"]
        if view["name"] == name:
            return dict(view)
    return None


async def _stop_when(flag: Any, crew: Crew) -> None:
    await until_set(flag, own_loop=True)
    crew.stop()
