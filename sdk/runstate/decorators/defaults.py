"""Run, with every decorator bound to it, and the default Run behind the functions of the `runstate`
module."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

from runstate._config import (
    RETRIES_MAX,
    TIMEOUT_MS_MAX,
    check_api_key,
    check_base_url,
    check_name,
    check_space_id,
    check_whole,
)
from runstate._units import duration_s
from runstate.decorators.budget import CURRENCY, SCALE, Budget, BudgetRun
from runstate.decorators.events import EventsRun
from runstate.decorators.limit import Limit, LimitRun
from runstate.decorators.needs import checked_needs
from runstate.decorators.once import OnceRun, once_in
from runstate.decorators.queue import NamedQueue, Units, defined, queue_in
from runstate.decorators.serve import Queues, ServeRun
from runstate.decorators.setup import SetupRun, Sizes
from runstate.decorators.sleep import SleepRun
from runstate.decorators.slots import Slots, SlotsRun
from runstate.decorators.together import TogetherRun
from runstate.errors import ConfigError
from runstate.run import Account

P = ParamSpec("P")
R = TypeVar("R")


class Run(OnceRun, ServeRun, SlotsRun, LimitRun, BudgetRun, SetupRun, TogetherRun, SleepRun, EventsRun):
    """A run, joined at the first use, with the functions of the module bound to it. Once it has seen the run
    end, every call raises StoppedError."""


def configure(
    *,
    api_key: str | None = None,
    space_id: str | None = None,
    base_url: str | None = None,
    run: str | None = None,
    worker: str | None = None,
    timeout: float | str | None = None,
    retries: int | None = None,
) -> None:
    """Settings for the functions of this module, in place of the environment; those given earlier stay
    unless given again. Starts the default Run over: it joins, or starts, the run at its next use.
    `timeout` (seconds, or "10s") is for each attempt of a request. Refuses (ConfigError) malformed
    values; asks the server nothing."""
    if base_url is not None:
        base_url = check_base_url(base_url)
    if run is not None:
        check_name("run", run)
    if worker is not None:
        check_name("worker", worker)
    settings: dict[str, Any] = {
        "api_key": None if api_key is None else check_api_key(api_key),
        "space_id": None if space_id is None else check_space_id(space_id),
        "base_url": base_url,
        "run": run,
        "worker": worker,
        "request_timeout_ms": None if timeout is None else _timeout_ms(timeout),
        "retries": None if retries is None else check_whole("retries", retries, 0, RETRIES_MAX),
    }
    _defaults.run = Run(_defaults.run.account.changed(settings))


def run(name: str, deadline: str | datetime | None = None) -> Run:
    """The run of that name, with the default settings: joined or started at the first use. `deadline`
    (RFC 3339, or a datetime with a time zone) counts if it is this call that starts it."""
    return Run(_defaults.run.account, name=check_name("name", name), deadline=deadline)


def default_run() -> Run:
    """The Run behind the functions of the module, until `configure` starts it over."""
    return _defaults.run


@overload
def once(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def once(
    *,
    name: str | None = None,
    key: Callable[..., str] | None = None,
    attempts: int = 3,
    lease: float | str = 30,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def once(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: Callable[..., str] | None = None,
    attempts: int = 3,
    lease: float | str = 30,
) -> Any:
    """Wraps a function, plain or async, so that it runs once per run for the same arguments: the first caller
    runs it, concurrent callers in any process wait, and everybody gets the one recorded result.

    The key is `<name>:<hash of the arguments>`, or `<name>:<key(...)>`. An exception goes to the caller
    whose call it was, and the next caller tries again, until `attempts` have failed: OnceFailedError from
    then on. The lease (seconds, or "30s") is renewed while the function runs; when it is lost, because
    this process was cut off, LeaseLostError is raised and nothing is recorded. The result must be JSON of
    at most 65,536 bytes. A server that is away is waited for; a warning in the log `runstate` says so."""
    return once_in(default_run, function, name=name, key=key, attempts=attempts, lease=lease)


def queue(
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
    """Decorates a function of one argument, plain or async: calls of it become jobs that workers run, see
    `serve`, and everybody who passes the same input in a run gets the one result of the one job. Without a
    function to decorate it is for producers: `queue("research").send(...)`.

    The job's key is `<name>:<hash of the input>`, or `<name>:<key(input)>`. When the handler raises, the job
    is tried again after a while, until `attempts` have failed: TaskFailedError for its callers then. The
    lease (seconds, or "60s") is renewed while the handler runs; when a worker dies, it is how long the job
    waits for the next one. A worker runs `concurrency` jobs of the queue at once. Input and result must be
    JSON of at most 65,536 bytes.

    What each job needs besides a worker is taken with it in one step, all or nothing, and must exist: units
    of a pool (`slots`) and of a limit (`limit`), each by its name or as `{"name", "units"}`, and money:
    `budget={"name", "reserve", "cost"}` reserves so much, and charges `cost(result)`, or all of it, once the
    handler has returned; when it raises nothing is charged."""
    return queue_in(
        default_run,
        defined,
        name,
        attempts=attempts,
        lease=lease,
        concurrency=concurrency,
        key=key,
        needs=checked_needs(slots, limit, budget),
    )


def serve(concurrency: int | None = None, queues: Queues | None = None, signal: Any = None) -> None:
    """Works off every queue defined in this process, or those that `queues` names: takes their jobs in the
    run and in what is below it, `concurrency` at once over all queues (each queue has its own bound besides),
    and records what the handlers return.

    Until the run ends, `signal` (a ThreadSafeEvent, or another flag with is_set()) is set, or the process
    gets SIGTERM or SIGINT. Then no new job is taken; handlers have 30 s; unfinished jobs are handed back
    without costing an attempt. A second SIGINT ends it at once. A server that is away is waited for. Raises
    AuthenticationError, ConfigError and NotFoundError, and SystemExit or KeyboardInterrupt of a handler."""
    default_run().serve(concurrency, queues, signal)


async def aserve(concurrency: int | None = None, queues: Queues | None = None, signal: Any = None) -> None:
    """As `serve`; async handlers run on this loop."""
    await default_run().aserve(concurrency, queues, signal)


def slots(
    name: str,
    max: int | None = None,  # noqa: A002 - what the contract calls it
    units: int = 1,
    timeout: float | str = 60,
    lease: float | str = 30,
) -> Slots:
    """Holds `units` of the pool `name` around a function (as a decorator, plain or async) or a block (`with`
    and `async with`), so that at most `max` are held at the same time by all processes together. Who finds
    none free waits in a line, first come, first served, up to `timeout` (seconds, or "2m"): WaitTimeoutError.

    With `max` the pool is created, or checked: ConflictError, naming both, when it has another size;
    without, it must exist (NotFoundError). The lease (seconds, or "30s") is renewed meanwhile; it is how
    long the units of a process that has died stay away. If they are lost, LeaseLostError is raised at the
    end."""
    return Slots(default_run, name, size=max, units=units, timeout=timeout, lease=lease)


def limit(
    name: str,
    max: int | None = None,  # noqa: A002 - what the contract calls it
    per: float | str | None = None,
    units: int = 1,
    timeout: float | str = 60,
) -> Limit:
    """Decorates a function, plain or async: each call first takes `units` of the quota `name`, of which all
    processes together have `max` in each window: `per` is "second", "minute", "hour", "day", or a duration.
    Who finds none left waits in a line for the next window, first come, first served, up to `timeout`
    (seconds, or "2m"): WaitTimeoutError, and the function was not called. Units are not given back.

    With `max` and `per` the quota is created, or checked: ConflictError, naming both, when it has another
    size; without, it must exist (NotFoundError)."""
    return Limit(default_run, name, size=max, per=per, units=units, timeout=timeout)


def take(name: str, units: int = 1, timeout: float | str = 60) -> dict[str, Any]:
    """`Run.take` of the default run."""
    return default_run().take(name, units, timeout)


async def atake(name: str, units: int = 1, timeout: float | str = 60) -> dict[str, Any]:
    """As `take`."""
    return await default_run().atake(name, units, timeout)


def budget(
    name: str,
    reserve: Any,
    *,
    cost: Callable[[Any], Any] | None = None,
    limit: Any = None,
    currency: str = CURRENCY,
    scale: int = SCALE,
) -> Budget:
    """Decorates a function, plain or async: each call first reserves `reserve` of the budget `name`, and is
    charged `cost(result)` after it (the reserve, without `cost`); nothing when it raises. So all processes
    together never have spent and set aside more than the limit: BudgetExceededError, and the function was not
    called. A call that costs more than its reserve is charged all the same; what the budget does not have is
    recorded as overrun. When `cost` itself fails, the reserve is charged and ConfigError raised.

    Amounts are major units: "0.40" must fit the scale exactly, 0.4 is rounded to it, half up. With `limit`
    the budget is created, or checked: ConflictError, naming both, when it differs; without, it must exist
    (NotFoundError) and has its own currency and scale. What a process that has died had reserved is back
    after a day."""
    return Budget(default_run, name, reserve=reserve, cost=cost, limit=limit, currency=currency, scale=scale)


def sleep(name: str, duration: float | str | None = None, *, until: str | datetime | None = None) -> None:
    """Sleeps `duration` (seconds, or "2h"), or `until` an instant (RFC 3339, or a datetime with a time zone),
    at most 366 days. The server keeps the time, under `name` in the run: a process that is killed, started
    again and calls this again sleeps only for what is left, and so does another one. The first call sets the
    time; once it is over, every later call of that name in the run returns at once.

    Ends with the run: StoppedError. A server that is away is waited for."""
    default_run().sleep(name, duration, until=until)


async def asleep(
    name: str, duration: float | str | None = None, *, until: str | datetime | None = None
) -> None:
    """As `sleep`; cancelling it leaves the time set."""
    await default_run().asleep(name, duration, until=until)


def setup(limits: Sizes | None = None, slots: Sizes | None = None, budgets: Sizes | None = None) -> None:
    """Creates what a program takes from, or checks it (ConflictError, naming both sizes), without taking
    anything: `slots={"browser": 3}`, `limits={"search-api": {"max": 60, "per": "minute"}}`,
    `budgets={"model-usd": "5.00"}` (or `{"limit": "5.00", "currency": "EUR", "scale": 2}`). In this order;
    what stands before a conflict stays created. A server that is away is waited for, up to a minute."""
    default_run().setup(limits, slots, budgets)


async def asetup(
    limits: Sizes | None = None, slots: Sizes | None = None, budgets: Sizes | None = None
) -> None:
    """As `setup`."""
    await default_run().asetup(limits, slots, budgets)


def together(name: str, count: int, timeout: float | str | None = 60) -> None:
    """Waits until `count` workers of the run have called it with this name, so that they go on together. A
    worker counts once, by its name, however many of its threads call, and however often it is restarted
    under that name (`configure(worker=)`). Once all have come every later call of theirs returns at once;
    one who was not among them is refused: ConflictError (BARRIER_RELEASED).

    Up to `timeout` (seconds, "2m", or None: without end): WaitTimeoutError, and whoever gave up stays
    counted. All have to name the same `count`: ConflictError, which names both. A server that is away is
    waited for. Waiting ends with the run: StoppedError."""
    default_run().together(name, count, timeout)


async def atogether(name: str, count: int, timeout: float | str | None = 60) -> None:
    """As `together`."""
    await default_run().atogether(name, count, timeout)


def run_id() -> str:
    """`Run.run_id` of the default run."""
    return default_run().run_id()


async def arun_id() -> str:
    """As `run_id`."""
    return await default_run().arun_id()


def status() -> dict[str, Any]:
    """`Run.status` of the default run."""
    return default_run().status()


async def astatus() -> dict[str, Any]:
    """As `status`."""
    return await default_run().astatus()


def child(name: str | None = None, deadline: str | datetime | None = None) -> Run:
    """`Run.child` of the default run."""
    return default_run().child(name, deadline)


async def achild(name: str | None = None, deadline: str | datetime | None = None) -> Run:
    """As `child`."""
    return await default_run().achild(name, deadline)


def stop() -> None:
    """`Run.stop` of the default run."""
    default_run().stop()


async def astop() -> None:
    """As `stop`."""
    await default_run().astop()


def finish() -> None:
    """`Run.finish` of the default run."""
    default_run().finish()


async def afinish() -> None:
    """As `finish`."""
    await default_run().afinish()


def events(types: Sequence[str] | None = None, signal: Any = None) -> Iterator[dict[str, Any]]:
    """`Run.events` of the default run."""
    return default_run().events(types, signal)


def aevents(types: Sequence[str] | None = None, signal: Any = None) -> AsyncIterator[dict[str, Any]]:
    """As `events`."""
    return default_run().aevents(types, signal)


def _timeout_ms(timeout: Any) -> int:
    timeout_ms = round(duration_s(timeout, "timeout") * 1000)
    if not 1 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise ConfigError(f"timeout must be from 1 ms to {TIMEOUT_MS_MAX // 1000} s, not {timeout!r}")
    return timeout_ms


class _Defaults:
    """Holds the default Run; replaced as a whole, so that a thread sees the old one or the new one."""

    def __init__(self) -> None:
        self.run = Run(Account())


_defaults = _Defaults()
