import asyncio

import pytest

from runstate import (
    AsyncRunstate,
    AuthenticationError,
    ConfigError,
    ConflictError,
    NotFoundError,
    Runstate,
    ScopeCancelledError,
)
from tests.support import spaces


@pytest.fixture
async def rs(here):
    async with AsyncRunstate(**here.settings) as client:
        await client.mailboxes.ensure("work")
        yield client


async def test_ensure_creates_or_checks_and_names_both_sizes(rs):
    scope, other = await rs.scopes.create(), await rs.scopes.create()
    made = await asyncio.gather(
        *[rs.work_limits.ensure("few", scope_id=scope.id, max_outstanding=2) for _ in range(8)]
    )
    assert {(each["id"], each["maxOutstanding"]) for each in made} == {(made[0]["id"], 2)}
    elsewhere = await rs.work_limits.ensure("few", scope_id=other.id, max_outstanding=3)
    assert elsewhere["id"] != made[0]["id"]
    with pytest.raises(ConflictError, match=r"2.*3"):
        await rs.work_limits.ensure("few", scope_id=scope.id, max_outstanding=3)
    with pytest.raises(NotFoundError):
        await rs.work_limits.ensure("few", scope_id="nowhere", max_outstanding=3)
    for size in (0, -1, 1.5, True):
        with pytest.raises(ConfigError):
            await rs.work_limits.ensure("few", scope_id=scope.id, max_outstanding=size)


async def test_a_key_that_may_not_create_checks_what_is_there(here, rs, space, database_url):
    scope = await rs.scopes.create()
    made = await rs.work_limits.ensure("few", scope_id=scope.id, max_outstanding=2)
    key = spaces.limited(database_url, space, "runtime").key
    async with AsyncRunstate(**{**here.settings, "api_key": key}) as limited:
        assert await limited.work_limits.ensure("few", scope_id=scope.id, max_outstanding=2) == made
        with pytest.raises(AuthenticationError):
            await limited.work_limits.ensure("missing", scope_id=scope.id, max_outstanding=2)


async def test_no_more_tasks_are_unfinished_than_the_limit_allows(rs):
    scope = await rs.scopes.create()
    await rs.work_limits.ensure("few", scope_id=scope.id, max_outstanding=2)
    mailbox = (await scope.child()).mailbox("work")
    first = await mailbox.submit(1, key="1", work_limit="few")
    await mailbox.submit(2, key="2", work_limit="few")
    with pytest.raises(ConflictError) as caught:
        await mailbox.submit(3, key="3", work_limit="few")
    assert caught.value.code == "BACKLOG_FULL"
    await mailbox.submit(3, key="3")  # not under it
    await first.cancel()
    await mailbox.submit(4, key="4", work_limit="few")
    with pytest.raises(NotFoundError, match="missing"):
        await mailbox.submit(5, key="5", work_limit="missing")
    await scope.cancel()
    with pytest.raises(ScopeCancelledError):
        await mailbox.submit(6, key="6", work_limit="few")


def test_the_blocking_face(here):
    with Runstate(**here.settings) as rs:
        scope = rs.scopes.create()
        assert rs.work_limits.ensure("few", scope_id=scope.id, max_outstanding=1)["outstanding"] == 0
