"""Many callers at one key: one owner, one result; a completion and the end of its scope come in an order."""

import asyncio
import threading
import time

import pytest

from tests.support import database, races
from tests.support.builders import Once, end, held, ok, refused, scope
from tests.support.clock import Clock
from tests.support.journal import events

ROW = "SELECT 1 FROM runstate.once WHERE scope_id = $1::text::uuid FOR NO KEY UPDATE"


def lapse(api, once, clock):
    held(api, once, lease_s=1)
    clock.shift(2)


@pytest.mark.parametrize(
    "before",
    [
        lambda *_: None,
        lambda api, once, _: ok(once.fail(held(api, once)).send(api)),
        lapse,
    ],
    ids=["never held", "failed before", "lapsed"],
)
async def test_of_fifty_callers_over_two_replicas_one_owns_the_key(api, storm, clock, before):
    once = Once(scope(api))
    before(api, once, clock)
    answers = [ok(r) for r in await storm([once.acquire(f"worker-{i}") for i in range(50)])]
    winners = [a for a in answers if a["state"] == "ACQUIRED"]
    assert len(winners) == 1
    assert {a["state"] for a in answers} == {"ACQUIRED", "HELD"}
    assert {a["leaseExpiresAt"] for a in answers} == {winners[0]["leaseExpiresAt"]}
    assert ok(once.complete(winners[0]["token"], 1).send(api)) == {"state": "DONE"}


async def test_fifty_keys_at_once_do_not_wait_for_each_other(api, storm):
    parent = scope(api)
    answers = await storm([Once(parent, f"key-{i}").acquire() for i in range(50)])
    assert [ok(a)["state"] for a in answers] == ["ACQUIRED"] * 50


async def test_of_many_completions_with_one_token_one_is_recorded(api, storm, space, database_url):
    once = Once(scope(api))
    token = held(api, once)
    answers = await storm([once.complete(token, i) for i in range(20)])
    recorded = [i for i, answer in enumerate(answers) if answer.status_code == 200]
    assert len(recorded) == 1
    for answer in answers[: recorded[0]] + answers[recorded[0] + 1 :]:
        refused(answer, "STALE_CLAIM")
    assert ok(once.view().send(api))["result"] == recorded[0]
    assert len(events(database_url, space.id, "once.completed")) == 1


async def test_a_completion_and_a_failure_at_once_are_one_of_both(api, storm):
    once = Once(scope(api))
    token = held(api, once)
    both = [once.complete(token, "done"), once.fail(token, "failed", 1)] * 10
    answers = await storm(both)
    assert [a.status_code for a in answers].count(200) == 1
    seen = ok(once.view().send(api))
    assert (seen["state"], seen["attempts"]) in {("DONE", 0), ("FAILED", 1)}


async def test_a_lease_that_ends_while_its_renewal_waits_for_the_row_is_not_revived(api, database_url, clock):
    """The clock is read after the lock: what the call knew when it began to wait counts for nothing."""
    await waits_past_its_lease(api, database_url, clock, lambda once, token: once.renew(token, 600))


async def test_a_lease_that_ends_while_its_completion_waits_for_the_row_records_nothing(
    api, database_url, clock
):
    await waits_past_its_lease(api, database_url, clock, lambda once, token: once.complete(token, "late"))


