"""Task groups of the object graph: both faces, verdicts, waits, servers that are away."""

import asyncio

import pytest

from runstate import AsyncRunstate, ConflictError, NotFoundError, Runstate, WaitTimeoutError
from tests.sdk.callers import in_thread
from tests.sdk.peer import DROP, Answer, Peer, refusal


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings, holder="me") as client:
        await client.mailboxes.ensure("reviews")
        yield client


@pytest.fixture
async def scope(rs):
    return await rs.scopes.create()


async def done(rs, group, *keys):
    """Tickets of new members, each completed with its key as its result."""
    tickets = {key: await group.submit({"key": key}, key=key) for key in keys}
    box = rs.scope((await group.status())["scopeId"]).mailbox("reviews")
    for _ in keys:
        work = await box.admit()
        await work.delivery.complete({"payload": work.delivery.data["key"]})
    return list(tickets.values())


async def test_a_group_succeeds_with_the_accept_that_reaches_its_threshold_and_cancels_the_rest(rs, scope):
    group = await scope.groups.create(
        mailbox="reviews", condition="N_ACCEPTED", threshold=2, expected_members=4
    )
    good, bad, better = await done(rs, group, "a", "b", "c")
    waiting = asyncio.create_task(group.wait())
    loser = await group.submit("d", key="d")
    assert (await group.submit("other", key="d")).id == loser.id
    with pytest.raises(ConflictError):
        await group.submit("e", key="e")
    open_yet = {"late": False, "groupState": "SEALED", "outcome": None, "outcomeReason": None}
    assert await group.accept(good.id) == {"verdict": "ACCEPTED", **open_yet}
    assert await group.accept(good.id) == {"verdict": "ACCEPTED", **open_yet}
    assert await group.reject(bad.id) == {"verdict": "REJECTED", **open_yet}
    with pytest.raises(ConflictError):
        await group.accept(bad.id)
    with pytest.raises(ConflictError):
        await group.accept(loser.id)
    final = {"groupState": "FINALIZED", "outcome": "SUCCESS", "outcomeReason": None}
    assert await group.accept(better.id) == {"verdict": "ACCEPTED", "late": False, **final}
    assert await group.reject(loser.id) == {"verdict": "REJECTED", "late": True, **final}
    outcome = {"outcome": "SUCCESS", "outcomeReason": None}
    assert await waiting == await scope.groups.by_id(group.id).wait() == outcome
    ended = {"state": "CANCELLED", "outcome": None, "reason": "group_finalized"}
    assert await loser.result() == ended
    view = await group.status()
    assert (view["state"], view["accepted"], view["rejected"]) == ("FINALIZED", 2, 1)
    assert [m["taskKey"] for m in view["members"]] == ["a", "b", "c", "d"]


async def test_a_group_that_is_closed_ends_with_its_members_and_a_joined_task_counts(rs, scope):
    outside = await scope.mailbox("reviews").submit("x", key="outside")
    group = await scope.groups.create(mailbox="reviews", condition="ALL_TERMINAL")
    assert await group.join_task(outside.id) == {"taskId": outside.id}
    sealed = {"state": "SEALED", "outcome": None, "outcomeReason": None}
    assert await group.close() == sealed
    assert await group.seal() == sealed
    await outside.cancel()
    assert await group.wait() == {"outcome": "SUCCESS", "outcomeReason": None}
    assert await group.close() == {"state": "FINALIZED", "outcome": "SUCCESS", "outcomeReason": None}
    with pytest.raises(ConflictError):
        await group.seal()


async def test_a_group_is_a_child_of_the_scope_it_was_made_from_unless_another_is_named(rs, scope):
    other = await rs.scopes.create()
    for parent, expected in ((None, scope.id), (other.id, other.id)):
        group = await scope.groups.create(
            mailbox="reviews", condition="FIRST_ACCEPTED", parent_scope_id=parent
        )
        own = await rs.scope((await group.status())["scopeId"]).status()
        assert own["parentId"] == expected
    await scope.cancel()
    group = await rs.scope(other.id).groups.create(mailbox="reviews", condition="FIRST_ACCEPTED")
    await other.complete()
    assert await group.wait() == {"outcome": "FAILURE", "outcomeReason": "scope_completed"}


async def test_a_mailbox_is_named_by_its_name_or_its_id(rs, scope):
    mailbox = await rs.mailboxes.ensure("reviews")
    for named in ("reviews", mailbox["id"]):
        group = await scope.groups.create(mailbox=named, condition="ALL_TERMINAL")
        assert (await group.status())["mailboxId"] == mailbox["id"]
    with pytest.raises(NotFoundError, match="nothing"):
        await scope.groups.create(mailbox="nothing", condition="ALL_TERMINAL")
    with pytest.raises(NotFoundError):
        await scope.groups.by_id("missing").status()


async def test_a_wait_that_runs_out_says_so(scope):
    group = await scope.groups.create(mailbox="reviews", condition="FIRST_ACCEPTED")
    with pytest.raises(WaitTimeoutError, match=group.id):
        await group.wait(timeout_ms=200)
    assert (await group.status())["state"] == "OPEN"


def test_the_blocking_face_waits_too(here):
    with Runstate(**here.settings) as rs:
        rs.mailboxes.ensure("reviews")
        scope = rs.scopes.create()
        group = scope.groups.create(mailbox="reviews", condition="FIRST_ACCEPTED")
        waiting = in_thread(group.wait)
        ticket = group.submit("a", key="a")
        work = rs.scope(group.status()["scopeId"]).mailbox("reviews").admit()
        work.delivery.complete({"payload": 1})
        assert ticket.result()["outcome"] == 1
        assert scope.groups.by_id(group.id).accept(ticket.id)["outcome"] == "SUCCESS"
        waiting.join(60)
        assert waiting.outcome == {"outcome": "SUCCESS", "outcomeReason": None}


async def test_a_wait_takes_a_server_that_is_away_and_a_429_as_not_yet():
    view = {"state": "FINALIZED", "outcome": "SUCCESS", "outcomeReason": None}
    answers = iter(
        [
            DROP,
            refusal(503, "UNAVAILABLE"),
            refusal(429, "RATE_LIMITED", retry_after="0.01"),
            Answer(200, view | {"state": "OPEN"}),
            Answer(200, view),
        ]
    )
    with Peer(lambda _: next(answers)) as peer:
        async with AsyncRunstate(base_url=peer.url, space_id="s", api_key="k", retries=0) as rs:
            found = await rs.scope("x").groups.by_id("g").wait(timeout_ms=30_000, poll_ms=10)
    assert found == {"outcome": "SUCCESS", "outcomeReason": None}
    assert all("waitMs=" in request.path for request in peer.requests)
