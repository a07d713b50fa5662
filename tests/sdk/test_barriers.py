"""Barriers of the object graph: both faces, the end of the scope, resets, servers that are away."""

import asyncio

import pytest

from runstate import AsyncRunstate, ConfigError, ConflictError, NotFoundError, Runstate, WaitTimeoutError
from tests.sdk.callers import in_thread
from tests.sdk.peer import DROP, Answer, Peer, refusal


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


@pytest.fixture
async def scope(rs):
    return await rs.scopes.create()


async def test_who_waits_goes_on_when_the_last_has_arrived(scope):
    meeting = await scope.barriers.create(target=2)
    assert await meeting.arrive(key="a") == {"state": "WAITING", "arrivals": 1, "epoch": 1}
    assert await meeting.arrive(key="a") == {"state": "WAITING", "arrivals": 1, "epoch": 1}
    waiting = asyncio.create_task(meeting.wait())
    again = asyncio.create_task(scope.barriers.get(meeting.id).wait())
    other = scope.barriers.get(meeting.id)
    assert await other.arrive(key="b") == {"state": "RELEASED", "arrivals": 2, "epoch": 1}
    view = await waiting
    assert (view["state"], view["arrivals"], view["target"], view["scopeId"]) == ("RELEASED", 2, 2, scope.id)
    assert await again == view == await other.status() == await other.wait()
    with pytest.raises(ConflictError) as caught:
        await other.arrive(key="c")
    assert caught.value.code == "BARRIER_RELEASED"


async def test_a_wait_that_runs_out_says_so(scope):
    meeting = await scope.barriers.create(target=2)
    with pytest.raises(WaitTimeoutError, match=meeting.id):
        await meeting.wait(timeout_ms=200)
    assert (await meeting.status())["state"] == "WAITING"


async def test_a_barrier_that_is_cancelled_ends_the_wait_with_a_conflict(scope):
    meeting = await scope.barriers.create(target=2)
    waiting = asyncio.create_task(meeting.wait())
    await in_line(scope, meeting)
    await scope.cancel()
    for wait in (waiting, meeting.wait()):
        with pytest.raises(ConflictError) as caught:
            await wait
        assert (caught.value.code, caught.value.status) == ("BARRIER_CANCELLED", 0)


async def in_line(scope, meeting):
    """Waits until somebody is known to wait for it."""
    wanted = ("barrier", meeting.id)
    while not any(
        (wait["kind"], wait["permit"]) == wanted
        for wait in (await scope._space.call("GET", "ops", "runs", scope.id))["waiting"]
    ):
        await asyncio.sleep(0.02)


async def test_whoever_arrived_and_missed_the_release_goes_on_after_the_reset(scope, space, server):
    meeting = await scope.barriers.create(target=2)
    await meeting.arrive(key="a")
    await scope.barriers.get(meeting.id).arrive(key="b")
    with space.client(server.url) as api:
        api.post(f"/barriers/{meeting.id}/reset").raise_for_status()
    view = await meeting.wait(timeout_ms=30_000)
    assert (view["state"], view["epoch"], view["arrivals"]) == ("WAITING", 2, 0)
    with pytest.raises(WaitTimeoutError):  # of the epoch it has not arrived in
        await meeting.wait(timeout_ms=100)


async def test_a_reset_ends_a_wait_under_way(scope, space, server):
    meeting = await scope.barriers.create(target=2)
    waiting = asyncio.create_task(meeting.wait())
    await in_line(scope, meeting)
    with space.client(server.url) as api:
        api.post(f"/barriers/{meeting.id}/reset").raise_for_status()
    assert (await waiting)["epoch"] == 2


async def test_what_cannot_be_is_refused(scope):
    for target in (0, 10_001, 1.5, True, "3", None):
        with pytest.raises(ConfigError, match="target"):
            await scope.barriers.create(target=target)
    meeting = await scope.barriers.create(target=1)
    for key in ("", "x" * 513, None, "a\0"):
        with pytest.raises(ConfigError, match="key"):
            await meeting.arrive(key=key)
    with pytest.raises(NotFoundError):
        await scope.barriers.get("missing").status()


def test_the_blocking_face_has_the_same_members(here):
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()
        meeting = scope.barriers.create(target=2)
        meeting.arrive(key="a")
        thread = in_thread(meeting.wait)
        assert scope.barriers.get(meeting.id).arrive(key="b")["state"] == "RELEASED"
        thread.join(60)
        assert thread.outcome == meeting.status()


@pytest.mark.parametrize(
    "trouble", [DROP, refusal(503, "UNAVAILABLE"), refusal(429, "RATE_LIMITED", retry_after="0.01")]
)
async def test_a_server_that_is_away_is_not_yet(trouble):
    waiting = {"id": "b", "state": "WAITING", "epoch": 1, "arrivals": 1, "target": 2}
    done = Answer(200, waiting | {"state": "RELEASED", "arrivals": 2})
    said = iter([trouble, Answer(200, waiting), trouble, Answer(200, waiting), done])
    with Peer(lambda _: next(said)) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url, retries=0) as rs:
            view = await rs.scope("x").barriers.get("b").wait(timeout_ms=30_000, poll_ms=10)
    assert view["state"] == "RELEASED"
    assert next(said, None) is None
