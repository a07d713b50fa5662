import asyncio
import threading

import pytest

import runstate
from runstate import AsyncRunstate, AuthenticationError, NotFoundError, Runstate, StoppedError
from tests.support import spaces

UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


async def test_a_run_shows_who_holds_what(rs):
    scope = await rs.scopes.create(name="nightly")
    await rs.mailboxes.ensure("work")
    await scope.mailbox("work").submit({}, key="a")
    lease = await scope.claim("k").acquire()
    found = await rs.diagnostics.run(scope.id)
    assert found["rootScopeId"] == scope.id
    assert found["scope"] == await scope.status()
    assert [(w["holder"], w["keys"]) for w in found["workers"]] == [("me", ["k"])]
    assert [(q["name"], q["ready"]) for q in found["queues"]] == [("work", 1)]
    assert found["tasks"]["QUEUED"] == 1
    assert await rs.diagnostics.workers(scope.id) == found["workers"]
    await lease.release()
    assert await rs.diagnostics.workers(scope.id) == []
    assert (await rs.diagnostics.summary())["queues"]["ready"] == 1
    with pytest.raises(NotFoundError):
        await rs.diagnostics.run(UNKNOWN)


async def test_who_waits_is_told_with_the_reason(here, rs):
    scope = await rs.scopes.create()
    lease = await scope.claim("k").acquire()
    async with AsyncRunstate(**here.settings, holder="other") as other:
        waiting = asyncio.create_task(other.scope(scope.id).claim("k").acquire(wait=True))
        while not (waits := (await rs.diagnostics.waits())["waits"]):
            assert not waiting.done()
            await asyncio.sleep(0.05)
        (wait,) = waits
        assert (wait["kind"], wait["resource"], wait["holder"], wait["cycle"]) == (
            "claim",
            "k",
            "other",
            None,
        )
        assert [blocker["holder"] for blocker in wait["blockedBy"]] == ["me"]
        assert wait["why"].startswith('claim "k" is held by "me" until 20')
        await lease.release()
        await (await waiting).release()


def test_the_blocking_client_has_them_too(here):
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()
        assert rs.diagnostics.run(scope.id)["rootScopeId"] == scope.id
        assert rs.diagnostics.workers(scope.id) == rs.diagnostics.waits()["waits"] == []


def test_status_is_what_goes_on_in_the_run(here):
    inside, leave = threading.Event(), threading.Event()

    @runstate.once
    def work():
        inside.set()
        assert leave.wait(30)

    calling = threading.Thread(target=work)
    calling.start()
    try:
        assert inside.wait(30)
        found = runstate.status()
        assert found["scope"]["name"] == "default"
        (worker,) = found["workers"]
        assert [key.partition(":")[0] for key in worker["keys"]] == ["work"]
        assert asyncio.run(runstate.astatus())["rootScopeId"] == runstate.run_id()
    finally:
        leave.set()
        calling.join()
    assert runstate.status()["workers"] == []


def test_status_of_a_child_shows_what_is_below_it_alone(here):
    parent = here.run()
    child = parent.child(name="part")
    found = child.status()
    assert (found["rootScopeId"], found["scope"]["id"]) == (parent.run_id(), child.run_id())
    parent.stop()
    with pytest.raises(StoppedError):
        parent.status()


def test_a_key_that_may_not_observe_is_told_so(here, database_url, space):
    worker = spaces.limited(database_url, space, "runtime")
    run = here.run(api_key=worker.key)
    with pytest.raises(AuthenticationError, match="'observe'") as caught:
        run.status()
    assert caught.value.code == "FORBIDDEN"
    assert run.run_id()  # it may work all the same
