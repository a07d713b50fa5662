"""Many callers at one budget: never more than its limit, nothing charged twice, whoever hangs up when."""

import asyncio
import random

import pytest

from runstate_server.foundation import bounds
from tests.support import database, races, spaces
from tests.support.budgets import budget, reserved
from tests.support.builders import Once, end, in_seconds, ok, refused, scope
from tests.support.journal import events
from tests.support.processes import Replica
from tests.support.proxy import RoundRobin, database_socket, database_through

KEY = "sent-before-the-wire-was-cut"
ROW = "SELECT 1 FROM runstate.budgets WHERE id = $1::text::uuid FOR NO KEY UPDATE"


def balances(api, money):
    seen = ok(money.view().send(api))
    return tuple(int(seen[f"{word}Minor"]) for word in ("reserved", "settled", "available", "overrun"))


async def test_of_fifty_reserves_at_once_over_two_replicas_a_budget_for_ten_lets_ten_through(api, storm):
    money = budget(api, scope(api), 10 * 7 + 6)
    answers = await storm([money.reserve(7, holder=f"worker-{n}") for n in range(50)])
    assert [a.status_code for a in answers].count(200) == 10
    for answer in answers:
        if answer.status_code != 200:
            refused(answer, "INSUFFICIENT_BUDGET")
    assert balances(api, money) == (70, 0, 6, 0)


async def test_of_many_settles_under_one_key_one_is_done(api, storm, space, database_url):
    money = budget(api, scope(api), 1000)
    it = reserved(api, money, 100)
    answers = [ok(a) for a in await storm([money.settle(it, 30) for _ in range(30)])]
    assert sorted(a["replay"] for a in answers) == [False] + [True] * 29
    assert len({a["entryId"] for a in answers}) == 1
    assert balances(api, money) == (70, 30, 900, 0)
    assert len(events(database_url, space.id, "budget.settled")) == 1


async def test_settles_and_voids_at_once_end_a_reservation_once(api, storm):
    money = budget(api, scope(api), 1000)
    it = reserved(api, money, 100)
    calls = [money.settle(it, 100, f"s{n}") if n % 2 else money.void(it, f"v{n}") for n in range(20)]
    answers = await storm(calls)
    assert sorted(a.status_code for a in answers) == [200] + [409] * 19
    assert balances(api, money) in {(0, 100, 900, 0), (0, 0, 1000, 0)}


async def test_overruns_at_once_take_what_there_is_once(api, storm):
    money = budget(api, scope(api), 100)
    them = [reserved(api, money, 1) for _ in range(20)]
    answers = [ok(a) for a in await storm([money.overrun(it, 50, it) for it in them])]
    assert sum(int(a["chargedMinor"]) for a in answers) == 100
    assert balances(api, money) == (0, 100, 0, 20 * 50 - 100)


async def test_the_limit_moves_under_a_storm_and_is_never_passed(api, both_apis, database_url):
    """Readers beside the storm see books that balance, at every instant."""
    money = budget(api, scope(api), 500)
    over = asyncio.Event()

    async def spend(client, chance):
        for n in range(12):
            answer = await money.reserve(chance.randint(1, 120)).send(client)
            if answer.status_code == 200:
                it = answer.json()["reservationId"]
                verb = money.overrun if chance.random() < 0.5 else money.settle
                await verb(it, chance.randint(0, 150), f"{it}-{n}").send(client)
                if chance.random() < 0.7:
                    await money.void(it, it).send(client)

    async def move(client, chance):
        for _ in range(20):
            answer = await money.limit(chance.randint(0, 1500)).send(client)
            assert answer.status_code in {200, 409}

    async def watch():
        async with database.connected(database_url) as connection:
            looks = 0
            while not over.is_set():
                row = await connection.fetchrow(
                    "SELECT limit_minor, settled_minor, reserved_minor FROM runstate.budgets"
                    " WHERE id = $1::text::uuid",
                    money.id,
                )
                assert row["settled_minor"] + row["reserved_minor"] <= row["limit_minor"]
                looks += 1
                await asyncio.sleep(0)
            return looks

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(120):
        work = [spend(both_apis[n % 2], random.Random(n)) for n in range(12)]
        await asyncio.gather(*work, move(both_apis[0], random.Random(99)))
    over.set()
    assert await watching > 20
    sums = database.fetch(
        database_url,
        "SELECT sum(reserved_change), sum(settled_change), sum(overrun_change) FROM runstate.budget_entries"
        " WHERE budget_id = $1::text::uuid",
        money.id,
    )[0]
    reserved_now, settled, _, overrun = balances(api, money)
    assert tuple(sums) == (reserved_now, settled, overrun)


