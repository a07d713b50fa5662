import asyncio
import random
import time

import pytest

from runstate import (
    AsyncRunstate,
    AuthenticationError,
    BudgetExceededError,
    ConfigError,
    ConflictError,
    NotFoundError,
    Runstate,
    RunstateError,
    ScopeCancelledError,
)
from tests.sdk.peer import DROP, Answer, Peer
from tests.support import spaces

GONE_S_MAX = 15


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        await client.budgets.ensure("model-usd", currency="USD", scale=2, limit="10.00")
        yield client


@pytest.fixture
async def scope(rs):
    return await rs.scopes.create()


async def books(budget):
    seen = await budget.status()
    return tuple(int(seen[f"{word}Minor"]) for word in ("reserved", "settled", "available", "overrun"))


# ------------------------------------------------------------------------------ settings and names


async def test_ensure_creates_or_checks_and_names_both_settings(rs):
    view = await rs.budgets.ensure("new", currency="EUR", scale=3, limit="1.5")
    assert (view["name"], view["currency"], view["scale"], view["limitMinor"]) == ("new", "EUR", 3, "1500")
    assert await rs.budgets.ensure("new", currency="EUR", scale=3, limit="1.500") == view
    for other, words in (
        ({"limit": "1.501"}, r"1500.*1501"),
        ({"currency": "USD"}, r"EUR.*USD"),
        ({"scale": 2, "limit": "15"}, r"scale 3.*2"),
    ):
        with pytest.raises(ConflictError, match=words) as caught:
            await rs.budgets.ensure("new", **{"currency": "EUR", "scale": 3, "limit": "1.5", **other})
        assert caught.value.code == "CONFLICT"
    for wrong in ({"limit": "0.0001"}, {"limit": "-1"}, {"limit": "1e3"}, {"scale": 10}, {"scale": 1.5}):
        with pytest.raises(ConfigError):
            await rs.budgets.ensure("new", **{"currency": "EUR", "scale": 3, "limit": "1.5", **wrong})
    for wrong in ({"currency": "eur"}, {"limit": str(10**16)}):
        with pytest.raises(RunstateError) as caught:
            await rs.budgets.ensure("other", **{"currency": "EUR", "scale": 3, "limit": "1.5", **wrong})
        assert caught.value.code == "VALIDATION_FAILED"


async def test_a_key_that_may_not_create_checks_what_is_there(here, rs, space, database_url):
    key = spaces.limited(database_url, space, "runtime").key
    settings = {"currency": "USD", "scale": 2, "limit": "10.00"}
    async with AsyncRunstate(**{**here.settings, "api_key": key}) as limited:
        assert (await limited.budgets.ensure("model-usd", **settings))["limitMinor"] == "1000"
        with pytest.raises(AuthenticationError):
            await limited.budgets.ensure("missing", **settings)


async def test_unknown_budgets_are_told_and_none_is_created(rs, scope):
    budget = scope.budget("missing")
    assert budget.scope_id == scope.id
    for call in (budget.status, lambda: budget.reserve(amount="1")):
        with pytest.raises(NotFoundError):
            await call()
    for name in ("", "a" * 257, "a\0"):
        with pytest.raises(ConfigError):
            scope.budget(name)


# ------------------------------------------------------------------------------ reserve, settle, void


async def test_money_is_reserved_settled_in_parts_and_given_back(scope):
    budget = scope.budget("model-usd")
    it = await budget.reserve(amount="2.50")
    assert (it.reserved_minor, it.state, it.reserved) == ("250", "ACTIVE", "2.50")
    assert "2.50" in repr(it)
    assert await books(budget) == (250, 0, 750, 0)
    told = await it.settle(amount="1.25", usage_key="job-1")
    assert told == {
        "entryId": told["entryId"],
        "reservedMinor": "125",
        "state": "ACTIVE",
        "replay": False,
        "chargedMinor": "125",
        "overrunMinor": "0",
    }
    assert await it.settle(amount="1.25", usage_key="job-1") == told | {"replay": True}
    assert (await it.void(usage_key="job-1"))["state"] == "VOIDED"
    assert await books(budget) == (0, 125, 875, 0)
    with pytest.raises(ConflictError):
        await it.settle(amount="0.01", usage_key="late")
    assert it.state == "ACTIVE"  # as of reserve()


