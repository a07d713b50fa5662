"""gather: many jobs of one queue, of which so many have to come to a good result.

The jobs are a task group on the server: the accept that reaches `need` ends it and cancels the rest, in one
commit. What is asked of the server goes on on the SDK's shared loop; `accept` runs where it was given."""

import asyncio
import concurrent.futures
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

from runstate._background import BackgroundLoop, shared
from runstate._config import check_whole
from runstate._crew import is_async
from runstate._threads import in_thread
from runstate._transport import Space, new_idempotency_key
from runstate._units import duration_s
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.decorators.outcomes import ENDED_WITH_SCOPE, reason_of, scope_ended
from runstate.errors import ConfigError, ConflictError, RunstateError, TaskFailedError, WaitTimeoutError
from runstate.handles.groups import add_member, create_group, group_view, judged
from runstate.handles.leases import seen
from runstate.handles.lines import patiently
from runstate.handles.mailboxes import ensured_id
from runstate.handles.scopes import ScopeHandle
from runstate.handles.tasks import TaskTicket
from runstate.run import RunCore

T = TypeVar("T")
Accept: TypeAlias = Callable[[Any, Any], Any]
Need: TypeAlias = int | Literal["all"]

INPUTS_MAX = 100
_AT_ONCE = 8  # requests of one gather
_ENDED_S_MAX = 5.0  # how long who gives up waits for its group to be ended
_LIVE = frozenset({"QUEUED", "RUNNING"})


@dataclass(frozen=True)
class Asked:
    """What one call of gather asks for: `jobs` are the distinct ones of its inputs, by key, each with its
    input as the caller has it and as it is sent; `order` has the key of each input."""

    queue: str
    jobs: dict[str, tuple[Any, Any]]
    order: list[str]
    wanted: int
    timeout_s: float | None


@dataclass(frozen=True)
class Candidate:
    """A result that nobody has judged."""

    key: str
    task_id: str
    result: Any
    given: Any


