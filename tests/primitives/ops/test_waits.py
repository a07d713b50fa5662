"""Who waits for what, and who holds it, told by either of two replicas; circles are named, nothing else."""

import asyncio
import contextlib
import itertools
import re

import pytest

from tests.support import database, races, spaces
from tests.support.builders import Once, end
from tests.support.clock import Clock
from tests.support.processes import Replica
from tests.support.queues import Claim, Delivery, Mailbox, view

pytestmark = pytest.mark.processes

WAIT_MS = 30_000
GONE_S_MAX = 15


class Stage:
    """Calls on two replicas by turns: what is held on one is waited for on the other."""

    def __init__(self, *apis):
        self._turns = itertools.cycle(apis)
        self.apis = apis
        self.asked = []

    async def do(self, call, api=None):
        response = await call.send(api or next(self._turns))
        assert response.is_success, response.text
        return response.json() if response.content else None

    def wait(self, call, api=None):
        """Somebody waits, from now on."""
        asking = asyncio.create_task(call.send(api or next(self._turns)))
        self.asked.append(asking)
        return asking

    async def leave(self):
        for asking in self.asked:
            asking.cancel()
        await asyncio.gather(*self.asked, return_exceptions=True)

    async def scope(self, **body):
        return (await next(self._turns).post("/scopes", json=body)).json()["id"]

    async def mailbox(self, scope, **settings):
        made = await next(self._turns).post("/mailboxes", json={"name": "research"} | settings)
        return Mailbox(made.json()["id"], scope)

    async def waits(self, api=None):
        return (await (api or next(self._turns)).get("/ops/waits")).json()["waits"]

    async def until(self, seen, what):
        """All waits, once `seen` of them is true, as every replica tells them."""
        found = []
        for api in self.apis:

            async def look(api=api):
                waits = await self.waits(api)
                return [waits] if seen(waits) else None

            found += await races.until(look, what=what)
        return found[-1]

    async def until_waiting(self, count):
        return await self.until(lambda waits: len(waits) == count, f"{count} waits")


@pytest.fixture
async def stage(both_apis):
    stage = Stage(*both_apis)
    yield stage
    await stage.leave()


def blockers(wait):
    return [(b["holder"], b["session"]) for b in wait["blockedBy"]]


def by_holder(waits):
    return {wait["holder"]: wait for wait in waits}


# Staged situations


async def test_a_claim_that_is_held_names_its_holder_and_until_when(stage):
    claim = Claim(await stage.scope(), 'b/"ü"')
    lease = await stage.do(claim.acquire("ann", "7"))
    stage.wait(claim.acquire("bob", "8", waitMs=WAIT_MS))
    (wait,) = await stage.until_waiting(1)
    assert wait.pop("since") > lease["leaseExpiresAt"][:10]
    until = lease["leaseExpiresAt"]
    assert wait == {
        "kind": "claim",
        "resource": claim.key,
        "units": None,
        "holder": "bob",
        "scopeId": claim.scope,
        "blockedBy": [{"holder": "ann", "session": "7", "leaseExpiresAt": until}],
        "cycle": None,
        "why": f'claim "{claim.key}" is held by "ann" until {until}',
    }


async def test_each_of_several_waiters_names_the_one_holder_the_longest_first(stage):
    claim = Claim(await stage.scope())
    await stage.do(claim.acquire("ann"))
    for count, name in enumerate(("bob", "cid", "dan"), 1):
        stage.wait(claim.acquire(name, waitMs=WAIT_MS))
        waits = await stage.until_waiting(count)
    assert [wait["holder"] for wait in waits] == ["bob", "cid", "dan"]
    assert [blockers(wait) for wait in waits] == [[("ann", "1")]] * 3
    assert sorted(waits, key=lambda wait: wait["since"]) == waits


async def test_the_same_key_in_two_scopes_has_two_holders(stage):
    scopes = [await stage.scope(), await stage.scope()]
    for scope, holder in zip(scopes, ("ann", "bob"), strict=True):
        await stage.do(Claim(scope).acquire(holder))
        stage.wait(Claim(scope).acquire("zoe", waitMs=WAIT_MS))
    waits = await stage.until_waiting(2)
    assert {wait["scopeId"]: blockers(wait) for wait in waits} == {
        scopes[0]: [("ann", "1")],
        scopes[1]: [("bob", "1")],
    }


async def test_after_a_takeover_the_new_holder_is_named(stage):
    claim = Claim(await stage.scope())
    lease = await stage.do(claim.acquire("ann"))
    first = stage.wait(claim.acquire("bob", waitMs=WAIT_MS))
    await stage.until_waiting(1)
    stage.wait(claim.acquire("zoe", waitMs=WAIT_MS))
    await stage.until_waiting(2)
    await stage.do(claim.release(lease["token"]))
    taken = (await first).json()
    (wait,) = await stage.until_waiting(1)
    assert (wait["holder"], blockers(wait)) == ("zoe", [("bob", "1")])
    assert wait["blockedBy"][0]["leaseExpiresAt"] == taken["leaseExpiresAt"]


