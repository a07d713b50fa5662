import asyncio
import contextlib
import random
import threading
import time

import pytest

from runstate import (
    AsyncRunstate,
    AuthenticationError,
    ConfigError,
    ConflictError,
    LeaseLostError,
    NotFoundError,
    PoolLease,
    Runstate,
    RunstateError,
    ScopeCancelledError,
    WaitTimeoutError,
)
from tests.sdk.peer import DROP, Answer, Peer, refusal
from tests.sdk.workers import Call
from tests.support import spaces

GRANT = {"grantId": "g", "token": "t", "units": 1, "leaseExpiresAt": "2030-01-01T00:00:00.000Z"}
CAPACITY = 3
GONE_S_MAX = 15  # sooner than a waiter expires or a lease lapses by itself


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        await client.pools.ensure("browser", capacity=CAPACITY)
        yield client


@pytest.fixture
async def pool(rs):
    return (await rs.scopes.create()).pool("browser")


async def counts(pool):
    view = await pool.status()
    return view["unitsUsed"], view["waiting"]


async def until_counts(pool, *wanted):
    ends_at = time.monotonic() + GONE_S_MAX
    while (found := await counts(pool)) != wanted:
        assert time.monotonic() < ends_at, f"{found}, never {wanted}"
        await asyncio.sleep(0.02)


# ------------------------------------------------------------------------------ sizes and names


async def test_ensure_creates_or_checks_and_names_both_sizes(rs):
    view = await rs.pools.ensure("gpu", capacity=2)
    assert (view["name"], view["unitsTotal"], view["unitsUsed"], view["waiting"]) == ("gpu", 2, 0, 0)
    assert (await rs.pools.ensure("gpu", capacity=2))["id"] == view["id"]
    with pytest.raises(ConflictError, match=r"2 .*5|5 .*2"):
        await rs.pools.ensure("gpu", capacity=5)
    for capacity in (0, -1, 1.5, "3", True):
        with pytest.raises(ConfigError):
            await rs.pools.ensure("gpu", capacity=capacity)


async def test_a_key_that_may_not_create_checks_what_is_there(here, rs, space, database_url):
    key = spaces.limited(database_url, space, "runtime").key
    async with AsyncRunstate(**{**here.settings, "api_key": key}) as limited:
        assert (await limited.pools.ensure("browser", capacity=CAPACITY))["unitsTotal"] == CAPACITY
        with pytest.raises(AuthenticationError):
            await limited.pools.ensure("missing", capacity=1)


async def test_unknown_pools_are_told_and_none_is_created(rs):
    scope = await rs.scopes.create()
    pool = scope.pool("missing")
    assert pool.scope_id == scope.id
    for call in (pool.acquire, pool.try_acquire, pool.status):
        with pytest.raises(NotFoundError):
            await call()
    assert await scope.pool_by_id("nowhere").status() is None
    with pytest.raises(NotFoundError):
        await scope.pool_by_id("nowhere").acquire()
    for name in ("", "a" * 257, "a\0"):
        with pytest.raises(ConfigError):
            scope.pool(name)


# ------------------------------------------------------------------------------ taking


async def test_units_are_lent_and_come_back(rs, pool):
    lease = await pool.acquire(units=2)
    assert isinstance(lease, PoolLease)
    assert lease.token() not in repr(lease)
    assert await counts(pool) == (2, 0)
    assert await pool.try_acquire(units=2, wait=True) == {"kind": "capacity-unavailable"}
    with pytest.raises(ConflictError) as caught:
        await pool.acquire(units=2, wait=False)
    assert caught.value.code == "CAPACITY_UNAVAILABLE"
    found = await rs.scope(pool.scope_id).pool_by_id((await pool.status())["id"]).try_acquire()
    assert found["kind"] == "acquired"
    await found["lease"].release({"seen": 1})
    await lease.renew(60)
    await lease.release()
    await lease.release()  # again: nothing
    assert await counts(pool) == (0, 0)


@pytest.mark.parametrize("wait", [True, False])
async def test_more_than_there_are_is_refused_at_once(pool, wait):
    with pytest.raises(RunstateError) as caught:
        await pool.acquire(units=CAPACITY + 1, wait=wait)
    assert caught.value.code == "VALIDATION_FAILED"
    for units in (0, -1, 1.5, True):
        with pytest.raises(ConfigError):
            await pool.acquire(units=units, wait=wait)