class Gathering:
    """One call of gather under way. On the SDK's own loop."""

    def __init__(self, run: RunCore, asked: Asked) -> None:
        self._run = run
        self._asked = asked
        self._ends_at = None if asked.timeout_s is None else time.monotonic() + asked.timeout_s
        self._creating = new_idempotency_key()
        self._created: dict[str, Any] | None = None
        self._body: dict[str, Any] | None = None
        self._ended = 0
        self._accepted = 0
        self._results: dict[str, Any] = {}
        self._ready: deque[Candidate] = deque()
        self._final: dict[str, Any] | None = None
        self._given_up = False

    async def begin(self) -> None:
        """Creates the group in the run's scope and submits its jobs. One after the other: workers take them
        in the order they came, and at once would be little faster, since they meet at the group.
        Refuses: StoppedError, and what the server refuses of a job; WaitTimeoutError."""
        self._created = await self._patiently(lambda _: self._run.call(self._create))
        if self._given_up:  # while it was being created: nobody waits for this any more
            await self.end()
            raise asyncio.CancelledError
        try:
            for key in self._asked.jobs:
                await self._submit(key)
        except RunstateError as error:
            if isinstance(error, WaitTimeoutError):
                raise
            view = await self._patiently(lambda _: self._look(0))
            if view["outcome"] != "FAILURE":
                raise
            raise await self._failure(view) from error

    async def next(self) -> Candidate | None:
        """The next result to be judged, as soon as there is one; None once enough are accepted. Refuses:
        TaskFailedError as soon as that cannot be any more, StoppedError, WaitTimeoutError."""
        while not self._ready:
            view = await self._patiently(self._news)
            if view["outcome"] == "SUCCESS":
                return None
            if view["outcome"] is not None:
                raise await self._failure(view)
            self._ready.extend(
                await self._collected(
                    m for m in view["members"] if m["state"] == "SUCCEEDED" and m["verdict"] is None
                )
            )
        return self._ready.popleft()

    async def judge(self, candidate: Candidate, *, good: bool) -> None:
        """Records the verdict, once; one that somebody else has given before stands."""
        verdict, idempotency_key = "accept" if good else "reject", new_idempotency_key()

        async def ask(_wait_ms: int) -> dict[str, Any]:
            return await judged(
                self._space, self._group_id, candidate.task_id, verdict, idempotency_key=idempotency_key
            )

        try:
            answer = await self._patiently(ask)
        except ConflictError:
            return
        self._accepted += good and not answer["late"]
        if answer["groupState"] == "FINALIZED":  # what else is ready comes too late
            self._ready.clear()

    async def results(self) -> list[Any]:
        """Once `next` has said that it is decided: what was accepted, for each input in their order."""
        assert self._final is not None  # noqa: S101 - next has returned None
        accepted = {m["taskKey"]: m for m in self._final["members"] if m["verdict"] == "ACCEPTED"}
        await self._collected(accepted.values())  # what somebody else has accepted
        return [self._results[key] for key in self._asked.order if key in accepted]

    async def end(self) -> None:
        """Cancels what is not over, if the group was, or may have been, created: first the jobs under way,
        so that their slots and money are back, then all. Goes on for half a minute while the server is
        away; raises nothing."""
        self._given_up = True
        if self._final is not None:
            return
        created, body = self._created, self._body
        if created is None and body is not None:
            # The reply of the creation is not known: the same request again answers with the same group.
            created = await patiently(lambda: create_group(self._space, body, self._creating))
        if created is not None:
            await self._cancel_running(created["groupId"])
            scope = ScopeHandle(self._space, created["scopeId"])
            await patiently(scope.cancel)

    async def _cancel_running(self, group_id: str) -> None:
        view = await patiently(lambda: group_view(self._space, group_id))
        running = [m["taskId"] for m in (view or {"members": ()})["members"] if m["state"] == "RUNNING"]

        def cancel(task_id: str) -> Callable[[], Awaitable[Any]]:
            ticket = TaskTicket(self._space, task_id)
            return lambda: patiently(ticket.cancel)

        await _side_by_side([cancel(task_id) for task_id in running])

    # ---------------------------------------------------------------------------------------- the server

    async def _create(self, scope: ScopeHandle) -> dict[str, Any]:
        name, space = self._asked.queue, self._space
        if self._body is None:
            self._body = {
                "mailboxId": space.ids.get(("mailboxes", name)) or await ensured_id(space, name),
                "condition": "N_ACCEPTED",
                "threshold": self._asked.wanted,
                "expectedMembers": len(self._asked.jobs),
                "parentScopeId": scope.id,
            }
        return await create_group(space, self._body, self._creating)

    async def _submit(self, key: str) -> None:
        idempotency_key = new_idempotency_key()
        body = {"taskKey": key, "input": self._asked.jobs[key][1]}

        async def ask(_wait_ms: int) -> str:
            return await add_member(self._space, self._group_id, body, idempotency_key=idempotency_key)

        await self._patiently(ask)

    async def _news(self, wait_ms: int) -> dict[str, Any] | None:
        """The view, if it says more than the last one did: by how many have ended, which is what the server
        goes by, or by a result that is new in the place of a failure (a job can be redriven)."""
        view = await self._look(wait_ms)
        before, self._ended = self._ended, sum(m["state"] not in _LIVE for m in view["members"])
        new = self._ended != before or any(map(self._to_judge, view["members"]))
        return view if view["outcome"] is not None or new else None

    def _to_judge(self, member: dict[str, Any]) -> bool:
        judged_before = member["verdict"] is not None or member["taskKey"] in self._results
        return member["state"] == "SUCCEEDED" and not judged_before

    async def _look(self, wait_ms: int) -> dict[str, Any]:
        view = await group_view(self._space, self._group_id, wait_ms=wait_ms, finished=self._ended)
        if view["state"] == "FINALIZED":
            self._final = view
        return view

    async def _collected(self, members: Iterable[dict[str, Any]]) -> list[Candidate]:
        """Gets the results of members that have succeeded, those that have not been got before."""
        new = [member["taskId"] for member in members if member["taskKey"] not in self._results]
        found = {view["taskKey"]: view for view in await self._tasks(new)}
        self._results.update((key, view["outcome"]) for key, view in found.items())
        return [
            Candidate(key, found[key]["id"], found[key]["outcome"], given)
            for key, (given, _) in self._asked.jobs.items()
            if key in found
        ]

    async def _tasks(self, task_ids: list[str]) -> list[dict[str, Any]]:
        def fetch(task_id: str) -> Callable[[], Awaitable[dict[str, Any]]]:
            ticket = TaskTicket(self._space, task_id)
            return lambda: self._patiently(lambda _: ticket.status())

        return await _side_by_side([fetch(task_id) for task_id in task_ids])

    async def _failure(self, view: dict[str, Any]) -> RunstateError:
        """Why the group came to nothing: its run has ended, or too many of its jobs."""
        if view["outcomeReason"] in ENDED_WITH_SCOPE:
            scope = ScopeHandle(self._space, await self._run.joined())
            effective = (await self._patiently(lambda _: scope.status()))["effective"]
            stopped = effective != "ACTIVE" and self._run.ending(scope_ended("the run", effective))
            if stopped:
                return stopped
        dead = [m["taskId"] for m in view["members"] if m["state"] not in {*_LIVE, "SUCCEEDED"}]
        failed = [one for one in await self._tasks(dead) if one["outcomeReason"] != "group_finalized"]
        last = max(failed, key=lambda one: one["finishedAt"] or "", default=None)
        reason = view["outcomeReason"] if last is None else reason_of(last)
        told = f"{view['accepted']} accepted, {view['rejected']} rejected, {len(failed)} failed"
        return TaskFailedError(
            f"{self._asked.wanted} results of {len(self._asked.jobs)} jobs were needed: {told}: {reason}",
            job_id=None if last is None else last["id"],
            reason=reason,
        )

    async def _patiently(self, ask: Callable[[int], Awaitable[T | None]]) -> T:
        left_s = None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())
        try:
            return await until_answered(
                ask, timeout_s=left_s, what="the answer", on_outage=self._run.account.log_outage
            )
        except WaitTimeoutError:
            wanted = f"{self._accepted} of the {self._asked.wanted} results that were needed"
            raise WaitTimeoutError(
                f"only {wanted} of {self._asked.queue!r} came within {self._asked.timeout_s:g} s"
            ) from None

    @property
    def _space(self) -> Space:
        return space_of(self._run.account.client())

    @property
    def _group_id(self) -> str:
        assert self._created is not None  # noqa: S101 - begin has created it
        return str(self._created["groupId"])


