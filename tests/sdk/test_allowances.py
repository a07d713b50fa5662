import asyncio
import random
import time

import pytest

from runstate import (
    AsyncRunstate,
    AuthenticationError,
    ConfigError,
    ConflictError,
    NotFoundError,
    Runstate,
    RunstateError,
    ScopeCancelledError,
    WaitTimeoutError,
)
from tests.sdk.peer import DROP, Answer, Peer
from tests.support import spaces

UNITS = 5
LONG_S = 86_400  # a window that does not turn while a test runs, but at midnight (UTC)
GONE_S_MAX = 15  # sooner than a waiter expires by itself


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        await client.quotas.ensure("search", units_per_window=UNITS, window_seconds=LONG_S)
        await client.quotas.ensure("quick", units_per_window=UNITS, window_seconds=1)
        yield client


@pytest.fixture
async def scope(rs):
    return await rs.scopes.create()


async def spent(quota):
    """Takes all that is left of the window."""
    found = await quota.try_take(units=(await quota.status())["remaining"])
    assert found["kind"] == "consumed"


async def until_waiting(quota, count):
    ends_at = time.monotonic() + GONE_S_MAX
    while (found := (await quota.status())["waiting"]) != count:
        assert time.monotonic() < ends_at, f"{found} wait, never {count}"
        await asyncio.sleep(0.02)


# ------------------------------------------------------------------------------ sizes and names


async def test_ensure_creates_or_checks_and_names_both_sizes(rs):
    view = await rs.quotas.ensure("new", units_per_window=2, window_seconds=60)
    assert (view["name"], view["unitsLimit"], view["windowSeconds"], view["consumed"]) == ("new", 2, 60, 0)
    assert (await rs.quotas.ensure("new", units_per_window=2, window_seconds=60))["id"] == view["id"]
    with pytest.raises(ConflictError, match=r"2 .*5"):
        await rs.quotas.ensure("new", units_per_window=5, window_seconds=60)
    with pytest.raises(ConflictError, match=r"60 .*61"):
        await rs.quotas.ensure("new", units_per_window=2, window_seconds=61)
    for units, window_s in ((0, 1), (1.5, 1), (True, 1), (1, 0), (1, LONG_S + 1), (1, 0.5)):
        with pytest.raises(ConfigError):
            await rs.quotas.ensure("new", units_per_window=units, window_seconds=window_s)


async def test_a_key_that_may_not_create_checks_what_is_there(here, rs, space, database_url):
    key = spaces.limited(database_url, space, "runtime").key
    async with AsyncRunstate(**{**here.settings, "api_key": key}) as limited:
        size = {"units_per_window": UNITS, "window_seconds": LONG_S}
        assert (await limited.quotas.ensure("search", **size))["unitsLimit"] == UNITS
        with pytest.raises(AuthenticationError):
            await limited.quotas.ensure("missing", **size)


async def test_unknown_quotas_are_told_and_none_is_created(scope):
    quota = scope.quota("missing")
    assert quota.scope_id == scope.id
    for call in (quota.take, quota.try_take, quota.status):
        with pytest.raises(NotFoundError):
            await call()
    assert await scope.quota_by_id("nowhere").status() is None
    for name in ("", "a" * 257, "a\0"):
        with pytest.raises(ConfigError):
            scope.quota(name)


# ------------------------------------------------------------------------------ taking


async def test_units_of_a_window_are_taken_until_they_are_spent(scope):
    quota = scope.quota("search")
    consumption = await quota.take(units=2)
    assert consumption["consumptionId"]
    assert consumption["units"] == 2
    assert (await quota.status())["consumed"] == 2
    found = await scope.quota_by_id((await quota.status())["id"]).try_take(units=3)
    assert (found["kind"], found["consumption"]["units"]) == ("consumed", 3)
    assert await quota.try_take() == {"kind": "exhausted"}
    with pytest.raises(WaitTimeoutError, match="search"):
        await quota.take(wait=False)


@pytest.mark.parametrize("wait", [True, False])
async def test_more_than_a_window_has_is_refused_at_once(scope, wait):
    with pytest.raises(RunstateError) as caught:
        await scope.quota("search").take(units=UNITS + 1, wait=wait)
    assert caught.value.code == "VALIDATION_FAILED"
    for units in (0, -1, 1.5, True):
        with pytest.raises(ConfigError):
            await scope.quota("search").take(units=units, wait=wait)