async def test_a_wait_ends_when_units_come_back(pool):
    lease = await pool.acquire(units=CAPACITY)
    waiting = asyncio.ensure_future(pool.acquire())
    await until_counts(pool, CAPACITY, 1)
    assert not waiting.done()
    await lease.release()
    released_at = time.monotonic()
    taken = await waiting
    assert time.monotonic() - released_at < 2
    assert await counts(pool) == (1, 0)
    await taken.release()


async def test_a_wait_ends_when_a_lease_lapses(pool):
    lease = await pool.acquire(units=CAPACITY, lease_seconds=1)
    await lease.aclose()
    taken = await pool.acquire(timeout_ms=20_000)
    await asyncio.wait_for(lease.lost_event.wait(), 10)
    with pytest.raises(LeaseLostError):
        await lease.release()
    await taken.release()


async def test_the_lease_is_renewed_while_the_loop_is_busy(pool):
    lease = await pool.acquire(lease_seconds=1)
    time.sleep(2.5)  # noqa: ASYNC251 - that is the point
    assert not lease.is_lost
    assert await counts(pool) == (1, 0)
    await lease.release()


async def test_first_come_first_served_and_the_big_one_is_not_overtaken(pool):
    held = [await pool.acquire() for _ in range(CAPACITY)]
    order = []

    async def one(number, units):
        lease = await pool.acquire(units=units)
        order.append(number)
        await lease.release()

    waiting = []
    for number, units in enumerate((1, CAPACITY, 1, 2)):
        waiting.append(asyncio.ensure_future(one(number, units)))
        await until_counts(pool, CAPACITY, number + 1)
    for lease in held:
        await lease.release()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert order[:2] == [0, 1]
    assert sorted(order) == [0, 1, 2, 3]


# ------------------------------------------------------------------------------ leaving nothing behind


@pytest.mark.parametrize("timeout_ms", [0, 300])
async def test_a_wait_that_runs_out_leaves_nothing_behind(pool, timeout_ms):
    lease = await pool.acquire(units=CAPACITY)
    with pytest.raises(WaitTimeoutError, match="browser"):
        await pool.acquire(timeout_ms=timeout_ms)
    assert await counts(pool) == (CAPACITY, 0)
    await lease.release()


@pytest.mark.parametrize("free", [True, False])
async def test_whatever_the_instant_a_cancelled_acquire_leaves_nothing_behind(pool, free):
    rng = random.Random(7)
    lease = None if free else await pool.acquire(units=CAPACITY)
    for _ in range(40):
        taking = [asyncio.ensure_future(pool.acquire()) for _ in range(4)]
        await asyncio.sleep(rng.uniform(0, 0.04))
        for each in taking:
            each.cancel()
        for each in taking:
            with contextlib.suppress(asyncio.CancelledError):
                await (await each).release()
    await until_counts(pool, 0 if free else CAPACITY, 0)
    if lease is not None:
        await lease.release()


async def test_a_storm_of_cancellations_while_units_change_hands(pool):
    rng = random.Random(11)
    inside = most = 0

    async def one():
        nonlocal inside, most
        lease = await pool.acquire(timeout_ms=20_000)
        try:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(rng.uniform(0, 0.02))
        finally:
            inside -= 1
            await lease.release()

    callers = [asyncio.ensure_future(one()) for _ in range(40)]
    for each in rng.sample(callers, 25):
        await asyncio.sleep(rng.uniform(0, 0.05))
        each.cancel()
    ended = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(each) for each in ended} <= {type(None), asyncio.CancelledError}
    assert most <= CAPACITY
    await until_counts(pool, 0, 0)


async def test_a_grant_whose_reply_was_given_up_is_given_back():
    granted = threading.Event()

    def script(request):
        if request.path.endswith("/by-name/browser"):
            return Answer(200, {"id": "p"})
        if request.path.endswith("/acquire"):
            granted.set()
            time.sleep(0.3)
            return Answer(200, GRANT)
        return Answer(200, {"released": True})

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            taking = asyncio.ensure_future(rs.scope("s").pool("browser").acquire())
            await asyncio.to_thread(granted.wait, 30)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
    assert peer.requests[-1].path.endswith("/grants/g/release")
    assert peer.requests[-1].json == {"token": "t"}


async def test_after_a_lost_reply_the_same_request_is_sent_again():
    keys = []

    def script(request):
        if request.path.endswith("/by-name/browser"):
            return Answer(200, {"id": "p"})
        keys.append((request.headers.get("idempotency-key"), request.body))
        return DROP if len(keys) < 5 else Answer(200, GRANT)

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            await (await rs.scope("s").pool("browser").acquire()).aclose()
    assert len(keys) == 5
    assert len(set(keys)) == 1