async def test_more_than_is_left_is_an_error_of_its_own(scope):
    budget = scope.budget("model-usd")
    await budget.reserve(amount="9.99")
    with pytest.raises(BudgetExceededError, match="model-usd") as caught:
        await budget.reserve(amount="0.02")
    assert (caught.value.code, caught.value.status) == ("INSUFFICIENT_BUDGET", 409)
    with pytest.raises(ConfigError):
        await budget.reserve(amount="0.001")
    with pytest.raises(RunstateError) as caught:
        await budget.reserve(amount="0")
    assert caught.value.code == "VALIDATION_FAILED"


async def test_more_than_is_reserved_is_refused(scope):
    it = await scope.budget("model-usd").reserve(amount="1")
    with pytest.raises(ConflictError, match=r"100.*101"):
        await it.settle(amount="1.01", usage_key="k")
    for amount in ("1.001", "-1", "", None):
        with pytest.raises(ConfigError):
            await it.settle(amount=amount, usage_key="k")


async def test_past_settle_by_its_money_is_back_and_it_can_be_settled_late(scope):
    budget = scope.budget("model-usd")
    it = await budget.reserve(amount="4", settle_by="2001-01-01T00:00:00Z")
    assert await books(budget) == (0, 0, 1000, 0)
    assert (await budget.status())["reservations"][0]["state"] == "STALE"
    assert (await it.settle(amount="1", usage_key="k"))["state"] == "ACTIVE"
    assert await books(budget) == (300, 100, 600, 0)


async def test_an_ended_scope_reserves_no_more_and_settles_what_it_has(scope):
    it = await scope.budget("model-usd").reserve(amount="1")
    await scope.cancel()
    with pytest.raises(ScopeCancelledError):
        await scope.budget("model-usd").reserve(amount="1")
    assert (await it.settle(amount="1", usage_key="k"))["state"] == "SETTLED"


# ------------------------------------------------------------------------------ leaving nothing behind


async def test_whatever_the_instant_a_cancelled_reserve_leaves_nothing_reserved(scope):
    rng = random.Random(7)
    budget = scope.budget("model-usd")
    for _ in range(30):
        reserving = [asyncio.ensure_future(budget.reserve(amount="0.05")) for _ in range(4)]
        await asyncio.sleep(rng.uniform(0, 0.03))
        for each in reserving:
            each.cancel()
        for found in await asyncio.gather(*reserving, return_exceptions=True):
            if not isinstance(found, BaseException):
                await found.void(usage_key=found.id)

    ends_at = time.monotonic() + GONE_S_MAX
    while (reserved := (await books(budget))[0]) != 0:
        assert time.monotonic() < ends_at, f"{reserved} minor units are still reserved"
        await asyncio.sleep(0.02)


async def test_after_a_lost_reply_the_same_request_is_sent_again():
    keys = []

    def script(request):
        if request.path.endswith("/by-name/usd"):
            return Answer(200, {"id": "b", "name": "usd", "currency": "USD", "scale": 2})
        keys.append((request.headers.get("idempotency-key"), request.body))
        answer = {"reservationId": "r", "reservedMinor": "100", "state": "ACTIVE"}
        return DROP if len(keys) < 3 else Answer(200, answer)

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            assert (await rs.scope("s").budget("usd").reserve(amount="1")).id == "r"
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_the_blocking_face(here):
    with Runstate(**here.settings) as rs:
        rs.budgets.ensure("usd", currency="USD", scale=2, limit="1.00")
        budget = rs.scopes.create().budget("usd")
        it = budget.reserve(amount="0.75")
        assert (it.reserved, it.reserved_minor) == ("0.75", "75")
        assert it.settle(amount="0.5", usage_key="k")["chargedMinor"] == "50"
        assert it.void(usage_key="k")["state"] == "VOIDED"
        assert budget.status()["availableMinor"] == "50"