async def test_a_renewal_moves_the_instant_until_which_one_waits(stage):
    claim = Claim(await stage.scope())
    lease = await stage.do(claim.acquire("ann"))
    stage.wait(claim.acquire("bob", waitMs=WAIT_MS))
    await stage.until_waiting(1)
    renewed = await stage.do(claim.renew(lease["token"], 3600))
    (wait,) = await stage.waits()
    assert wait["blockedBy"][0]["leaseExpiresAt"] == renewed["leaseExpiresAt"] > lease["leaseExpiresAt"]


async def test_who_waits_for_a_result_waits_for_the_one_who_works_on_it(stage):
    once = Once(await stage.scope())
    lease = await stage.do(once.acquire("ann", "7"))
    stage.wait(once.view(WAIT_MS))
    stage.wait(once.view(WAIT_MS))
    for wait in await stage.until_waiting(2):
        assert (wait["kind"], wait["resource"], wait["holder"]) == ("once", once.key, None)
        assert blockers(wait) == [("ann", "7")]
        assert wait["why"] == f'once key "{once.key}" is held by "ann" until {lease["leaseExpiresAt"]}'


async def test_who_waits_for_a_task_waits_for_its_worker(stage):
    box = await stage.mailbox(await stage.scope())
    task = (await stage.do(box.submit("page/1")))["taskId"]
    lease = await stage.do(box.admit("ann"))
    stage.wait(view(task, WAIT_MS))
    (wait,) = await stage.until_waiting(1)
    assert (wait["kind"], wait["resource"], wait["scopeId"]) == ("task", task, box.scope)
    assert blockers(wait) == [("ann", "1")]
    until = lease["leaseExpiresAt"]
    assert wait["why"] == f'task "page/1" of mailbox "research" is being worked on by "ann" until {until}'


async def test_a_task_that_nobody_has_taken_is_held_by_nobody(stage):
    box = await stage.mailbox(await stage.scope())
    task = (await stage.do(box.submit("page/1")))["taskId"]
    stage.wait(view(task, WAIT_MS))
    (wait,) = await stage.until_waiting(1)
    assert wait["blockedBy"] == []
    assert wait["why"] == 'task "page/1" of mailbox "research" waits for a worker to take it'


async def test_a_task_that_will_be_tried_again_later_says_when(stage):
    box = await stage.mailbox(await stage.scope())
    task = (await stage.do(box.submit("page/1")))["taskId"]
    lease = await stage.do(box.admit())
    held = Delivery(lease["messageId"], lease["token"], 1, None)
    later = (await stage.do(held.nack(delaySeconds=60)))["availableAt"]
    stage.wait(view(task, WAIT_MS))
    (wait,) = await stage.until_waiting(1)
    assert (wait["blockedBy"], wait["why"]) == (
        [],
        f'task "page/1" of mailbox "research" is delayed until {later}',
    )


async def test_three_who_hold_a_claim_each_and_wait_for_the_next_are_a_circle(stage):
    scope = await stage.scope()
    names = ("ann", "bob", "cid")
    for name in names:
        await stage.do(Claim(scope, f"key of {name}").acquire(name))
    for name, other in zip(names, ("bob", "cid", "ann"), strict=True):
        stage.wait(Claim(scope, f"key of {other}").acquire(name, waitMs=WAIT_MS))
    stage.wait(Claim(scope, "key of ann").acquire("zoe", waitMs=WAIT_MS))  # waits for it, and is not in it
    waits = by_holder(await stage.until_waiting(4))
    assert waits["ann"]["cycle"] == ["ann", "bob", "cid"]
    assert waits["bob"]["cycle"] == ["bob", "cid", "ann"]
    assert waits["cid"]["cycle"] == ["cid", "ann", "bob"]
    assert waits["zoe"]["cycle"] is None
    assert list(waits)[-1] == "zoe"  # circles first
    circle = 'a circle: "ann" waits for "bob", who waits for "cid", who waits for "ann"'
    assert re.fullmatch(rf'claim "key of bob" is held by "bob" until \S+; {circle}', waits["ann"]["why"])


async def test_a_chain_is_no_circle(stage):
    scope = await stage.scope()
    for name in ("ann", "bob", "cid"):
        await stage.do(Claim(scope, f"key of {name}").acquire(name))
    for name, other in (("ann", "bob"), ("bob", "cid"), ("zoe", "ann")):
        stage.wait(Claim(scope, f"key of {other}").acquire(name, waitMs=WAIT_MS))
    assert [wait["cycle"] for wait in await stage.until_waiting(3)] == [None] * 3


