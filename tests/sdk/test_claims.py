import asyncio
import random
import threading
import time
from datetime import datetime, timedelta

import pytest

from runstate import (
    AsyncRunstate,
    ClaimLease,
    ConfigError,
    ConflictError,
    LeaseLostError,
    NotFoundError,
    Runstate,
    ScopeCancelledError,
    WaitTimeoutError,
)
from tests.sdk.peer import DROP, Answer, Peer, refusal
from tests.sdk.workers import Call


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


@pytest.fixture
async def scope(rs):
    return await rs.scopes.create()


async def view(scope, key):
    return dict(await scope._space.call("GET", "claims", key, query={"scopeId": scope.id}))


async def test_one_holder_at_a_time_and_each_later_one_has_a_larger_generation(scope):
    claim = scope.claim("a/b ü?")
    first = await claim.acquire()
    assert isinstance(first, ClaimLease)
    assert (first.key, claim.key, claim.scope_id) == ("a/b ü?", "a/b ü?", scope.id)
    assert abs(first.expires_at - datetime.now(first.expires_at.tzinfo) - timedelta(seconds=30)) < timedelta(
        seconds=5
    )
    with pytest.raises(ConflictError) as caught:
        await claim.acquire()
    assert caught.value.code == "CLAIM_HELD"
    assert await claim.try_acquire() == {"kind": "busy"}
    await first.release({"seen": [1, None]})
    await first.release()  # again: nothing
    assert (await view(scope, claim.key))["observation"] == {"seen": [1, None]}
    again = await claim.try_acquire(lease_seconds=5)
    assert again["kind"] == "acquired"
    assert int(again["lease"].generation) > int(first.generation)
    assert not first.is_lost
    await again["lease"].release()


async def test_a_wait_ends_when_the_key_is_released(scope):
    claim = scope.claim("a")
    lease = await claim.acquire()
    waiting = asyncio.ensure_future(claim.acquire(wait=True))
    await asyncio.sleep(0.3)  # it may be waiting by now; the promise holds either way
    assert not waiting.done()
    await lease.release()
    released_at = time.monotonic()
    taken = await waiting
    assert time.monotonic() - released_at < 2
    assert int(taken.generation) == int(lease.generation) + 1
    await taken.release()


async def test_a_wait_ends_when_the_lease_lapses(scope):
    claim = scope.claim("a")
    lease = await claim.acquire(lease_seconds=1)
    await lease.aclose()
    taken = await claim.acquire(wait=True, timeout_ms=10_000)
    assert int(taken.generation) == int(lease.generation) + 1
    await asyncio.wait_for(lease.lost_event.wait(), 10)
    assert lease.is_lost
    with pytest.raises(LeaseLostError):
        lease.raise_if_lost()
    with pytest.raises(LeaseLostError):
        await lease.renew()
    with pytest.raises(LeaseLostError):
        await lease.release()
    await taken.release()


async def test_a_wait_that_runs_out_leaves_nothing_behind(scope):
    claim = scope.claim("a")
    lease = await claim.acquire()
    for timeout_ms in (0, 300):
        started = time.monotonic()
        with pytest.raises(WaitTimeoutError, match="'a'"):
            await claim.acquire(wait=True, timeout_ms=timeout_ms)
        assert time.monotonic() - started < timeout_ms / 1000 + 2
    await lease.release()
    assert (await view(scope, "a"))["state"] == "FREE"


async def test_whatever_the_instant_a_cancelled_acquire_leaves_nothing_behind(scope):
    rng = random.Random(7)
    claim = scope.claim("a")
    for wait in (True, False) * 20:
        taking = [asyncio.ensure_future(claim.acquire(wait=wait)) for _ in range(3)]
        await asyncio.sleep(rng.uniform(0, 0.04))
        for each in taking:
            each.cancel()
        for each in await asyncio.gather(*taking, return_exceptions=True):
            if isinstance(each, ClaimLease):
                await each.release()
    ends_at = time.monotonic() + 15  # sooner than a lease lapses by itself
    while (await view(scope, "a"))["state"] != "FREE":
        assert time.monotonic() < ends_at
        await asyncio.sleep(0.02)


async def test_the_lease_is_renewed_while_the_loop_is_busy(scope):
    lease = await scope.claim("a").acquire(lease_seconds=1)
    before = lease.expires_at
    time.sleep(2.5)  # noqa: ASYNC251 - that is the point
    assert not lease.is_lost
    lease.raise_if_lost()
    assert lease.expires_at > before + timedelta(seconds=1)
    assert (await view(scope, "a"))["generation"] == lease.generation
    await lease.renew(60)
    assert lease.expires_at > before + timedelta(seconds=50)
    assert lease.token() not in repr(lease)
    await lease.release()


