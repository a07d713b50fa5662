"""queue: a function that producers call, and workers run; see serve.py for the workers.

The same input in a run is the same job: the task's key is made of the input, and the server keeps one task,
with one outcome, for each key."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, overload

from runstate._background import shared
from runstate._config import check_name, check_whole
from runstate._crew import is_async
from runstate._keys import as_recorded, hash_key
from runstate._transport import Space, new_idempotency_key
from runstate._units import duration_s
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.decorators.gather import Need, agathered, asked, gathered
from runstate.decorators.needs import Needs, checked_needs
from runstate.decorators.outcomes import ENDED_WITH_SCOPE, failure, scope_ended
from runstate.errors import ConfigError
from runstate.handles.mailboxes import ensured_id
from runstate.handles.scopes import ScopeHandle
from runstate.handles.tasks import TaskTicket, ended_view
from runstate.run import RunCore

I = TypeVar("I")  # noqa: E741 - input
R = TypeVar("R")
T = TypeVar("T")
Units: TypeAlias = str | Mapping[str, Any]

_ATTEMPTS_MAX = 100
_CONCURRENCY_MAX = 1000
_LEASE_S_MIN, _LEASE_S_MAX = 1, 3600
_KEY_CHARS_MAX = 255

# The queues of the `runstate` module that have a handler, by name. Those of a Run are its own.
defined: dict[str, "Queue[Any, Any]"] = {}
# The id of the job whose handler this code runs in.
inside_job: ContextVar[str | None] = ContextVar("runstate_queue_inside", default=None)


@dataclass(frozen=True)
class Options:
    """What a queue was defined with."""

    name: str
    attempts: int
    lease_s: float
    concurrency: int
    key: Callable[[Any], str] | None
    needs: Needs


class Job:
    """A job that has been submitted: one task of the run, whoever else has submitted the same."""

    def __init__(self, run: RunCore, job_id: str) -> None:
        self.id = job_id
        self._run = run

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def result(self, timeout: float | str | None = None) -> Any:
        """The one recorded result, waited for: for ever, or `timeout` (seconds, or "30s"), through restarts
        of the server. Refuses: TaskFailedError when the job has ended without one, StoppedError when its run
        has, WaitTimeoutError."""
        return shared.run(self._result(timeout))

    async def aresult(self, timeout: float | str | None = None) -> Any:
        """As `result`."""
        return await shared.arun(self._result(timeout))

    def status(self) -> dict[str, Any]:
        """The task's view: `state`, `attempt`, `outcome`, `outcomeReason` and more."""
        return shared.run(self._status())

    async def astatus(self) -> dict[str, Any]:
        """As `status`."""
        return await shared.arun(self._status())

    def cancel(self, reason: str | None = None) -> dict[str, Any]:
        """Cancels the job for everybody, unless it has ended; whoever waits for it gets TaskFailedError.
        Returns its view."""
        return shared.run(self._cancel(reason))

    async def acancel(self, reason: str | None = None) -> dict[str, Any]:
        """As `cancel`."""
        return await shared.arun(self._cancel(reason))

    async def _status(self) -> dict[str, Any]:
        return await TaskTicket(self._space, self.id).status()

    async def _cancel(self, reason: str | None) -> dict[str, Any]:
        return await TaskTicket(self._space, self.id).cancel(reason)

    async def _result(self, timeout: float | str | None) -> Any:
        timeout_s = None if timeout is None else duration_s(timeout, "timeout")
        if inside_job.get() == self.id:
            raise ConfigError(
                f"the handler of job {self.id} waits for its own result and would wait for ever"
            )
        view = await until_answered(
            lambda wait_ms: ended_view(self._space, self.id, wait_ms),
            timeout_s=timeout_s,
            what=f"the result of job {self.id}",
            on_outage=self._run.account.log_outage,
        )
        if view["state"] == "SUCCEEDED":
            return view["outcome"]
        if view["outcomeReason"] in ENDED_WITH_SCOPE:
            await self._raise_if_run_ended(view["scopeId"])
        raise failure(view)

    async def _raise_if_run_ended(self, scope_id: str) -> None:
        effective = (await ScopeHandle(self._space, scope_id).status())["effective"]
        if effective == "ACTIVE":
            return
        stopped = self._run.ending(scope_ended(f"the scope of job {self.id}", effective))
        if stopped is not None:
            raise stopped

    @property
    def _space(self) -> Space:
        return space_of(self._run.account.client())