async def test_equal_names_in_two_sessions_are_two_who_wait(stage):
    """Two processes of one name are in a circle; one process that wants its own key again is in none."""
    scope = await stage.scope()
    for session in ("1", "2"):
        await stage.do(Claim(scope, f"key of {session}").acquire("ann", session))
    stage.wait(Claim(scope, "key of 1").acquire("ann", "1", waitMs=WAIT_MS))
    (wait,) = await stage.until_waiting(1)
    assert wait["cycle"] is None
    assert wait["why"].endswith(", which is the one who waits")
    for session, other in (("1", "2"), ("2", "1")):
        stage.wait(Claim(scope, f"key of {other}").acquire("ann", session, waitMs=WAIT_MS))
    waits = await stage.until_waiting(3)
    assert sorted(str(wait["cycle"]) for wait in waits) == ["None", *[str(["ann", "ann"])] * 2]


# What is over is not told of


async def test_idle_workers_are_blocked_by_nobody_and_not_listed(stage):
    box = await stage.mailbox(await stage.scope())
    stage.wait(box.recv(waitMs=WAIT_MS))
    stage.wait(box.admit(waitMs=WAIT_MS))
    claim = Claim(box.scope)
    await stage.do(claim.acquire("ann"))
    stage.wait(claim.acquire("bob", waitMs=WAIT_MS))  # began last: the others would be told of by then
    assert [wait["holder"] for wait in await stage.until_waiting(1)] == ["bob"]


async def test_a_waiter_that_is_answered_that_leaves_or_whose_run_ends_is_gone(stage):
    claim, once = Claim(await stage.scope()), Once(await stage.scope())
    lease = await stage.do(claim.acquire("ann"))
    await stage.do(once.acquire())
    answered = stage.wait(claim.acquire("bob", waitMs=WAIT_MS))
    leaving = stage.wait(once.view(WAIT_MS))
    await stage.until_waiting(2)
    await stage.do(claim.release(lease["token"]))
    assert (await answered).status_code == 201
    leaving.cancel()
    await stage.until_waiting(0)
    stage.wait(claim.acquire("cid", waitMs=WAIT_MS))
    await stage.until_waiting(1)
    await stage.do(end(claim.scope))
    await stage.until_waiting(0)


async def test_one_wait_of_several_polls_is_told_of_as_one(stage):
    once = Once(await stage.scope())
    await stage.do(once.acquire())
    here = stage.apis[0]
    seen = set()
    for _ in range(3):
        polling = stage.wait(once.view(2_000), here)
        (wait,) = await stage.until_waiting(1)
        seen.add(wait["since"])
        await polling
        (wait,) = await stage.waits(here)
        seen.add(wait["since"])
    assert len(seen) == 1
    await stage.until_waiting(0)  # no poll has followed


@contextlib.asynccontextmanager
async def two_replicas(url):
    """Their clients, and the replicas; one sweeps often."""
    space = spaces.create(url)
    with Replica(url, SWEEP_S="0.05") as here, Replica(url) as there:
        async with space.async_client(here.url) as one, space.async_client(there.url) as two:
            yield Stage(one, two), there


async def test_the_waits_of_a_replica_that_is_killed_are_gone_within_seconds(fresh_database):
    async with two_replicas(fresh_database) as (stage, there):
        here, dying = stage.apis
        claim = Claim(await stage.scope())
        await stage.do(claim.acquire("ann", lease_s=3600))
        stage.wait(claim.acquire("bob", waitMs=WAIT_MS), here)
        stage.wait(claim.acquire("cid", waitMs=WAIT_MS), dying)
        await stage.until_waiting(2)
        await asyncio.to_thread(there.kill)
        Clock(fresh_database).shift(GONE_S_MAX)  # the other one shows itself again every five seconds
        stage.apis = (here,)
        (wait,) = await stage.until_waiting(1)
        assert wait["holder"] == "bob"
        Clock(fresh_database).shift(60)
        rows = "SELECT count(*) FROM runstate.waits"

        async def swept():
            return await asyncio.to_thread(database.fetchval, fresh_database, rows) <= 1

        await races.until(swept, what="the sweep")
        await stage.leave()


async def test_a_replica_that_stops_takes_its_waits_back(fresh_database):
    async with two_replicas(fresh_database) as (stage, there):
        here, leaving = stage.apis
        claim = Claim(await stage.scope())
        await stage.do(claim.acquire("ann", lease_s=3600))
        stage.wait(claim.acquire("cid", waitMs=WAIT_MS), leaving)
        await stage.until_waiting(1)
        await asyncio.to_thread(there.stop)
        rows = "SELECT count(*) FROM runstate.waits"
        assert await asyncio.to_thread(database.fetchval, fresh_database, rows) == 0
        assert await stage.waits(here) == []
        await stage.leave()
