import asyncio
import itertools
import threading
import time

import pytest

import runstate
from runstate import AsyncRunstate, ConfigError, CursorExpiredError, NotFoundError, Runstate
from tests.sdk.peer import DROP, Answer, Peer, refusal


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


async def taken(events, count):
    """So many of what is watched; then the watch is left."""
    found = []
    async for event in events:
        found.append(event)
        if len(found) == count:
            return found
    return found


async def test_a_list_is_a_page_and_a_watch_all_pages_each_event_with_its_own_cursor(rs):
    scopes = [await rs.scopes.create() for _ in range(3)]
    page = await rs.events.list(limit=2)
    assert len(page["events"]) == 2
    watched = await taken(rs.events.watch(types=["scope.created"], limit=1), 3)
    assert [event["aggregate"]["id"] for event in watched] == [scope.id for scope in scopes]
    resumed = await taken(rs.events.watch(cursor=watched[0]["cursor"]), 2)
    assert resumed == watched[1:]
    assert (await rs.events.list(cursor=watched[-1]["cursor"]))["events"] == []


async def test_filters_reach_the_server(rs):
    scope = await rs.scopes.create()
    below = await scope.child()
    await rs.scopes.create()
    for query in (
        {"aggregate": {"type": "scope", "id": below.id}},
        {"scope_id": below.id},
        {"scope_id": scope.id, "types": ["scope.created"], "aggregate": {"type": "scope", "id": below.id}},
    ):
        (event,) = await taken(rs.events.watch(**query), 1)
        assert event["scopeId"] == below.id
    with pytest.raises(NotFoundError):
        await taken(rs.events.watch(scope_id="none"), 1)
    for wrong in ({"types": "a.b"}, {"types": []}, {"aggregate": {"type": "scope"}}, {"wait_seconds": 31}):
        with pytest.raises(ConfigError):
            await taken(rs.events.watch(**wrong), 1)


async def test_a_watch_goes_on_with_what_comes_and_ends_at_once_when_its_flag_is_set(rs):
    cursor = (await rs.events.list())["nextCursor"]
    for stop in (asyncio.Event(), runstate.ThreadSafeEvent(), threading.Event()):
        watching = asyncio.ensure_future(taken(rs.events.watch(cursor=cursor, stop_event=stop), 5))
        scope = await rs.scopes.create()
        while not (await rs.events.list(cursor=cursor))["events"]:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.2, stop.set)
        seen = await watching
        assert time.monotonic() - began < 4  # not the five seconds that a watch is held
        assert [event["aggregate"]["id"] for event in seen] in ([scope.id], [])
        cursor = (await rs.events.list(cursor=cursor))["nextCursor"]


async def test_a_cancelled_watch_ends_at_once(rs):
    cursor = (await rs.events.list())["nextCursor"]
    watching = asyncio.ensure_future(taken(rs.events.watch(cursor=cursor), 1))
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(watching, 4)


async def test_a_watch_outlives_an_outage_and_goes_on_from_its_last_cursor():
    def page(name):
        event = {"eventId": name, "type": "x.y"}
        return Answer(200, {"events": [event], "nextCursor": f"after-{name}"})

    gone = [refusal(503, "UNAVAILABLE", Retry_After="0"), DROP, DROP, DROP, DROP]
    script = iter([page("a"), *gone, page("b")])
    with Peer(lambda _: next(script)) as peer:
        settings = {"base_url": peer.url, "space_id": "s", "api_key": "k" * 20}
        async with AsyncRunstate(**settings) as client:
            events = await taken(client.events.watch(), 2)
    assert [event["cursor"] for event in events] == ["after-a", "after-b"]  # of servers that give none each
    assert ["cursor=after-a" in request.path for request in peer.requests] == [False] + [True] * 6


async def test_an_expired_cursor_is_an_error_of_its_own(rs):
    await rs.scopes.create()
    with Peer(lambda _: refusal(410, "CURSOR_EXPIRED")) as peer:
        settings = {"base_url": peer.url, "space_id": "s", "api_key": "k" * 20}
        async with AsyncRunstate(**settings) as client:
            with pytest.raises(CursorExpiredError):
                await taken(client.events.watch(cursor="old"), 1)


def test_the_blocking_client_iterates_and_its_flag_ends_the_iteration(here):
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()
        for watch in (rs.watch, rs.events.watch):
            (event,) = itertools.islice(watch(types=["scope.created"]), 1)
            assert event["aggregate"]["id"] == scope.id
        stop = rs.new_event()
        threading.Timer(0.2, stop.set).start()
        cursor = rs.events.list()["nextCursor"]
        assert list(rs.watch(cursor=cursor, stop_event=stop)) == []


def test_the_events_of_a_run_are_its_own_from_its_beginning_to_its_end(here):
    other = here.run("other")
    other.run_id()
    below = runstate.child(name="below").run_id()
    threading.Timer(0.3, runstate.finish).start()
    told = list(runstate.run("default").events())
    assert [event["type"] for event in told] == ["scope.created", "scope.created", "scope.completed"]
    assert told[1]["aggregate"]["id"] == below
    assert list(other.events(types=["nothing.such"], signal=set_flag())) == []


def test_the_events_of_a_run_from_async_code(here):
    run = here.run("another")

    async def followed():
        seen = []
        async for event in run.aevents(types=["scope.created"]):
            seen.append(event["type"])
            await here.run("another").astop()
        return seen

    assert asyncio.run(followed()) == ["scope.created"]


def set_flag():
    flag = threading.Event()
    flag.set()
    return flag
