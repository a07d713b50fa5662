"""Many callers at one key: one holder, generations that grow by one, no lease revived while a call waits."""

import asyncio
import random

import pytest

from tests.support import database, races
from tests.support.builders import end, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import Claim

ROW = "SELECT 1 FROM runstate.claims WHERE scope_id = $1::text::uuid FOR NO KEY UPDATE"


@pytest.mark.parametrize("before", ["never held", "released", "lapsed"])
async def test_of_fifty_callers_over_two_replicas_one_owns_the_key(api, storm, clock, before):
    claim = Claim(scope(api))
    if before != "never held":
        token = ok(claim.acquire(lease_s=60).send(api), 201)["token"]
        if before == "released":
            ok(claim.release(token).send(api))
        else:
            clock.shift(61)
    answers = await storm([claim.acquire(f"worker-{i}") for i in range(50)])
    won = [a for a in answers if a.status_code == 201]
    assert len(won) == 1
    assert won[0].json()["generation"] == ("1" if before == "never held" else "2")
    for answer in answers:
        if answer is not won[0]:
            refused(answer, "CLAIM_HELD")


async def test_fifty_keys_at_once_do_not_wait_for_each_other(api, storm):
    root = scope(api)
    answers = await storm([Claim(root, f"key-{i}").acquire() for i in range(50)])
    assert {ok(a, 201)["generation"] for a in answers} == {"1"}


async def test_of_many_releases_with_one_token_one_is_done(api, storm, space, database_url):
    claim = Claim(scope(api))
    token = ok(claim.acquire().send(api), 201)["token"]
    answers = await storm([claim.release(token, observation=i + 1) for i in range(20)])
    done = [i for i, answer in enumerate(answers) if answer.status_code == 200]
    assert len(done) == 1
    assert ok(claim.view().send(api))["observation"] == done[0] + 1
    assert len(events(database_url, space.id, "claim.released")) == 1


async def test_one_holder_at_a_time_and_generations_that_grow_by_one(api, both_apis, space, database_url):
    """Whoever holds the key writes its generation to a register; nobody may ever write a smaller one."""
    claim = Claim(scope(api))
    register: list[int] = []
    inside = 0

    async def work(client, chance):
        nonlocal inside
        for _ in range(6):
            answer = ok(await claim.acquire(waitMs=30_000, lease_s=3600).send(client), 201)
            inside += 1
            assert inside == 1
            register.append(int(answer["generation"]))
            for _ in range(chance.randrange(3)):
                ok(await claim.renew(answer["token"]).send(client))
            assert inside == 1
            inside -= 1
            ok(await claim.release(answer["token"]).send(client))

    async with asyncio.timeout(120):
        await asyncio.gather(*[work(both_apis[i % 2], random.Random(i)) for i in range(8)])
    assert register == list(range(1, 49))
    told = events(database_url, space.id, "claim.acquired", "claim.released")
    assert [e.payload["generation"] for e in told] == [str(g) for g in register for _ in range(2)]


async def test_a_lease_that_ends_while_its_renewal_waits_for_the_row_is_not_revived(api, database_url, clock):
    """The clock is read after the lock: what the call knew when it began to wait counts for nothing."""
    await waits_past_its_lease(api, database_url, clock, lambda claim, token: claim.renew(token, 600))


async def test_a_lease_that_ends_while_its_release_waits_for_the_row_is_stale(api, database_url, clock):
    await waits_past_its_lease(api, database_url, clock, lambda claim, token: claim.release(token))


async def waits_past_its_lease(api, database_url, clock, late_call):
    claim = Claim(scope(api))
    token = ok(claim.acquire(lease_s=60).send(api), 201)["token"]
    async with races.holding(database_url, ROW, claim.scope) as holder:
        late = asyncio.create_task(asyncio.to_thread(late_call(claim, token).send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        clock.shift(61)
    refused(await late, "STALE_CLAIM")
    assert ok(claim.view().send(api))["state"] == "FREE"


async def test_an_acquire_that_comes_after_a_cancel_has_begun_is_refused(patient):
    async with patient.client() as (_, client):
        claim = Claim(ok(await client.post("/scopes", json={}), 201)["id"])
        held = ok(await claim.acquire(lease_s=3600).send(client), 201)
        async with races.holding(patient.database_url, ROW, claim.scope) as holder:
            cancel = asyncio.create_task(end(claim.scope).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            acquire = asyncio.create_task(Claim(claim.scope, "other").acquire().send(client))
            renewal = asyncio.create_task(claim.renew(held["token"]).send(client))
            await races.until_waiting(patient.database_url, count=3)
        assert ok(await cancel)["state"] == "CANCELLED"
        refused(await acquire, "SCOPE_CANCELLED")
        refused(await renewal, "SCOPE_CANCELLED")


def test_a_sweep_frees_lapsed_claims_and_tells_of_each_once(api, space, database_url, clock):
    root = scope(api)
    for i in range(3):
        ok(Claim(root, f"k{i}").acquire(lease_s=60).send(api), 201)
    kept = Claim(root, "kept")
    ok(kept.acquire(lease_s=3600).send(api), 201)
    clock.shift(61)
    races.until_blocking(lambda: len(events(database_url, space.id, "claim.lapsed")) >= 3, what="the sweep")
    told = events(database_url, space.id, "claim.lapsed")
    assert sorted((e.aggregate, e.payload["reason"]) for e in told) == [
        (f"k{i}", "lease_expired") for i in range(3)
    ]
    assert ok(kept.view().send(api))["state"] == "HELD"
    held = "SELECT count(*) FROM runstate.claims WHERE space_id = $1 AND held"
    assert database.fetchval(database_url, held, space.id) == 1
