import asyncio
import gc
import random
import time

import pytest

from runstate import (
    AdmittedWork,
    AsyncRunstate,
    AuthenticationError,
    ConflictError,
    Delivery,
    LeaseLostError,
    NotFoundError,
    Runstate,
    TaskRequirements,
    TaskTicket,
    UnavailableError,
    WaitTimeoutError,
)
from tests.sdk.peer import Answer, Peer, refusal


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        yield client


@pytest.fixture
async def scope(rs):
    await rs.mailboxes.ensure("work")
    return await rs.scopes.create()


async def test_ensure_creates_or_returns_what_matches(rs):
    made = await rs.mailboxes.ensure("a/b ü", mode="INBOX", backlog_limit=5)
    assert (made["name"], made["mode"], made["backlogLimit"], made["maxAttempts"]) == ("a/b ü", "INBOX", 5, 5)
    assert await rs.mailboxes.ensure("a/b ü") == made
    assert await rs.mailboxes.ensure("a/b ü", mode="INBOX") == made
    for other in ({"mode": "WORK"}, {"backlog_limit": 6}):
        with pytest.raises(ConflictError, match="not"):
            await rs.mailboxes.ensure("a/b ü", **other)
    assert (await rs.mailboxes.ensure("plain"))["mode"] == "WORK"
    found = await asyncio.gather(*[rs.mailboxes.ensure("race", mode="INBOX") for _ in range(8)])
    assert len({each["id"] for each in found}) == 1


async def test_a_key_that_may_not_create_verifies_what_is_there():
    view = {"id": "m1", "name": "work", "mode": "WORK", "backlogLimit": None, "maxAttempts": 5}

    def script(request):
        if request.method == "GET":
            return Answer(200, {"mailboxes": [view], "nextCursor": None})
        return refusal(403, "FORBIDDEN", "this key lacks the permission 'resource_config'")

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as rs:
            assert await rs.mailboxes.ensure("work", mode="WORK") == view
            with pytest.raises(ConflictError):
                await rs.mailboxes.ensure("work", mode="INBOX")
            with pytest.raises(AuthenticationError):
                await rs.mailboxes.ensure("other")


async def test_a_name_is_looked_up_once_and_never_created(rs, scope):
    for verb in (
        lambda box: box.send(1),
        lambda box: box.submit(1, key="k"),
        lambda box: box.receive(),
        lambda box: box.admit(),
        lambda box: box.consume(print),
    ):
        with pytest.raises(NotFoundError, match="'nowhere'"):
            await verb(scope.mailbox("nowhere"))
    assert [each["name"] for each in (await rs._space.call("GET", "mailboxes"))["mailboxes"]] == ["work"]
    asked = []

    def script(request):
        asked.append(request.path)
        if request.method == "GET":
            return Answer(200, {"mailboxes": [{"id": "m1", "name": "work"}], "nextCursor": None})
        return Answer(201, {"id": "1", "replay": False})

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url) as client:
            for _ in range(2):
                await client.scope("s").mailbox("work").send(1)
    assert asked == ["/v1/spaces/s/mailboxes", *["/v1/spaces/s/mailboxes/m1/messages"] * 2]


async def test_messages_are_sent_received_and_settled(scope):
    box = scope.mailbox("work")
    assert box.scope_id == scope.id
    sent = await box.send({"n": 1}, work_key="one")
    assert sent == {"id": sent["id"], "replay": False}
    assert await box.send({"n": 2}, work_key="one") == {"id": sent["id"], "replay": True}
    delivery = await box.receive()
    assert isinstance(delivery, Delivery)
    assert (delivery.data, delivery.id, delivery.attempt, delivery.scope_id) == (
        {"n": 1},
        sent["id"],
        1,
        scope.id,
    )
    await delivery.renew()
    await delivery.renew(60)
    await delivery.retry()
    for settle in (delivery.retry, delivery.reject, delivery.complete):
        await settle()  # settled: nothing
    again = await box.receive(wait_ms=5_000)
    assert (again.id, again.attempt) == (sent["id"], 2)
    await again.reject()
    assert await box.receive() is None
    with pytest.raises(LeaseLostError):
        await again.renew()


async def test_of_two_settles_at_the_same_time_the_first_counts(scope):
    box = scope.mailbox("work")
    ticket = await box.submit(1, key="a")
    delivery = await box.receive()
    await asyncio.gather(delivery.complete(result={"payload": "done"}), delivery.retry(), delivery.reject())
    assert await ticket.result() == {"state": "SUCCEEDED", "outcome": "done", "reason": None}


