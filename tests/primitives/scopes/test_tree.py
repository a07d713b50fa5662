"""A run of two thousand scopes with work in every one: one cancel, and it is over, everywhere and at once."""

import asyncio
import random
import uuid

import pytest

from tests.support import database, races, spaces, tree
from tests.support.barriers import barrier
from tests.support.builders import Call, Once, contents, end, held, ok
from tests.support.groups import group
from tests.support.journal import events
from tests.support.metrics import Metrics
from tests.support.permits import look, pool
from tests.support.queues import Claim, Mailbox, view

SCOPES = 2_000
SLEEPERS_EACH = 5
OVER = {"SCOPE_CANCELLED"}
AFTERWARDS = {
    "an acquire of a key": ("once_acquire($1, s.id, 'new', 'bob', '1', 30, 'x', NULL, NULL)", OVER),
    "a renewal of once": ("once_renew($1, s.id, 'report', 'once-' || s.id, 30, NULL, NULL)", OVER),
    "a completion": ("once_complete($1, s.id, 'report', 'once-' || s.id, '1', NULL, NULL)", OVER),
    "a claim": ("claim_acquire($1, s.id, 'company', 'bob', '1', 30, 'x', NULL, NULL)", OVER),
    "a renewal of a claim": ("claim_renew($1, 'company', 'claim-' || s.id, 30, NULL, NULL)", OVER),
    "a release of a claim": (
        "claim_release($1, 'company', 'claim-' || s.id, NULL, NULL, NULL)",
        {"STALE_CLAIM"},
    ),
    "a send": (tree.WORK["messages"], OVER),
    "a submit": (tree.WORK["tasks"], OVER),
    "an admission": (tree.TAKE, OVER),
    "a renewal of a task": ("message_renew($1, s.id, 'task-' || s.id, 30, NULL, NULL)", OVER),
    "a completion of a task": (
        "message_complete($1, s.id, 'task-' || s.id, '1', gen_random_uuid(), NULL, NULL, NULL, NULL, NULL)",
        OVER,
    ),
    "a timer": (tree.WORK["timers"], OVER),
    "a barrier": (tree.WORK["barriers"], OVER),
    "a child": ("scope_create($1, gen_random_uuid(), NULL, s.id, NULL, 10, 32, NULL, NULL)", OVER),
}


@pytest.fixture
async def grow(database_url, kernel_schema, space):
    """Plants a tree of so many scopes."""
    async with database.connected(database_url) as connection:

        async def plant(count, below=None):
            return await tree.plant(connection, kernel_schema, space.id, count, below=below)

        yield plant


def waits(api, of, browsers):
    """Long polls on everything that can be waited for in some of the scopes."""
    for scope_id in random.Random(5).sample(of.scopes[1:], SLEEPERS_EACH):
        where = str(scope_id)
        messages = Mailbox(str(of.messages), where)
        jury = group(api, Mailbox(str(of.tasks), where))
        waiter = ok(browsers.within(where).wait().send(api))["waiterId"]
        yield Once(where, "report").view(30_000)
        yield view(where, 30_000)
        yield Claim(where, "company").acquire("bob", waitMs=30_000)
        yield Mailbox(str(of.tasks), jury.scope).admit(waitMs=30_000)
        yield messages.within(jury.scope).recv(waitMs=30_000)
        yield jury.view(30_000)
        yield look(waiter, 30_000)
        yield barrier(api, where, 2).view(30_000)
        yield Call("POST", "/timers/poll", {"scopeId": where, "waitMs": 30_000})


async def test_one_cancel_of_two_thousand_scopes_ends_all_work_and_wakes_every_sleeper(
    api, both_apis, grow, space, database_url, server, second_server
):
    planted = await grow(SCOPES)
    lent = pool(api, planted.root, 1)
    ok(lent.acquire().send(api))
    calls = list(waits(api, planted, lent))
    first, second = both_apis

    async def asleep(client, call):
        return await client.request(call.method, call.path, json=call.body, timeout=60)

    polls = [asyncio.create_task(asleep(client, call)) for call in calls for client in (first, second)]

    async def settled():
        return all(
            m.open_polls >= len(calls) and not m.looking for m in map(Metrics.of, (server, second_server))
        )

    await races.until(settled, what="the sleep of all")
    answer = ok(await first.post(f"/scopes/{planted.root}/cancel"))
    groups = SLEEPERS_EACH
    assert answer["ended"] == contents(
        scopes=SCOPES + groups,
        once=SCOPES,
        claims=SCOPES,
        messages=SCOPES,
        tasks=SCOPES,
        timers=SCOPES,
        barriers=SCOPES + SLEEPERS_EACH,
        groups=groups,
        waiters=SLEEPERS_EACH,
    )
    # Well before their own ends, which are 30 s away.
    for response in await asyncio.wait_for(asyncio.gather(*polls), 15):
        assert response.is_success or response.json()["error"]["code"] == "SCOPE_CANCELLED"
    for what, (call, codes) in AFTERWARDS.items():
        assert (await planted.codes(call)).keys() == codes, what

    def tidied():
        left = "SELECT count(*) FROM runstate.scope_tidies WHERE space_id = $1"
        return not database.fetchval(database_url, left, space.id)

    races.until_blocking(tidied, patience_s=120, what="tidying")
    told = [e.type for e in events(database_url, space.id)]
    kinds = ("once.lapsed", "claim.lapsed", "task.cancelled", "timer.cancelled")
    assert [told.count(kind) for kind in kinds] == [SCOPES] * len(kinds)
    assert told.count("barrier.cancelled") == SCOPES + SLEEPERS_EACH
    assert told.count("scope.cancelled") == 1


async def test_a_branch_of_a_thousand_scopes_ends_as_a_whole_run_does(api, grow):
    """By its scopes, which are looked for once and not for each thing in them."""
    many = SCOPES // 2
    root = ok(api.post("/scopes", json={}), 201)["id"]
    planted = await grow(many, uuid.UUID(root))
    answer = ok(end(planted.root).send(api))["ended"]
    assert answer == contents(many, **dict.fromkeys(tree.WORK, many))
    assert ok(api.get(f"/scopes/{root}"))["effective"] == "ACTIVE"
    assert (await planted.codes(AFTERWARDS["a claim"][0])).keys() == OVER


async def test_a_cancel_in_the_middle_of_a_tree_leaves_what_is_beside_it(api, grow):
    planted = await grow(SCOPES // 10)
    branch, beside = str(planted.scopes[1]), planted.scopes[2]
    below = 1 + sum((n - 1) // tree.FAN == 1 for n in range(1, SCOPES // 10))
    answer = ok(end(branch).send(api))["ended"]
    assert answer == contents(below, **dict.fromkeys(tree.WORK, below))
    assert (await planted.codes(AFTERWARDS["an acquire of a key"][0], [beside, planted.scopes[0]])) == {
        None: 2
    }
    assert (await planted.codes(AFTERWARDS["a renewal of a claim"][0], [beside])) == {None: 1}


async def test_spaces_beside_a_cancel_go_on(api, grow, database_url, server):
    planted = await grow(SCOPES // 10)
    other = spaces.create(database_url)
    with other.client(server.url) as theirs:
        run = ok(theirs.post("/scopes", json={}), 201)["id"]
        token = held(theirs, Once(run))
        ok(end(planted.root).send(api))
        ok(Once(run).complete(token, 1).send(theirs))