async def waits_past_its_lease(api, database_url, clock, late_call):
    once = Once(scope(api))
    token = held(api, once, lease_s=60)
    async with races.holding(database_url, ROW, once.scope) as holder:
        late = asyncio.create_task(asyncio.to_thread(late_call(once, token).send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        clock.shift(61)
    refused(await late, "STALE_CLAIM")
    assert ok(once.view().send(api)) == {"state": "OPEN", "attempts": 0}


async def test_a_completion_under_way_is_waited_for_by_the_cancel_and_stands(patient):
    async with patient.client() as (_, client):
        once, token = await held_async(client)
        async with races.holding(patient.database_url, ROW, once.scope) as holder:
            completion = asyncio.create_task(once.complete(token, "in time").send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            cancel = asyncio.create_task(end(once.scope).send(client))
            await races.until_waiting(patient.database_url, count=2)
        assert ok(await completion) == {"state": "DONE"}
        assert ok(await cancel)["state"] == "CANCELLED"
        assert ok(await once.view().send(client))["result"] == "in time"


async def test_a_completion_that_comes_after_a_cancel_has_begun_is_refused(patient):
    async with patient.client() as (_, client):
        once, token = await held_async(client)
        async with races.holding(patient.database_url, ROW, once.scope) as holder:
            cancel = asyncio.create_task(end(once.scope).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            completion = asyncio.create_task(once.complete(token, "too late").send(client))
            await races.until_waiting(patient.database_url, count=2)
        assert ok(await cancel)["state"] == "CANCELLED"
        refused(await completion, "SCOPE_CANCELLED")
        assert ok(await once.view().send(client)) == {"state": "OPEN", "attempts": 0}


async def test_a_deadline_that_passes_while_a_completion_waits_refuses_it(patient, kernel_schema):
    clock = Clock(patient.database_url)
    async with patient.client() as (_, client):
        once, token = await held_async(client, deadline="2999-01-01T00:00:00Z")
        set_deadline = (
            "UPDATE runstate.scopes SET deadline = $2, effective_deadline = $2"
            f" FROM (SELECT {kernel_schema}.kernel_now() + interval '60 s' AS soon) s"
            " WHERE id = $1::text::uuid"
        ).replace("$2", "s.soon")
        database.execute(patient.database_url, set_deadline, once.scope)
        async with races.holding(patient.database_url, ROW, once.scope) as holder:
            completion = asyncio.create_task(once.complete(token, "late").send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            clock.shift(61)
        refused(await completion, "DEADLINE_EXCEEDED")
        assert ok(await once.view().send(client)) == {"state": "OPEN", "attempts": 0}


async def held_async(client, **body):
    made = ok(await client.post("/scopes", json=body), 201)
    once = Once(made["id"])
    return once, ok(await once.acquire(lease_s=3600).send(client))["token"]


async def test_a_grant_under_way_is_waited_for_by_the_cancel_which_ends_it(patient):
    """The gate: a cancel is not answered while a call inside is still free to commit."""
    async with patient.client() as (space, client):
        root = ok(await client.post("/scopes", json={}), 201)["id"]
        once = Once(root)
        stands_in_the_way = (
            "INSERT INTO runstate.once (space_id, scope_id, key, root_id, state, attempts, created_at)"
            " VALUES ($1, $2::text::uuid, $3, $2::text::uuid, 'OPEN', 0, now())"
        )
        async with races.holding(patient.database_url, stands_in_the_way, space.id, root, once.key) as holder:
            grant = asyncio.create_task(once.acquire(lease_s=3600).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            cancel = asyncio.create_task(end(root).send(client))
            await races.until_waiting(patient.database_url, count=2)
            assert not cancel.done()
        assert ok(await grant)["state"] == "ACQUIRED"
        assert ok(await cancel)["state"] == "CANCELLED"
        assert ok(await once.view().send(client)) == {"state": "OPEN", "attempts": 0}


class Hammer(threading.Thread):
    """Acquires, renews and completes keys of its own until told to stop; notes what it asked and when."""

    def __init__(self, space, url, scope_id, name):
        super().__init__()
        self._space, self._url, self._scope = space, url, scope_id
        self.enough = threading.Event()
        self.warm = threading.Event()
        self.name = name
        self.asked = []

    def run(self):
        with self._space.client(self._url) as client:
            i = 0
            while not self.enough.is_set():
                once = Once(self._scope, f"{self.name}-{i}")
                token = self._send(client, once.acquire()).get("token", "none")
                self._send(client, once.renew(token))
                self._send(client, once.complete(token, i))
                i += 1
                if i == 2:
                    self.warm.set()

    def _send(self, client, call):
        asked_at = time.monotonic()
        body = call.send(client).json()
        self.asked.append((asked_at, body.get("error", {}).get("code")))
        return body


def test_nothing_is_recorded_after_a_cancel_was_answered(api, server, second_server, space, database_url):
    root = scope(api)
    below = scope(api, parentId=scope(api, parentId=root))
    urls = [server.url, second_server.url]
    hammers = [Hammer(space, urls[i % 2], (root, below)[i % 3 == 0], f"h{i}") for i in range(8)]
    for hammer in hammers:
        hammer.start()
    assert all(hammer.warm.wait(60) for hammer in hammers)
    ok(end(root).send(api))
    answered_at = time.monotonic()
    for hammer in hammers:
        count = len(hammer.asked)
        races.until_blocking(lambda h=hammer, c=count: len(h.asked) > c + 3, what="calls after the cancel")
        hammer.enough.set()
    for hammer in hammers:
        hammer.join(60)
    late = [code for hammer in hammers for asked_at, code in hammer.asked if asked_at > answered_at]
    assert set(late) == {"SCOPE_CANCELLED"}
    before = [code for hammer in hammers for asked_at, code in hammer.asked if asked_at <= answered_at]
    assert set(before) <= {None, "SCOPE_CANCELLED"}
    recorded_late = database.fetchval(
        database_url,
        "SELECT count(*) FROM runstate.once o JOIN runstate.scopes s ON s.id = $1::text::uuid"
        " WHERE o.root_id = s.id AND o.ended_at > s.ended_at",
        root,
    )
    assert recorded_late == 0
    journal = [e.type for e in events(database_url, space.id)]
    after = journal[journal.index("scope.cancelled") + 1 :]
    assert after == []