async def test_a_settle_that_failed_may_be_repeated():
    message = {"id": "m1", "payload": 1, "attempt": 1, "scopeId": "s", "deadline": None, "taskId": None}
    keys = []

    def script(request):
        if request.path.endswith("/recv"):
            return Answer(
                200, {"message": message, "token": "t", "leaseExpiresAt": "2030-01-01T00:00:00.000Z"}
            )
        keys.append(request.headers["idempotency-key"])
        return refusal(503, "UNAVAILABLE") if len(keys) < 3 else Answer(200, {"state": "ACKED"})

    with Peer(script) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url, retries=0) as rs:
            delivery = await rs.scope("s").mailbox_by_id("m").receive()
            for _ in range(2):
                with pytest.raises(UnavailableError):
                    await delivery.complete()
            for _ in range(2):
                await delivery.complete()
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_receive_waits_for_what_is_sent(scope):
    box = scope.mailbox("work")
    waiting = asyncio.ensure_future(box.receive(wait_ms=20_000))
    await asyncio.sleep(0.2)  # it may be waiting by now; the promise holds either way
    await box.send("a")
    delivery = await asyncio.wait_for(waiting, 10)
    assert delivery.data == "a"
    await delivery.complete()
    started = time.monotonic()
    assert await box.receive(wait_ms=300) is None
    assert time.monotonic() - started >= 0.25


async def test_complete_sends_a_reply_on(rs, scope):
    await rs.mailboxes.ensure("replies")
    replies = (await rs.mailboxes.ensure("replies"))["id"]
    box = scope.mailbox("work")
    await box.send("a")
    delivery = await box.receive()
    await delivery.complete(
        result={"payload": ["re", delivery.data], "mailboxId": replies, "workKey": "re-a"}
    )
    reply = await scope.mailbox_by_id(replies).receive()
    assert reply.data == ["re", "a"]


async def test_a_task_keeps_its_outcome_for_all_who_ask(rs, scope):
    box = scope.mailbox("work")
    ticket = await box.submit({"n": 1}, key="one", subscriber_id="me")
    assert isinstance(ticket, TaskTicket)
    assert (await box.submit({"n": 2}, key="one")).id == ticket.id
    assert (await ticket.status())["input"] == {"n": 1}
    with pytest.raises(WaitTimeoutError):
        await ticket.result(timeout_ms=200)
    with pytest.raises(WaitTimeoutError):
        await ticket.await_admission(timeout_ms=200)
    waiting = asyncio.gather(
        ticket.result(), scope.task(ticket.id).result(), ticket.await_admission(poll_ms=20)
    )
    work = await box.admit(wait_ms=5_000)
    assert isinstance(work, AdmittedWork)
    assert (work.task.id, work.attempt, work.delivery.data) == (ticket.id, 1, {"n": 1})
    assert work.resources == {"grants": [], "consumptions": [], "reservations": []}
    assert await ticket.join("you", scope.id) == {"subscribers": 2}
    assert await ticket.detach("you") == {"subscribers": 1}
    await work.delivery.complete(result={"payload": ["done", 1]})
    done = {"state": "SUCCEEDED", "outcome": ["done", 1], "reason": None}
    first, second, admitted = await waiting
    assert first == second == done
    assert admitted["state"] in {"RUNNING", "SUCCEEDED"}
    assert (await ticket.cancel("too late"))["state"] == "SUCCEEDED"


async def test_a_task_that_does_not_succeed_says_why(scope):
    box = scope.mailbox("work")
    cancelled, rejected, late = [await box.submit(1, key=key) for key in ("a", "b", "c")]
    assert (await cancelled.cancel("no longer wanted"))["state"] == "CANCELLED"
    assert await cancelled.result() == {"state": "CANCELLED", "outcome": None, "reason": "no longer wanted"}
    await (await box.receive()).reject()
    assert await rejected.result() == {"state": "FAILED", "outcome": None, "reason": "rejected"}
    await scope.complete()
    assert (await late.result())["reason"] == "scope_completed"


async def test_admit_renews_until_it_is_settled_or_dropped(scope):
    box = scope.mailbox("work")
    ticket = await box.submit(1, key="a")
    work = await box.admit(lease_seconds=1)
    time.sleep(2)  # noqa: ASYNC251 - this loop stands still
    assert await box.admit(wait_ms=500) is None
    del work
    gc.collect()
    again = await box.admit(wait_ms=10_000)
    assert (again.task.id, again.attempt) == (ticket.id, 2)
    await again.delivery.complete()
    assert (await ticket.result())["state"] == "SUCCEEDED"