class Queue(Generic[I, R]):
    """A queue with its handler. Called, it submits the input as a job and waits for the result (a coroutine
    does so, if the handler is async); the handler itself is run by workers, see `serve`."""

    def __init__(
        self, run: Callable[[], RunCore], options: Options, handler: Callable[[I], R] | None
    ) -> None:
        if handler is not None:
            functools.update_wrapper(self, handler, updated=())
        self.name = options.name
        self.options = options
        self.handler = handler
        self._run = run

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"

    def __call__(self, input: I, /) -> R:  # noqa: A002 - what the contract calls it
        """The result of the job for this input, submitted if nobody has yet. Refuses as `Job.result`."""
        outcome: Any = self._acall(input) if self._is_async else self._call(input)
        return outcome  # type: ignore[no-any-return]

    def send(self, input: I, /) -> Job:  # noqa: A002
        """Submits the job for this input, or finds it if it has been submitted, and does not wait. Refuses:
        ConfigError for what is not JSON, ResultTooLargeError for more than 65,536 bytes, StoppedError."""
        return shared.run(self._submitted(self._run(), *self._asked(input)))

    async def asend(self, input: I, /) -> Job:  # noqa: A002
        """As `send`."""
        return await shared.arun(self._submitted(self._run(), *self._asked(input)))

    @overload
    def gather(
        self: "Queue[I, Coroutine[Any, Any, T]]",
        inputs: Iterable[I],
        need: Need = "all",
        accept: Callable[[T, I], Any] | None = None,
        timeout: float | str | None = None,
    ) -> list[T]: ...

    @overload
    def gather(
        self,
        inputs: Iterable[I],
        need: Need = "all",
        accept: Callable[[R, I], Any] | None = None,
        timeout: float | str | None = None,
    ) -> list[R]: ...

    def gather(
        self,
        inputs: Iterable[Any],
        need: Need = "all",
        accept: Callable[[Any, Any], Any] | None = None,
        timeout: float | str | None = None,
    ) -> list[Any]:
        """Submits a job for each of at most 100 inputs and returns the accepted results, in the order of the
        inputs, as soon as `need` jobs ("all": every one) have one; the other jobs are cancelled.
        `accept(result, input)`, plain or async, is called here for one result after the other and says
        whether it counts; without it every result does. An exception of it ends the call.

        The jobs are those of this call alone, in a scope of their own below the run. Equal inputs are one
        job, which counts once, and each of them gets its result. Without `timeout` (seconds, or "2m") it
        waits for ever, through restarts of the server. Whatever it raises, no job of it goes on:
        TaskFailedError as soon as `need` is out of reach, StoppedError, WaitTimeoutError, ConfigError."""
        wish = asked(self.name, self._asked, inputs, need=need, accept=accept, timeout=timeout)
        return gathered(self._run(), wish, accept)

    @overload
    async def agather(
        self: "Queue[I, Coroutine[Any, Any, T]]",
        inputs: Iterable[I],
        need: Need = "all",
        accept: Callable[[T, I], Any] | None = None,
        timeout: float | str | None = None,
    ) -> list[T]: ...

    @overload
    async def agather(
        self,
        inputs: Iterable[I],
        need: Need = "all",
        accept: Callable[[R, I], Any] | None = None,
        timeout: float | str | None = None,
    ) -> list[R]: ...

    async def agather(
        self,
        inputs: Iterable[Any],
        need: Need = "all",
        accept: Callable[[Any, Any], Any] | None = None,
        timeout: float | str | None = None,
    ) -> list[Any]:
        """As `gather`. Cancelled, it cancels its jobs. An async `accept` runs on this loop, a plain one in a
        thread."""
        wish = asked(self.name, self._asked, inputs, need=need, accept=accept, timeout=timeout)
        return await agathered(self._run(), wish, accept)

    @property
    def _is_async(self) -> bool:
        return self.handler is not None and is_async(self.handler)

    def _call(self, given: Any) -> Any:
        return shared.run(self._done(*self._asked(given)))

    async def _acall(self, given: Any) -> Any:
        return await shared.arun(self._done(*self._asked(given)))

    def _asked(self, given: Any) -> tuple[Any, str]:
        """The input as the handler will get it, and the key of its job."""
        plain, name, key = as_recorded(given, "the input"), self.name, self.options.key
        if key is None:
            return plain, hash_key(name, [given], ["input"])
        return plain, f"{name}:{check_name('what key= returns', key(given), _KEY_CHARS_MAX)}"

    async def _done(self, plain: Any, task_key: str) -> Any:
        run, idempotency_key = self._run(), new_idempotency_key()

        async def submitted(_wait_ms: int) -> Job:
            return await self._submitted(run, plain, task_key, idempotency_key)

        job = await until_answered(
            submitted,
            timeout_s=None,
            what=f"the submission to {self.name!r}",
            on_outage=run.account.log_outage,
        )
        return await job._result(None)  # noqa: SLF001 - this module's own

    async def _submitted(
        self, run: RunCore, plain: Any, task_key: str, idempotency_key: str | None = None
    ) -> Job:
        async def submit(scope: ScopeHandle) -> str:
            space = space_of(run.account.client())
            mailbox_id = space.ids.get(("mailboxes", self.name)) or await ensured_id(space, self.name)
            body = {"scopeId": scope.id, "mailboxId": mailbox_id, "taskKey": task_key, "input": plain}
            answer = await space.call("POST", "tasks", body=body, idempotency_key=idempotency_key)
            return str(answer["taskId"])

        return Job(run, await run.call(submit))


