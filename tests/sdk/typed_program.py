"""A program as a user types it, for the type checker alone."""

import asyncio
import datetime as dt
from typing import Any

from typing_extensions import assert_type

import runstate
from runstate import AsyncRunstate, Run, RunContext, Signal


@runstate.once
def bare(name: str, depth: int = 1) -> dict[str, int]:
    return {name: depth}


@runstate.once(name="n", key=lambda name: name, attempts=5, lease="60s")
def with_options(name: str) -> list[str]:
    return [name]


@runstate.once
async def later(name: str) -> str:
    return name


@runstate.run("other").once
def elsewhere(n: int) -> int:
    return n


@runstate.slots("browser", max=3, timeout="2m")
def rendered(page: str, *, depth: int = 1) -> list[str]:
    return [page] * depth


@runstate.run("other").slots("browser")
@runstate.limit("search-api", max=60, per="minute")
async def searched(words: str) -> bytes:
    return words.encode()


@runstate.budget("model-usd", reserve="0.40", cost=lambda answer: answer["cost"], limit="5.00")
def asked(question: str, *, depth: int = 1) -> dict[str, float]:
    return {question: depth, "cost": 0.25}


async def asynchronous(rs: AsyncRunstate) -> None:
    assert_type(await later("a"), str)
    assert_type(await runstate.arun_id(), str)
    assert_type(await runstate.achild(name="part"), Run)
    scope = await rs.scopes.create(name="n", child_limit=3)
    assert_type(await scope.status(), dict[str, Any])
    async with rs.with_space("x") as other:
        assert_type(other, AsyncRunstate)
    assert_type(await searched("a"), bytes)
    assert_type(await runstate.atake("search-api"), dict[str, Any])
    async with runstate.slots("browser") as lease:
        assert_type(lease, runstate.PoolLease)
    pool = scope.pool("browser")
    assert_type(await pool.acquire(units=2), runstate.PoolLease)
    assert_type(await pool.status(), dict[str, Any] | None)
    assert_type(await pool.run(lambda lease: lease.grant_id), str)
    assert_type(await scope.quota("search-api").take(units=2), dict[str, Any])
    meeting = await scope.barriers.create(target=3)
    assert_type(meeting, runstate.BarrierHandle)
    assert_type(await meeting.wait(timeout_ms=1_000), dict[str, Any])
    await runstate.atogether("start", 3)
    timer = await scope.timers.create(at=dt.datetime.now(dt.timezone.utc))
    assert_type(timer, runstate.TimerHandle)
    assert_type(timer.fire_at, dt.datetime | None)
    assert_type(await timer.wait(timeout_ms=1_000), dict[str, Any])
    await runstate.asleep("nap", until="2027-01-01T00:00:00Z")
    money = await scope.budget("model-usd").reserve(amount="0.40")
    assert_type(money, runstate.BudgetReservation)
    assert_type(money.reserved, str)
    assert_type(await money.settle(amount="0.25", usage_key="k"), dict[str, Any])


def plain() -> None:
    assert_type(bare("a", depth=2), dict[str, int])
    assert_type(with_options("a"), list[str])
    assert_type(elsewhere(1), int)
    assert_type(rendered("a", depth=2), list[str])
    assert_type(asked("why", depth=2), dict[str, float])
    assert_type(runstate.take("search-api", units=2), dict[str, Any])
    with runstate.slots("browser", units=2) as lease:
        assert_type(lease.is_lost, bool)
    runstate.together("start", 3, timeout="2m")
    runstate.sleep("nap", "2h")
    runstate.setup(slots={"browser": 3}, limits={"search-api": {"max": 60, "per": "minute"}})
    runstate.setup(budgets={"model-usd": "5.00"})
    run = runstate.run("x", deadline=dt.datetime.now(dt.timezone.utc))
    assert_type(run, Run)
    assert_type(run.child(), Run)
    assert_type(run.run_id(), str)
    context = runstate.context()
    assert_type(context, RunContext | None)
    if context is not None:
        assert_type(context.signal, Signal)
        assert_type(context.attempt, int)
        assert_type(context.run.id, str)
        context.signal.raise_if_set()
    runstate.configure(api_key="k", timeout="5s")
    with runstate.Runstate(space_id="s") as rs:
        assert_type(rs, runstate.Runstate)
        rs.scopes.create().complete()
    try:
        bare("a")
    except runstate.OnceFailedError as error:
        assert_type(error.attempts, int)
        assert_type(error.retry_after_ms, int | None)
    rendered(1)  # type: ignore[arg-type]
    asyncio.run(searched(1))  # type: ignore[arg-type]
    bare(1)  # type: ignore[arg-type]
    bare("a", wrong=1)  # type: ignore[call-arg]
    runstate.once(nmae="x")  # type: ignore[call-overload]
    asyncio.run(later(1))  # type: ignore[arg-type]
