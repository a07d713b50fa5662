import asyncio
import gc
import threading

import pytest

import runstate
from runstate import (
    AsyncRunstate,
    AuthenticationError,
    ConfigError,
    ConflictError,
    NotFoundError,
    Runstate,
    ScopeCancelledError,
)


def asynchronously(here, work, **settings):
    async def main():
        async with AsyncRunstate(**here.settings, **settings) as rs:
            return await work(rs)

    return asyncio.run(main())


def test_a_scope_is_created_seen_and_ended_with_everything_below_it(here):
    async def work(rs):
        run = await rs.scopes.create(name="nightly", child_limit=2)
        child = await run.child(name="part", deadline="2100-01-01T00:00:00+01:00")
        below = await rs.scopes.create(parent_id=child.id)
        assert (await child.status())["deadline"] == "2099-12-31T23:00:00.000Z"
        assert (await rs.scope(below.id).status())["rootId"] == run.id
        ended = await child.cancel()
        assert (ended["id"], ended["state"], ended["version"]) == (child.id, "CANCELLED", 2)
        assert ended["ended"]["scopes"] == 2
        assert await child.cancel() == ended
        with pytest.raises(ConflictError):
            await child.complete()
        assert (await below.status())["effective"] == "CANCELLED"
        with pytest.raises(ScopeCancelledError):
            await below.child()
        await run.child()
        with pytest.raises(ConflictError):
            await run.child()
        assert (await run.complete())["state"] == "COMPLETED"
        return await run.status()

    view = asynchronously(here, work)
    assert (view["name"], view["storedState"], view["effective"]) == ("nightly", "COMPLETED", "COMPLETED")


def test_what_is_not_there_or_not_ours_is_said_so(here):
    async def work(rs):
        for scope_id in ("nowhere", ".", "..", "a/b", "é"):
            with pytest.raises(NotFoundError):
                await rs.scope(scope_id).status()
        with pytest.raises(AuthenticationError) as caught:
            await rs.with_space("elsewhere").scopes.create()
        assert (caught.value.code, caught.value.status) == ("FORBIDDEN", 403)
        assert caught.value.request_id

    asynchronously(here, work)


def test_a_client_in_another_space_shares_identity_and_outlives_it(here):
    async def work(rs):
        other = rs.with_space("other")
        assert (other.space_id, rs.space_id) == ("other", here.space_id)
        assert other._space.transport is rs._space.transport
        await other.aclose()
        await rs.scopes.create()
        with pytest.raises(ConfigError):
            rs.with_space("a/b")

    asynchronously(here, work)


def test_a_closed_client_says_so(here):
    async def main():
        rs = AsyncRunstate(**here.settings)
        await rs.scopes.create()
        await rs.aclose()
        with pytest.raises(ConfigError, match="closed"):
            await rs.scopes.create()

    asyncio.run(main())
    rs = Runstate(**here.settings)
    rs.scopes.create()
    rs.close()
    rs.close()
    with pytest.raises(ConfigError, match="closed"):
        rs.scopes.create()


def test_the_blocking_client_does_the_same_without_await(here):
    with Runstate(**here.settings, holder="nightly-report") as rs:
        run = rs.scopes.create(name="n")
        child = run.child()
        assert child.status()["parentId"] == run.id
        assert rs.scope(child.id).cancel()["state"] == "CANCELLED"
        assert run.complete()["state"] == "COMPLETED"
        assert isinstance(rs.with_space("x"), Runstate)
        assert rs.with_space("x").space_id == "x"
        assert rs.space_id == here.space_id
        with pytest.raises(AttributeError):
            _ = rs.nothing_like_it
        with pytest.raises(TypeError):
            run.child("positional")


def test_closing_a_blocking_client_in_another_space_leaves_the_original_open(here):
    with Runstate(**here.settings) as rs:
        with rs.with_space(here.space_id) as other:
            other.scopes.create()
        rs.scopes.create()


def test_the_blocking_client_works_while_a_loop_runs_here_and_from_many_threads(here):
    with Runstate(**here.settings) as rs:

        async def main():
            return rs.scopes.create().id

        ids = [asyncio.run(main())]
        threads = [threading.Thread(target=lambda: ids.append(rs.scopes.create().id)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(ids)) == 11


def test_calling_the_blocking_client_from_its_own_loop_is_a_config_error(here):
    with Runstate(**here.settings) as rs:

        async def on_its_loop():
            return rs.scopes.create()

        with pytest.raises(ConfigError, match="own event loop"):
            rs._loop.run(on_its_loop())


def test_a_client_dropped_without_close_ends_its_thread(here):
    rs = Runstate(**here.settings)
    rs.scopes.create()
    thread = rs._loop.background._thread
    assert thread.is_alive()
    del rs
    thread.join(30)
    assert not thread.is_alive()


def test_what_a_client_has_made_keeps_it_alive(here):
    scope = Runstate(**here.settings).scopes.create()
    claim = scope.child().claim("key")
    thread = scope._loop.background._thread
    del scope
    gc.collect()
    with Runstate(**here.settings) as other:
        assert claim.acquire().key == "key"
        assert other.with_space(here.space_id).scope(claim.scope_id).status()["effective"] == "ACTIVE"
    del claim
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_constructing_a_client_asks_nobody():
    settings = {"api_key": "k", "space_id": "s", "base_url": "http://127.0.0.1:1"}
    assert runstate.AsyncRunstate(**settings).scope("x").id == "x"
    assert Runstate(**settings).scope("x").id == "x"