async def test_who_finds_none_left_gets_units_of_the_next_windows_in_order(scope):
    quota = scope.quota("quick")
    order = []

    async def one(number):
        consumption = await quota.take(units=UNITS, timeout_ms=60_000)
        order.append(number)
        return consumption

    consumptions = [await one(-1)]
    waiting = []
    for number in range(4):
        waiting.append(asyncio.ensure_future(one(number)))
        await asyncio.sleep(0.05)
    consumptions += await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert order == sorted(order)
    assert all(each["units"] == UNITS for each in consumptions)
    assert len({each["consumptionId"] for each in consumptions}) == 5
    assert (await quota.status())["waiting"] == 0


async def test_nothing_is_granted_while_it_cools_down(scope):
    quota = scope.quota("search")
    until = (await quota.cooldown(3600, "429 from the other side"))["cooldownUntil"]
    assert (await quota.status())["cooldownUntil"] == until
    assert await quota.cooldown(1) == {"cooldownUntil": until}
    assert await quota.try_take() == {"kind": "exhausted"}
    with pytest.raises(WaitTimeoutError):
        await quota.take(timeout_ms=200)
    for seconds in (0, 1.5, LONG_S + 1):
        with pytest.raises(ConfigError):
            await quota.cooldown(seconds)


# ------------------------------------------------------------------------------ leaving nothing behind


@pytest.mark.parametrize("timeout_ms", [0, 300])
async def test_a_wait_that_runs_out_leaves_the_line(scope, timeout_ms):
    quota = scope.quota("search")
    await spent(quota)
    with pytest.raises(WaitTimeoutError, match="search"):
        await quota.take(timeout_ms=timeout_ms)
    assert (await quota.status())["waiting"] == 0


async def test_whatever_the_instant_a_cancelled_take_leaves_the_line(scope):
    rng = random.Random(7)
    quota = scope.quota("search")
    await spent(quota)
    for _ in range(30):
        taking = [asyncio.ensure_future(quota.take()) for _ in range(4)]
        await asyncio.sleep(rng.uniform(0, 0.04))
        for each in taking:
            each.cancel()
        await asyncio.gather(*taking, return_exceptions=True)
    await until_waiting(quota, 0)


async def test_the_end_of_the_scope_ends_the_wait(rs, scope):
    quota = scope.quota("search")
    await spent(quota)
    other = await rs.scopes.create()
    waiting = asyncio.ensure_future(other.quota("search").take(timeout_ms=60_000))
    await until_waiting(quota, 1)
    await other.cancel()
    with pytest.raises(ScopeCancelledError):
        await waiting
    assert (await quota.status())["waiting"] == 0


async def test_after_a_lost_reply_the_same_request_is_sent_again():
    keys = []

    def script(request):
        if request.path.endswith("/by-name/search"):
            return Answer(200, {"id": "q"})
        keys.append((request.headers.get("idempotency-key"), request.body))
        return DROP if len(keys) < 5 else Answer(200, {"consumptionId": "c", "units": 1})

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            assert (await rs.scope("s").quota("search").take())["consumptionId"] == "c"
    assert len(keys) == 5
    assert len(set(keys)) == 1


async def test_units_that_come_while_the_wait_is_given_up_are_had():
    """The cancel finds that the waiter has been granted: its units are spent, so they are given to the
    caller after all."""

    def script(request):
        if request.path.endswith("/by-name/search"):
            return Answer(200, {"id": "q"})
        if request.path.endswith("/consume"):
            return Answer(429, {"error": {"code": "ALLOWANCE_EXHAUSTED", "message": "no", "requestId": "r"}})
        if request.path.endswith("/cancel"):
            return Answer(200, {"state": "GRANTED"})
        if any(each.path.endswith("/cancel") for each in peer.requests):
            return Answer(200, {"state": "GRANTED", "consumptionId": "c", "units": 1})
        return Answer(200, {"waiterId": "w", "state": "WAITING", "consumptionId": None})

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            taken = await rs.scope("s").quota("search").take(timeout_ms=300)
    assert taken == {"consumptionId": "c", "units": 1}


def test_the_blocking_face(here):
    with Runstate(**here.settings) as rs:
        rs.quotas.ensure("search", units_per_window=1, window_seconds=LONG_S)
        quota = rs.scopes.create().quota("search")
        assert quota.take()["units"] == 1
        assert quota.try_take() == {"kind": "exhausted"}
        with pytest.raises(WaitTimeoutError):
            quota.take(timeout_ms=200)
        assert quota.status()["waiting"] == 0