@pytest.mark.parametrize("code", ["CONCURRENCY_LIMITED", "UNAVAILABLE", "RATE_LIMITED"])
async def test_a_wait_waits_out_limits_and_outages(code):
    answers = [refusal(429 if "LIMITED" in code else 503, code, retry_after="0.1") for _ in range(4)]

    def script(request):
        if request.path.endswith("/by-name/browser"):
            return answers.pop() if len(answers) > 2 else Answer(200, {"id": "p"})
        return answers.pop() if answers else Answer(200, GRANT)

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url, retries=0) as rs:
            await (await rs.scope("s").pool("browser").acquire(timeout_ms=20_000)).aclose()
    assert answers == []


async def test_who_lost_the_place_in_the_line_joins_again():
    full, ended = refusal(409, "CAPACITY_UNAVAILABLE"), refusal(409, "CONFLICT")
    dialogue = [
        ("PUT by-name/browser", Answer(200, {"id": "p"})),
        ("POST p/acquire", full),  # others wait
        ("POST p/wait", Answer(200, {"waiterId": "one", "state": "WAITING"})),
        ("GET permit-waiters/one", Answer(200, {"state": "SIGNALED"})),
        ("POST p/acquire", full),  # too late: it waits anew, with the place it has
        ("GET permit-waiters/one", Answer(200, {"state": "SIGNALED"})),
        ("POST p/acquire", ended),  # it was missed, and is in the line no more
        ("POST p/wait", Answer(200, {"waiterId": "two", "state": "WAITING"})),
        ("GET permit-waiters/two", Answer(200, {"state": "EXPIRED"})),
        ("POST p/wait", Answer(200, {"waiterId": "three", "state": "SIGNALED"})),
        ("POST p/acquire", Answer(200, GRANT)),
    ]
    said = []

    def script(request):
        said.append(f"{request.method} {'/'.join(request.path.split('?')[0].split('/')[-2:])}")
        return dialogue[len(said) - 1][1] if len(said) <= len(dialogue) else refusal(500, "INTERNAL")

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url, holder="me") as rs:
            await (await rs.scope("s").pool("browser").acquire(timeout_ms=30_000)).aclose()
    assert said == [each for each, _ in dialogue]
    joins = [request.json for request in peer.requests if request.path.endswith("/wait")]
    assert joins == [{"scopeId": "s", "units": 1, "holder": "me", "ttlSeconds": 30}] * 3
    waiters = [each.json.get("waiterId") for each in peer.requests if each.path.endswith("/acquire")]
    assert waiters == [None, "one", "one", "three"]


async def test_the_end_of_the_scope_ends_the_wait(rs, pool):
    lease = await pool.acquire(units=CAPACITY)
    other = (await rs.scopes.create()).pool("browser")
    waiting = asyncio.ensure_future(other.acquire())
    await until_counts(pool, CAPACITY, 1)
    await rs.scope(other.scope_id).cancel()
    with pytest.raises(ScopeCancelledError):
        await waiting
    assert await counts(pool) == (CAPACITY, 0)
    await lease.release()


# ------------------------------------------------------------------------------ run, both faces


async def test_run_gives_back_in_every_case(pool):
    async def work(lease):
        assert (await counts(pool))[0] == 2
        return lease.grant_id

    async def fail(_lease):
        raise ValueError("no")

    assert await pool.run(work, units=2)
    assert await pool.run(lambda lease: lease.grant_id)
    with pytest.raises(ValueError, match="no"):
        await pool.run(fail)
    assert await counts(pool) == (0, 0)


async def test_run_cancels_an_async_function_on_loss(rs, pool):
    async def work(_lease):
        await rs.scope(pool.scope_id).cancel()
        await asyncio.sleep(60)

    with pytest.raises(LeaseLostError):
        await pool.run(work, lease_seconds=1)


def test_the_blocking_face_waits_in_the_same_line(here):
    with Runstate(**here.settings) as rs:
        rs.pools.ensure("browser", capacity=1)
        pool = rs.scopes.create().pool("browser")
        lease = pool.acquire()
        assert pool.try_acquire() == {"kind": "capacity-unavailable"}
        with pytest.raises(WaitTimeoutError):
            pool.acquire(timeout_ms=200)
        waiting = Call(lambda: pool.acquire(lease_seconds=5))
        lease.release()
        taken = waiting.result
        assert (taken.is_lost, pool.status()["unitsUsed"]) == (False, 1)
        taken.release()
        assert pool.run(lambda _lease: pool.status()["unitsUsed"]) == 1
        assert (pool.status()["unitsUsed"], pool.status()["waiting"]) == (0, 0)
