"""What was certainly rolled back is repeated inside the call: lock time-outs, deadlocks; then it is 503."""

import asyncio

import pytest

from tests.support import database, races
from tests.support.builders import Call, Once, end, held, ok, refused, scope
from tests.support.processes import Replica

GATE = "SELECT {schema}.gate_alone($1, $2::text::uuid)"
ROW = "SELECT 1 FROM runstate.once WHERE scope_id = $1::text::uuid FOR NO KEY UPDATE"
WAITING_SINCE = """
SELECT pid, query_start FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()
"""


async def until_it_waits_again(url):
    """Wait until a call has timed out at a lock and got in line anew."""
    async with database.connected(url) as connection:

        async def waiting():
            return {tuple(row) for row in await connection.fetch(WAITING_SINCE)}

        first = await races.until(waiting, what="waiting for a lock")

        async def waiting_anew():
            now = await waiting()
            return now if now and not now & first else None

        await races.until(waiting_anew, what="a repetition")


async def test_a_call_that_times_out_at_the_gate_is_repeated_and_succeeds(
    async_api, space, database_url, kernel_schema
):
    once = Once(ok(await async_api.post("/scopes", json={}), 201)["id"])
    async with races.holding(database_url, GATE.format(schema=kernel_schema), space.id, once.scope):
        call = asyncio.create_task(once.acquire().send(async_api))
        await until_it_waits_again(database_url)
        assert not call.done()
    assert ok(await call)["state"] == "ACQUIRED"


async def test_a_call_that_times_out_at_a_row_is_repeated_and_succeeds(async_api, database_url):
    once = Once(ok(await async_api.post("/scopes", json={}), 201)["id"])
    token = ok(await once.acquire().send(async_api))["token"]
    async with races.holding(database_url, ROW, once.scope):
        call = asyncio.create_task(once.complete(token, 1).send(async_api, "key"))
        await until_it_waits_again(database_url)
    response = await call
    assert ok(response) == {"state": "DONE"}
    assert "idempotent-replayed" not in response.headers


async def test_nothing_waits_long_inside_a_gate(async_api, api, database_url):
    """A completion that cannot have its row lets go of the gate in between, so that others get through it."""
    root = scope(api)
    once, sibling = Once(scope(api, parentId=root)), scope(api, parentId=root)
    token = held(api, once)
    async with races.holding(database_url, ROW, once.scope) as holder:
        stuck = asyncio.create_task(once.complete(token, 1).send(async_api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        assert ok(await end(sibling).send(async_api))["state"] == "CANCELLED"
        assert not stuck.done()
    assert ok(await stuck) == {"state": "DONE"}


@pytest.mark.processes
def test_a_lock_that_stays_taken_ends_in_503_with_a_time_to_come_back(fresh_database, kernel_schema):
    from tests.support import spaces

    space = spaces.create(fresh_database)

    async def run(api, scope_id):
        gate = GATE.format(schema=kernel_schema)
        async with races.holding(fresh_database, gate, space.id, scope_id):
            response = await Once(scope_id).acquire().send(api)
        message = refused(response, "UNAVAILABLE")
        assert "lock" in message
        assert float(response.headers["retry-after"]) > 0
        assert ok(await Once(scope_id).acquire().send(api))["state"] == "ACQUIRED"

    async def main(url):
        async with space.async_client(url) as api:
            await run(api, ok(await api.post("/scopes", json={}), 201)["id"])

    with Replica(fresh_database, OUTAGE_WAIT_S="1") as replica:
        asyncio.run(main(replica.url))


async def test_the_victim_of_a_deadlock_is_repeated_and_succeeds(patient, kernel_schema):
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = database.fetchval(patient.database_url, deadlocks)
    async with patient.client() as (space, client):
        once = Once(ok(await client.post("/scopes", json={}), 201)["id"])
        token = ok(await once.acquire().send(client))["token"]
        async with races.holding(patient.database_url, ROW, once.scope) as holder:
            # Only the server's side looks for deadlocks in time, so it is the one that finds itself in one.
            await holder.execute("SET deadlock_timeout = '60s'; SET lock_timeout = 0")
            call = asyncio.create_task(once.complete(token, 1).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            await holder.execute(GATE.format(schema=kernel_schema), space.id, once.scope)
        assert ok(await call) == {"state": "DONE"}

    async def counted():
        async with database.connected(patient.database_url) as connection:
            return await connection.fetchval(deadlocks) > before

    await races.until(counted, what="a deadlock in the statistics")


async def test_reads_take_no_lock(async_api, space, database_url, kernel_schema):
    once = Once(ok(await async_api.post("/scopes", json={}), 201)["id"])
    ok(await once.acquire(holder="ann").send(async_api))
    gate = GATE.format(schema=kernel_schema)
    async with races.holding(database_url, gate, space.id, once.scope) as holder:
        await holder.execute(ROW, once.scope)
        for call in (once.view(), Call("GET", f"/scopes/{once.scope}"), Call("GET", "/scopes")):
            ok(await call.send(async_api))
