import asyncio
import threading
import time

import pytest

import runstate
from runstate import AsyncRunstate, AuthenticationError, Runstate, RunstateError
from tests.sdk.peer import Answer, Peer, refusal
from tests.sdk.workers import Call


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


@pytest.fixture
async def scope(rs):
    await rs.mailboxes.ensure("work")
    return await rs.scopes.create()


@pytest.fixture
async def consuming(scope):
    """consume(handler, ...) in a task, stopped at the end."""
    tasks, stop = [], asyncio.Event()

    def start(handler, **options):
        box = scope.mailbox("work")
        tasks.append(asyncio.ensure_future(box.consume(handler, stop_event=stop, **options)))
        return tasks[-1]

    start.stop = stop
    yield start
    stop.set()
    for task in tasks:
        await asyncio.wait_for(asyncio.wait({task}), 40)
        if not task.cancelled():
            task.exception()


async def test_what_returns_is_completed_and_its_value_is_not_recorded(scope, consuming):
    box, loop = scope.mailbox("work"), asyncio.get_running_loop()

    async def coroutine(data, delivery):
        assert asyncio.get_running_loop() is loop
        if data == "explicit":
            await delivery.complete(result={"payload": [data, delivery.attempt]})
        return "not recorded"

    consuming(coroutine)
    explicit, silent = await box.submit("explicit", key="a"), await box.submit("silent", key="b")
    assert (await explicit.result())["outcome"] == ["explicit", 1]
    assert await silent.result() == {"state": "SUCCEEDED", "outcome": None, "reason": None}


async def test_a_plain_handler_runs_in_a_thread(scope, consuming):
    seen = []
    consuming(
        lambda data, delivery: seen.append((data, threading.current_thread() is threading.main_thread()))
    )
    ticket = await scope.mailbox("work").submit("a", key="a")
    assert (await ticket.result())["outcome"] is None
    assert seen == [("a", False)]


async def test_what_raises_is_told_and_retried(scope, consuming):
    told = []

    async def handler(data, delivery):
        if delivery.attempt == 1:
            raise ValueError("not yet")

    async def on_error(error, delivery):
        told.append((str(error), delivery.attempt, delivery.data))
        raise RuntimeError("even this is survived")

    consuming(handler, on_error=on_error)
    ticket = await scope.mailbox("work").submit("a", key="a")
    assert (await ticket.result())["state"] == "SUCCEEDED"
    assert told == [("not yet", 1, "a")]
    assert (await ticket.status())["attempt"] == 2


async def test_what_is_rejected_stays_rejected(scope, consuming):
    async def handler(data, delivery):
        await delivery.reject()

    consuming(handler, on_error=lambda error, delivery: None)
    ticket = await scope.mailbox("work").submit("a", key="a")
    assert (await ticket.result())["reason"] == "rejected"


async def test_as_many_at_once_as_asked_for_and_leases_are_renewed(scope, consuming):
    now, most = 0, 0

    async def handler(data, delivery):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1.5)
        now -= 1
        await delivery.complete(result={"payload": delivery.attempt})

    consuming(handler, concurrency=3, lease_seconds=1)
    tickets = [await scope.mailbox("work").submit(i, key=str(i)) for i in range(6)]
    assert [(await ticket.result())["outcome"] for ticket in tickets] == [1] * 6
    assert most == 3


async def test_without_long_polls_it_asks_every_poll_ms():
    asked = []

    def script(request):
        asked.append((time.monotonic(), request.json))
        return Answer(204, b"")

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            stop = asyncio.Event()
            box = rs.scope("s").mailbox_by_id("m")
            consuming = asyncio.ensure_future(box.consume(print, wait_ms=0, poll_ms=100, stop_event=stop))
            await asyncio.to_thread(peer.arrived, 5)
            stop.set()
            await consuming
    assert all("waitMs" not in body for _, body in asked)
    assert asked[4][0] - asked[0][0] > 0.25


# ------------------------------------------------------------------------------ the end