class NamedQueue(Queue[Any, Any]):
    """A queue known by its name alone: for producers. Called with a function it decorates it instead: that is
    the queue's handler."""

    def __init__(
        self,
        run: Callable[[], RunCore],
        options: Options,
        kept_in: dict[str, "Queue[Any, Any]"],
    ) -> None:
        super().__init__(run, options, None)
        self._kept_in = kept_in

    @overload
    def __call__(self, function: Callable[[I], R], /) -> Queue[I, R]: ...

    @overload
    def __call__(self, input: Any, /) -> Any: ...

    def __call__(self, given: Any, /) -> Any:
        """Decorates a function; anything else is an input: submitted and waited for."""
        if not callable(given):
            return super().__call__(given)
        _check_handler(given)
        queue = self._kept_in[self.name] = Queue(self._run, self.options, given)
        return queue


class QueueRun(RunCore):
    """The part of a Run that hands work to workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queues: dict[str, Queue[Any, Any]] = {}

    def queue(
        self,
        name: str,
        *,
        attempts: int = 5,
        lease: float | str = 30,
        concurrency: int = 1,
        key: Callable[[Any], str] | None = None,
        slots: Units | None = None,
        limit: Units | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> NamedQueue:
        """The decorator `runstate.queue`, for this run instead of the default one."""
        return queue_in(
            lambda: self,
            self.queues,
            name,
            attempts=attempts,
            lease=lease,
            concurrency=concurrency,
            key=key,
            needs=checked_needs(slots, limit, budget),
        )


def queue_in(
    run: Callable[[], RunCore],
    kept_in: dict[str, Queue[Any, Any]],
    name: Any,
    *,
    attempts: Any,
    lease: Any,
    concurrency: Any,
    key: Any,
    needs: Needs,
) -> NamedQueue:
    """The queue of that name for the run that `run` gives at each call; with its handler it is put into
    `kept_in`. Refuses (ConfigError) options it cannot use."""
    if callable(name):
        raise ConfigError('a queue needs a name: @runstate.queue("name")')
    if key is not None and not callable(key):
        raise ConfigError("key must be a function of the input that returns a string")
    lease_s = duration_s(lease, "lease")
    if not _LEASE_S_MIN <= lease_s <= _LEASE_S_MAX:
        raise ConfigError(f"lease must be from {_LEASE_S_MIN} s to {_LEASE_S_MAX} s, not {lease!r}")
    options = Options(
        name=check_name("name", name),
        attempts=check_whole("attempts", attempts, 1, _ATTEMPTS_MAX),
        lease_s=lease_s,
        concurrency=check_whole("concurrency", concurrency, 1, _CONCURRENCY_MAX),
        key=key,
        needs=needs,
    )
    return NamedQueue(run, options, kept_in)


def _check_handler(function: Any) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__name__} is a generator: it has no one result to record")
    if isinstance(function, Queue):
        raise ConfigError(f"{function!r} has its handler already")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigError(f"a queue's handler takes one argument, the input; {function!r} does not") from None