def asked(
    queue: str,
    keyed: Callable[[Any], tuple[Any, str]],
    inputs: Iterable[Any],
    *,
    need: Any,
    accept: Any,
    timeout: Any,
) -> Asked:
    """What a call of gather asks for; `keyed` gives what is sent for an input, and the key of its job.
    Refuses (ConfigError) what cannot be, ResultTooLargeError."""
    if isinstance(inputs, str | bytes | Mapping) or not isinstance(inputs, Iterable):
        raise ConfigError(f"inputs is a list of inputs, not {type(inputs).__name__}")
    if accept is not None and not callable(accept):
        raise ConfigError(f"accept must be a function of the result and the input, not {accept!r}")
    given = list(islice(inputs, INPUTS_MAX + 1))
    if len(given) > INPUTS_MAX:
        raise ConfigError(f"gather takes at most {INPUTS_MAX} inputs")
    jobs: dict[str, tuple[Any, Any]] = {}
    order = []
    for each in given:
        plain, key = keyed(each)
        jobs.setdefault(key, (each, plain))
        order.append(key)
    timeout_s = None if timeout is None else duration_s(timeout, "timeout")
    return Asked(queue, jobs, order, _wanted(need, len(jobs), len(order)), timeout_s)


def _wanted(need: Any, jobs: int, inputs: int) -> int:
    if need == "all":
        return jobs
    check_whole('need, unless it is "all",', need, 1, INPUTS_MAX)
    if need > jobs:
        told = f"{inputs} inputs" if jobs == inputs else f"{jobs} different ones among {inputs} inputs"
        raise ConfigError(f"need is {need}, and there are {told}")
    return int(need)


def gathered(run: RunCore, wish: Asked, accept: Accept | None) -> list[Any]:
    """The accepted results, waited for by blocking this thread, in which a plain `accept` is called. Refused,
    or interrupted, it leaves no group behind that goes on."""
    if not wish.jobs:
        return []
    work, judges = Gathering(run, wish), _Judges(accept)
    try:
        shared.run(work.begin())
        while (found := shared.run(work.next())) is not None:
            shared.run(work.judge(found, good=judges.good(found)))
        return shared.run(work.results())
    except BaseException:
        concurrent.futures.wait([shared.submit(work.end())], timeout=_ENDED_S_MAX)
        raise
    finally:
        judges.close()


async def agathered(run: RunCore, wish: Asked, accept: Accept | None) -> list[Any]:
    """As `gathered`, waited for on the caller's own loop: an async `accept` runs there, a plain one in a
    thread."""
    if not wish.jobs:
        return []
    work = Gathering(run, wish)
    try:
        await shared.arun(work.begin())
        while (found := await shared.arun(work.next())) is not None:
            good = accept is None or await _agood(accept, found)
            await shared.arun(work.judge(found, good=good))
        return await shared.arun(work.results())
    except GeneratorExit:  # the caller is being thrown away: nothing can be waited for any more
        shared.submit(work.end())
        raise
    except BaseException:
        ending = shared.begun(work.end())
        ending.add_done_callback(seen)
        await asyncio.wait({ending}, timeout=_ENDED_S_MAX)
        raise


class _Judges:
    """`accept` as plain code calls it; an async one runs on a loop of its own."""

    def __init__(self, accept: Accept | None) -> None:
        self._accept = accept
        self._loop: BackgroundLoop | None = None

    def good(self, found: Candidate) -> bool:
        """What it says of that result."""
        said = True if self._accept is None else self._accept(found.result, found.given)
        if inspect.isawaitable(said):
            if self._loop is None:
                self._loop = BackgroundLoop("runstate accept", ours=False)
            said = self._loop.run(_awaited(said))
        return bool(said)

    def close(self) -> None:
        """Ends that loop."""
        if self._loop is not None:
            self._loop.stop()


async def _agood(accept: Accept, found: Candidate) -> bool:
    if is_async(accept):
        return bool(await accept(found.result, found.given))
    said = await asyncio.wrap_future(in_thread(lambda: accept(found.result, found.given), "runstate accept"))
    return bool(await said if inspect.isawaitable(said) else said)


async def _awaited(said: Awaitable[T]) -> T:
    return await said


async def _side_by_side(calls: list[Callable[[], Awaitable[T]]]) -> list[T]:
    """What the calls return, in their order, a few at once. The first that raises ends the others."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if left := [task for task in tasks if not task.done()]:
            await asyncio.wait(left)