async def test_a_stop_waits_for_what_is_under_way_and_takes_no_more(scope, consuming):
    inside, release = asyncio.Event(), asyncio.Event()

    async def handler(data, delivery):
        inside.set()
        await release.wait()

    task = consuming(handler)
    first = await scope.mailbox("work").submit(1, key="1")
    await inside.wait()
    second = await scope.mailbox("work").submit(2, key="2")
    consuming.stop.set()
    await asyncio.sleep(0.5)
    assert not task.done()
    release.set()
    await asyncio.wait_for(task, 10)
    assert (await first.result())["state"] == "SUCCEEDED"
    assert (await second.status())["state"] == "QUEUED"


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_what_is_unfinished_is_handed_back_without_costing_an_attempt(scope, consuming, how):
    inside, ended = asyncio.Event(), []

    async def handler(data, delivery):
        inside.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    task = consuming(handler, shutdown_timeout=0.2)
    ticket = await scope.mailbox("work").submit(1, key="1")
    await inside.wait()
    consuming.stop.set() if how == "timeout" else task.cancel()
    await asyncio.wait_for(asyncio.wait({task}), 10)
    assert task.cancelled() is (how == "cancel")
    assert ended == [True]
    view = await ticket.status()
    assert (view["state"], view["attempt"]) == ("QUEUED", 0)


async def test_the_end_of_the_scope_ends_it(scope, consuming):
    task = consuming(lambda data, delivery: None)
    await asyncio.sleep(0.2)  # it may be waiting by now; the promise holds either way
    await scope.cancel()
    await asyncio.wait_for(task, 10)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_in_a_handler_end_it(here, kind):
    """An interrupt says nothing about the work and costs no attempt; an exit does."""
    with Runstate(**here.settings) as rs:
        rs.mailboxes.ensure("work")
        box = rs.scopes.create().mailbox("work")
        ticket = box.submit(1, key="a")

        def handler(data, delivery):
            raise kind

        outcome = Call(lambda: box.consume(handler, on_error=lambda *_: None)).outcome
        assert isinstance(outcome, kind)
        assert ticket.status()["state"] == "QUEUED"
        assert ticket.status()["attempt"] == (0 if kind is KeyboardInterrupt else 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(401, "UNAUTHENTICATED"), AuthenticationError),
        (refusal(404, "NOT_FOUND"), runstate.NotFoundError),
    ],
)
async def test_what_cannot_be_waited_out_is_raised(answer, error):
    with Peer(lambda request: answer) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            with pytest.raises(error):
                await rs.scope("s").mailbox_by_id("m").consume(print)


async def test_everything_else_is_waited_out(here):
    trouble = [
        refusal(503, "UNAVAILABLE"),
        refusal(500, "INTERNAL"),
        refusal(400, "VALIDATION_FAILED"),
        "drop",
    ]
    left = list(trouble)

    def script(request):
        return left.pop() if left else refusal(409, "DEADLINE_EXCEEDED")

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            await rs.scope("s").mailbox_by_id("m").consume(print, poll_ms=10)
    assert left == []


async def test_options_that_cannot_be_used_are_refused(scope):
    for wrong in ({"concurrency": 0}, {"wait_ms": 30_001}, {"lease_seconds": 0.5}, {"poll_ms": -1}):
        with pytest.raises(RunstateError):
            await scope.mailbox("work").consume(print, **wrong)


# ------------------------------------------------------------------------------ the blocking client


def test_the_blocking_client_s_handlers_get_the_async_objects(here):
    with Runstate(**here.settings) as rs:
        rs.mailboxes.ensure("work")
        box = rs.scopes.create().mailbox("work")
        stop = rs.new_event()

        async def handle(data, delivery):
            await delivery.complete(result={"payload": {"doubled": data["n"] * 2}})

        consumer = Call(lambda: box.consume(handle, stop_event=stop))
        tickets = [box.submit({"n": n}, key=str(n)) for n in range(3)]
        assert [t.result()["outcome"] for t in tickets] == [{"doubled": 2 * n} for n in range(3)]
        stop.set()
        assert consumer.outcome is None


def test_a_plain_handler_may_call_the_blocking_client(here):
    with Runstate(**here.settings) as rs:
        rs.mailboxes.ensure("work")
        box = rs.scopes.create().mailbox("work")
        stop = threading.Event()
        seen = []

        def handle(data, delivery):
            seen.append(box.submit("more", key="more").id)
            stop.set()

        ticket = box.submit("a", key="a")
        box.consume(handle, stop_event=stop)
        assert ticket.result()["state"] == "SUCCEEDED"
        assert set(seen) == {box.submit("more", key="more").id}