async def test_a_reservation_that_goes_stale_while_its_settle_waits_is_settled_late(api, database_url, clock):
    """The clock is read after the lock: what the call knew when it began to wait counts for nothing."""
    money = budget(api, scope(api), 100)
    it = reserved(api, money, 100, settleBy=in_seconds(api, 60))
    async with races.holding(database_url, ROW, money.id) as holder:
        late = asyncio.create_task(asyncio.to_thread(money.settle(it, 40).send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        clock.shift(61)
    assert ok(await late)["state"] == "ACTIVE"
    assert [line["kind"] for line in ok(money.entries().send(api))["entries"]] == [
        "reserve",
        "stale",
        "settle",
    ]


async def test_a_refusal_waits_for_no_lock(api, database_url):
    """A budget that has nothing left answers at a look, however many stand at its row."""
    money = budget(api, scope(api), 100)
    it = reserved(api, money, 100)
    ok(money.settle(it, 40, "k").send(api))
    async with races.holding(database_url, ROW, money.id):
        refused(await asyncio.to_thread(money.reserve(1).send, api), "INSUFFICIENT_BUDGET")
        assert ok(await asyncio.to_thread(money.settle(it, 40, "k").send, api))["replay"]
        ok(await asyncio.to_thread(money.view().send, api))


async def test_a_crowd_at_one_budget_leaves_connections_to_everybody_else(api, async_api, database_url):
    """Of forty who stand at its row a few wait in the database, the others in the server."""
    money = budget(api, scope(api), 1000)
    other = Once(scope(api))
    async with races.holding(database_url, ROW, money.id):
        crowd = [asyncio.create_task(money.reserve(1).send(async_api)) for _ in range(40)]
        ok(await asyncio.to_thread(other.acquire().send, api))
        looks = [len(await races.until_waiting(database_url)) for _ in range(30)]
        assert max(looks) <= bounds.row_callers_max
        assert not any(each.done() for each in crowd)
    assert [ok(each)["state"] for each in await asyncio.gather(*crowd)] == ["ACTIVE"] * 40
    assert balances(api, money) == (40, 0, 960, 0)


async def test_nothing_is_reserved_in_a_scope_after_its_end_was_answered(api, both_apis):
    root = scope(api)
    money = budget(api, scope(api, parentId=root), 10**6)
    started = asyncio.Event()

    async def hammer(client):
        told = []
        while len(told) < 3 or told[-1] == 200:
            told.append((await money.reserve(1).send(client)).status_code)
            started.set()
        return told.count(200)

    hammers = [asyncio.create_task(hammer(both_apis[n % 2])) for n in range(4)]
    await started.wait()
    ok(await end(root).send(both_apis[0]))
    before = int(ok(await money.view().send(both_apis[1]))["reservedMinor"])
    assert sum(await asyncio.gather(*hammers)) == before
    assert balances(api, money)[0] == before


@pytest.fixture
def severed(fresh_database):
    """A replica whose wire to its database can be cut, in a space of its own."""
    space = spaces.create(fresh_database)
    with (
        RoundRobin([database_socket(fresh_database)]) as wire,
        Replica(database_through(wire, fresh_database), LISTEN_URL=fresh_database) as replica,
        space.client(replica.url) as client,
    ):
        yield wire, client, fresh_database


@pytest.mark.processes
@pytest.mark.parametrize("verb", ["reserve", "settle", "void"])
@pytest.mark.parametrize("moment", ["before it commits", "after it committed"])
def test_a_wire_that_is_cut_in_the_middle_doubles_nothing(severed, verb, moment):
    wire, client, database_url = severed
    money = budget(client, scope(client), 1000)
    it = reserved(client, money, 100)
    call = {"reserve": money.reserve(200), "settle": money.settle(it, 30), "void": money.void(it)}[verb]
    if moment == "after it committed":
        wire.drop_reply(KEY.encode())
        first = call.send(client, KEY)
        assert wire.dropped.is_set()
    else:
        first = asyncio.run(cut_while_it_waits(wire, client, database_url, money, call))
    assert ok(first)["state"] == {"reserve": "ACTIVE", "settle": "ACTIVE", "void": "VOIDED"}[verb]
    again = call.send(client, KEY)
    assert (again.json(), again.headers.get("idempotent-replayed")) == (first.json(), "true")
    assert (
        balances(client, money)
        == {
            "reserve": (300, 0, 700, 0),
            "settle": (70, 30, 900, 0),
            "void": (0, 0, 1000, 0),
        }[verb]
    )
    assert len(ok(money.entries().send(client))["entries"]) == 2


async def cut_while_it_waits(wire, client, database_url, money, call):
    """The answer to a call whose connection breaks while it stands at the budget's row."""
    async with races.holding(database_url, ROW, money.id) as holder:
        waiting = asyncio.create_task(asyncio.to_thread(call.send, client, KEY))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        wire.sever()
    return await waiting