@pytest.mark.parametrize("verb", ["receive", "admit"])
async def test_whatever_the_instant_one_that_is_cancelled_leaves_nothing_leased(scope, verb):
    rng = random.Random(7)
    mailbox = scope.mailbox("work")
    task = await mailbox.submit("a", key="a")
    take = getattr(mailbox, verb)
    for _ in range(40):
        taking = [asyncio.ensure_future(take(wait_ms=1000)) for _ in range(2)]
        await asyncio.sleep(rng.uniform(0, 0.04))
        for each in taking:
            each.cancel()
        for found in await asyncio.gather(*taking, return_exceptions=True):
            if isinstance(found, Delivery):
                await found._held.settle("nack", retry=True, handBack=True)
            elif isinstance(found, AdmittedWork):
                await found.delivery._held.settle("nack", retry=True, handBack=True)
    again = await take(wait_ms=15_000)  # sooner than a lease lapses by itself
    assert again is not None
    assert again.attempt == 1
    assert (await task.status())["state"] == "RUNNING"


async def test_a_task_is_admitted_with_all_that_it_requires(rs, scope):
    await rs.pools.ensure("browser", capacity=2)
    await rs.quotas.ensure("search", units_per_window=5, window_seconds=86_400)
    await rs.budgets.ensure("usd", currency="USD", scale=2, limit="5.00")
    requirements: TaskRequirements = {
        "pools": [{"name": "browser", "units": 2}],
        "quotas": [{"name": "search", "units": 3}],
        "budgets": [{"name": "usd", "reserveMinor": "40"}],
    }
    box, pool, budget = scope.mailbox("work"), scope.pool("browser"), scope.budget("usd")
    task = await box.submit(1, key="a", requirements=requirements)
    assert await box.receive() is None  # only an admit takes what else it needs
    assert (await pool.status())["unitsUsed"] == 0
    work = await box.admit()
    assert isinstance(work, AdmittedWork)
    assert (work.task.id, work.attempt, work.delivery.data) == (task.id, 1, 1)
    [grant], [consumption] = work.resources["grants"], work.resources["consumptions"]
    [reservation] = work.resources["reservations"]
    assert (grant["permit"], grant["units"]) == ("browser", 2)
    assert (consumption["allowance"], consumption["units"]) == ("search", 3)
    assert (await budget.status())["reservations"][0]["id"] == reservation
    assert (await pool.status())["unitsUsed"] == 2
    await work.delivery.retry()
    assert (await pool.status())["unitsUsed"] == 0
    assert (await budget.status())["reservedMinor"] == "0"
    assert (await scope.quota("search").status())["consumed"] == 3


async def test_what_is_required_must_exist(scope):
    for needs in (
        {"pools": [{"name": "no such", "units": 1}]},
        {"quotas": [{"name": "no such", "units": 1}]},
    ):
        with pytest.raises(NotFoundError, match="no such"):
            await scope.mailbox("work").submit(1, key="a", requirements=needs)


async def test_a_cancelled_admit_holds_no_units(rs, scope):
    rng = random.Random(7)
    await rs.pools.ensure("browser", capacity=1)
    box, pool = scope.mailbox("work"), scope.pool("browser")
    await box.submit(1, key="a", requirements={"pools": [{"name": "browser", "units": 1}]})
    for _ in range(20):
        taking = asyncio.ensure_future(box.admit(wait_ms=1000))
        await asyncio.sleep(rng.uniform(0, 0.04))
        taking.cancel()
        for found in await asyncio.gather(taking, return_exceptions=True):
            if isinstance(found, AdmittedWork):
                await found.delivery._held.settle("nack", retry=True, handBack=True)
    ends_at = time.monotonic() + 15  # sooner than a lease lapses by itself
    while (await pool.status())["unitsUsed"] != 0:
        assert time.monotonic() < ends_at
        await asyncio.sleep(0.02)


async def test_a_result_outlives_an_outage():
    answers = [refusal(503, "UNAVAILABLE"), refusal(429, "RATE_LIMITED", retry_after="0.1"), Answer(502, b"")]
    view = {"state": "SUCCEEDED", "outcome": 5, "outcomeReason": None}
    with Peer(lambda request: answers.pop() if answers else Answer(200, view)) as peer:
        async with AsyncRunstate(api_key="k", space_id="s", base_url=peer.url, retries=0) as rs:
            assert (await rs.scope("s").task("t").result())["outcome"] == 5


def test_the_blocking_client_has_all_of_it(here):
    with Runstate(**here.settings) as rs:
        rs.mailboxes.ensure("work", mode="WORK")
        run = rs.scopes.create()
        box = run.mailbox("work")
        ticket = box.submit({"report": "daily"}, key="daily")
        work = box.admit()
        assert work.delivery.data == {"report": "daily"}
        work.delivery.complete(result={"payload": "done"})
        assert ticket.result(timeout_ms=20_000)["outcome"] == "done"
        assert run.task(ticket.id).status()["state"] == "SUCCEEDED"
        assert box.receive() is None