async def test_lost_event_is_set_on_the_loop_that_made_the_lease(rs, scope):
    lease = await scope.claim("a").acquire(lease_seconds=1)
    assert not lease.lost_event.is_set()
    await scope.cancel()
    await asyncio.wait_for(lease.lost_event.wait(), 10)
    assert lease.is_lost
    with pytest.raises(LeaseLostError) as caught:
        lease.raise_if_lost()
    assert isinstance(caught.value.__cause__, ScopeCancelledError)


# ------------------------------------------------------------------------------ run


async def test_run_gives_the_lease_and_releases_in_every_case(scope):
    claim = scope.claim("a")

    async def work(lease):
        assert (await view(scope, "a"))["state"] == "HELD"
        return lease.generation

    def plain(lease):
        assert threading.current_thread() is not threading.main_thread()
        return lease.generation

    async def fail(lease):
        raise ValueError("no")

    def gives_a_coroutine(lease):
        return work(lease)

    generations = [
        await claim.run(work),
        await claim.run(plain, lease_seconds=5),
        await claim.run(gives_a_coroutine),
    ]
    assert generations == sorted(generations, key=int)
    with pytest.raises(ValueError, match="no"):
        await claim.run(fail)
    assert (await view(scope, "a"))["state"] == "FREE"
    held = await claim.acquire()
    with pytest.raises(ConflictError):
        await claim.run(work)
    waiting = asyncio.ensure_future(claim.run(work, wait=True))
    await held.release()
    assert int(await waiting) == int(held.generation) + 1


async def test_run_cancels_an_async_function_on_loss(scope):
    ended = []

    async def work(lease):
        await scope.cancel()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(LeaseLostError):
        await scope.claim("a").run(work, lease_seconds=1)
    assert ended == [True]


async def test_run_abandons_a_plain_function_on_loss(scope):
    inside, never = threading.Event(), threading.Event()

    def work(lease):
        inside.set()
        never.wait(60)

    running = asyncio.ensure_future(scope.claim("a").run(work, lease_seconds=1))
    await asyncio.to_thread(inside.wait, 30)
    await scope.cancel()
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(running, 10)
    never.set()


async def test_run_that_is_cancelled_cancels_and_releases(scope):
    inside, ended = asyncio.Event(), []

    async def work(lease):
        inside.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    running = asyncio.ensure_future(scope.claim("a").run(work))
    await inside.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [True]
    assert (await view(scope, "a"))["state"] == "FREE"


# ------------------------------------------------------------------------------ blocking, faults, refusals


def test_the_blocking_client_s_functions_get_the_async_lease(here):
    with Runstate(**here.settings) as rs:
        claim = rs.scopes.create().claim("a")

        async def work(lease):
            await lease.renew()
            return lease.generation

        def plain(lease):
            assert claim.try_acquire() == {"kind": "busy"}  # a plain function may block
            return lease.generation

        assert int(claim.run(work)) < int(claim.run(plain))
        found = claim.try_acquire()
        lease = found["lease"]
        assert (found["kind"], lease.is_lost, lease.key) == ("acquired", False, "a")
        waiting = Call(lambda: claim.acquire(wait=True))
        lease.renew(60)
        lease.release({"by": "me"})
        assert int(waiting.result.generation) == int(lease.generation) + 1


async def test_an_unknown_scope_and_a_key_that_is_none_are_refused(rs):
    with pytest.raises(NotFoundError):
        await rs.scope("nowhere").claim("a").acquire(wait=True)
    for key in ("", "a" * 513, "a\0", None):
        with pytest.raises(ConfigError):
            rs.scope("s").claim(key)


@pytest.mark.parametrize("code", ["CONCURRENCY_LIMITED", "UNAVAILABLE", "RATE_LIMITED"])
async def test_a_wait_waits_out_limits_and_outages(code):
    answers = [refusal(429 if "LIMITED" in code else 503, code, retry_after="0.1") for _ in range(3)]
    granted = Answer(
        201,
        {
            "key": "a",
            "scopeId": "s",
            "generation": "7",
            "token": "t",
            "leaseExpiresAt": "2030-01-01T00:00:00.000Z",
        },
    )
    with Peer(lambda request: answers.pop() if answers else granted) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url, retries=0) as rs:
            claim = rs.scope("s").claim("a")
            if code == "CONCURRENCY_LIMITED":
                with pytest.raises(Exception, match="no"):
                    await claim.acquire()
            lease = await claim.acquire(wait=True, timeout_ms=20_000)
            assert lease.generation == "7"
            await lease.aclose()


async def test_after_a_lost_reply_the_same_request_is_sent_again(here):
    keys = []

    def script(request):
        keys.append((request.headers.get("idempotency-key"), request.body))
        if len(keys) < 3:
            return DROP
        return Answer(
            201,
            {
                "key": "a",
                "scopeId": "s",
                "generation": "7",
                "token": "t",
                "leaseExpiresAt": "2030-01-01T00:00:00.000Z",
            },
        )

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            lease = await rs.scope("s").claim("a").acquire(wait=True)
            await lease.aclose()
    assert len(keys) == 3
    assert len(set(keys)) == 1
