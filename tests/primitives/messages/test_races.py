"""Calls that meet: over one message, over one line, over two lines; and what waits for what."""

import asyncio
import struct
import uuid
from collections import Counter

import pytest

from tests.primitives.messages.storm import World, counters, kernel
from tests.support import audit, database, races
from tests.support.builders import end, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import (
    Mailbox,
    batch,
    cancel,
    delivery,
    mailbox,
    nothing,
    redrive,
    row,
    sent,
    submitted,
    taken,
    task,
)

LEASED = "SELECT 1 FROM runstate.queue_leased WHERE message_id = $1::text::uuid FOR UPDATE"
READY = "SELECT 1 FROM runstate.queue_ready WHERE message_id = $1::text::uuid FOR UPDATE"


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def codes(answers):
    return Counter(a.json().get("error", {}).get("code") if a.content else a.status_code for a in answers)


@pytest.mark.parametrize("mode", ["WORK", "INBOX"])
async def test_fifty_takers_over_two_replicas_share_what_there_is(api, storm, mode):
    """Messages and tasks, of several scopes and priorities: nobody is told there is nothing while there
    is."""
    box = mailbox(api, scope(api), mode=mode)
    below = [box.within(scope(api, parentId=box.scope)) for _ in range(25)]
    for i, where in enumerate(below):
        (sent if i % 2 else submitted)(api, where, f"k{i}", priority=i % 3)
        if mode == "WORK":
            (submitted if i % 2 else sent)(api, where, f"l{i}", priority=i % 3)
    answers = await storm([box.recv_below(f"w{i}") for i in range(50)])
    got = [delivery(ok(a)).id for a in answers if a.status_code == 200]
    assert len(set(got)) == len(got) == (50 if mode == "WORK" else 25)
    nothing(api, box.recv_below())


async def test_a_key_submitted_by_fifty_at_once_is_one_task(api, storm, space, database_url, box):
    calls = [box.submit("same", input=i) for i in range(25)]
    calls += [batch([box.task("other"), box.task("same", input=-i)]) for i in range(25)]
    answers = await storm(calls)
    told = [a.json() if "taskId" in a.json() else a.json()["tasks"][1] for a in answers]
    assert len({t["taskId"] for t in told}) == 1
    assert [t["replay"] for t in told].count(False) == 1
    assert len(events(database_url, space.id, "task.submitted")) == 2


async def test_a_work_key_sent_by_fifty_at_once_is_one_message(api, storm, box):
    answers = await storm([box.send(i, workKey="same") for i in range(50)])
    assert len({ok(a, 201)["id"] for a in answers}) == 1
    taken(api, box.recv())
    nothing(api, box.recv())


async def test_a_backlog_limit_is_never_passed_by_senders_at_once(api, storm):
    box = mailbox(api, scope(api), backlogLimit=10)
    calls = [box.send(i) for i in range(15)] + [
        batch([box.task(f"{i}a"), box.task(f"{i}b")]) for i in range(15)
    ]
    answers = await storm(calls)
    assert set(codes(answers)) == {None, "BACKLOG_FULL"}
    depth = ok(box.view().send(api))["depth"]["ready"]
    assert depth == sum(len(a.json().get("tasks", [0])) for a in answers if a.is_success)
    assert 9 <= depth <= 10


async def test_of_many_settles_with_one_token_one_is_recorded(api, storm, space, database_url, box):
    made = submitted(api, box)
    held = taken(api, box.admit())
    calls = [held.complete(i) for i in range(10)] + [held.nack(retry=False), held.nack(handBack=True)] * 5
    answers = await storm(calls)
    assert codes(answers) == {None: 1, "STALE_CLAIM": 19}
    done = next(i for i, answer in enumerate(answers) if answer.is_success)
    seen = task(api, made)
    if done < 10:
        assert (seen["state"], seen["outcome"]) == ("SUCCEEDED", done)
    else:
        assert seen["state"] in {"FAILED", "QUEUED"}
    told = events(database_url, space.id, "task.succeeded", "task.failed", "task.retried")
    assert len(told) == 1


async def test_a_redrive_by_many_is_one_redrive(api, storm, box):
    sent(api, box)
    held = taken(api, box.recv())
    ok(held.nack(retry=False).send(api))
    answers = await storm([redrive(held.id) for _ in range(20)])
    assert codes(answers) == {None: 1, "CONFLICT": 19}
    taken(api, box.recv())
    nothing(api, box.recv())


# One call waits for another: what is decided is decided by what is found after the wait


@pytest.mark.parametrize("call", ["complete", "nack", "renew"])
async def test_a_lease_that_ends_while_its_settle_waits_is_stale(api, database_url, clock, box, call):
    sent(api, box)
    held = taken(api, box.recv(lease_s=60))
    late_call = {"complete": held.complete(), "nack": held.nack(), "renew": held.renew(3600)}[call]
    async with races.holding(database_url, LEASED, held.id) as holder:
        late = asyncio.create_task(asyncio.to_thread(late_call.send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        clock.shift(61)
    refused(await late, "STALE_CLAIM")
    assert taken(api, box.recv()).attempt == 2


async def test_a_settle_in_flight_hides_the_message_from_takers_and_sweeps_but_not_for_ever(
    api, database_url, kernel_schema, clock, box
):
    sent(api, box)
    held = taken(api, box.recv(lease_s=60))
    clock.shift(61)
    async with races.holding(database_url, LEASED, held.id):
        nothing(api, box.recv())
        async with database.connected(database_url) as connection:
            await connection.execute("SET lock_timeout = '1ms'")
            await connection.fetchrow(f"SELECT * FROM {kernel_schema}.message_sweep(100)")
    assert taken(api, box.recv()).attempt == 2


@pytest.mark.parametrize("where", ["ready", "leased"])
async def test_a_cancel_follows_the_message_from_one_table_to_the_other(api, database_url, box, where):
    """It waits for the row, which is gone when it has been let go: then it is in the other table."""
    made = submitted(api, box)
    held = None if where == "ready" else taken(api, box.admit())
    async with races.holding(database_url, READY if where == "ready" else LEASED, made) as holder:
        cancelling = asyncio.create_task(asyncio.to_thread(cancel(made).send, api))
        await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        move = MOVE_OUT if where == "ready" else MOVE_BACK
        await holder.execute(move, uuid.UUID(made))
        await holder.execute("COMMIT; BEGIN")
    assert ok(await cancelling)["state"] == "CANCELLED"
    if held is not None:
        refused(held.complete().send(api), "STALE_CLAIM")
    nothing(api, box.recv())


_NARROW = (
    "space_id, seq, mailbox_id, scope_id, a0, a1, a2, lane, rank, deadline, attempt, message_id, started_at"
)
MOVE_OUT = f"""
WITH gone AS (DELETE FROM runstate.queue_ready r WHERE r.message_id = $1 RETURNING {_NARROW}, available_at)
INSERT INTO runstate.queue_leased ({_NARROW}, token, holder, session, lease_s, expires_at, due_at)
SELECT {_NARROW.replace("started_at", "available_at")}, 't', 'h', 's', 60, available_at + '1 hour',
       available_at + '1 hour' FROM gone"""
MOVE_BACK = f"""
WITH gone AS (DELETE FROM runstate.queue_leased l WHERE l.message_id = $1 RETURNING {_NARROW})
INSERT INTO runstate.queue_ready ({_NARROW}, available_at, deliverable)
SELECT {_NARROW}, started_at, true FROM gone"""


async def test_a_head_that_another_fetch_looks_at_and_leaves_is_not_missed(
    api, database_url, kernel_schema, box
):
    """A fetch that delivers a message has looked at the task behind it; it must not have locked it."""
    message = sent(api, box)
    made = submitted(api, box)
    take = f"""SELECT * FROM {kernel_schema}.message_take($1, $2::text::uuid, $3::text::uuid, false,
      'message', 'h', 's', 60, ARRAY['t'], '{{}}', 0, NULL, NULL)"""
    space_id = str(api.base_url).rstrip("/").rpartition("/")[2]
    async with races.holding(database_url, take, space_id, box.id, box.scope):
        assert taken(api, box.recv()).id == made
        nothing(api, box.recv())
    assert taken(api, box.recv()).id == message


# INBOX lines


async def test_two_consumers_of_an_inbox_never_hold_two_of_one_scope(api, storm, space, database_url):
    box = mailbox(api, scope(api), mode="INBOX")
    for i in range(5):
        sent(api, box, i)
    for i in range(5):
        answers = await storm([box.recv() for _ in range(10)])
        got = [delivery(ok(a)) for a in answers if a.status_code == 200]
        assert [d.payload for d in got] == [i]
        settles = await storm([got[0].complete() for _ in range(4)] + [box.recv() for _ in range(4)])
        for answer in settles[4:]:
            if answer.status_code == 200:
                next_one = delivery(ok(answer))
                assert next_one.payload == i + 1
                ok(next_one.nack(handBack=True).send(api))
    assert audit.broken(database_url) == {}


async def test_inboxes_that_answer_each_other_never_wait_in_a_circle(fresh_database):
    """Each completion holds the line of its own mailbox and wants that of the other."""

    async def ping(world, box, other):
        done = 0
        for _ in range(40):
            reply = await world.call(
                "message_take",
                box,
                world.roots[0],
                True,
                "message",
                "h",
                "s",
                60.0,
                [token := uuid.uuid4().hex],
                [],
                0.0,
            )
            if reply.status == 200:
                message = uuid.UUID(reply.facts["message"]["id"])
                sent_on = await world.call(
                    "message_complete", message, token, "1", uuid.uuid4(), other, None, None
                )
                assert sent_on.code is None
                done += 1
        return done

    async with kernel(fresh_database) as floor:
        world = await World.create(floor, fresh_database)
        one, two = world.inboxes
        for box in (one, two):
            for where in world.scopes[:3]:
                await world.call("message_send", uuid.uuid4(), box, where, "1", None, None, 0, 0.0)
        async with asyncio.timeout(60):
            pings = [ping(world, one, two) for _ in range(4)] + [ping(world, two, one) for _ in range(4)]
            done = await asyncio.gather(*pings)
    assert sum(done) > 50
    assert audit.broken(fresh_database) == {}
    assert await counters(fresh_database) == {"deadlocks": 0, "xact_rollback": 0}


@pytest.mark.parametrize("way", ["from one to two", "from two to one"])
async def test_lines_are_locked_in_the_order_of_their_numbers(api, database_url, kernel_schema, space, way):
    root = scope(api)
    one, two = (mailbox(api, root, name, mode="INBOX") for name in ("one", "two"))
    here, there = (one, two) if way == "from one to two" else (two, one)
    sent(api, here)
    held = taken(api, here.recv())
    line = f"SELECT {kernel_schema}.line_key($1, $2::text::uuid, $3::text::uuid)"
    lines = {b: database.fetchval(database_url, line, space.id, b.id, root) for b in (here, there)}
    lock = "SELECT pg_advisory_xact_lock($1)"
    async with races.holding(database_url, lock, lines[there]) as holder:
        call = asyncio.create_task(asyncio.to_thread(held.complete(1, mailboxId=there.id).send, api))
        (pid,) = await races.until_waiting(database_url, behind=await races.backend_pid(holder))
        granted = database.fetch(
            database_url,
            "SELECT classid::bigint AS high, objid::bigint AS low FROM pg_locks"
            " WHERE pid = $1 AND locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'",
            pid,
        )
    ok(await call)
    numbers = {int.from_bytes(struct.pack(">II", r["high"], r["low"]), signed=True) for r in granted}
    held_lines = numbers & set(lines.values())
    assert held_lines == {number for number in lines.values() if number < lines[there]}


# The end of a scope


async def test_a_take_that_comes_after_a_cancel_has_begun_is_refused(patient):
    async with patient.client() as (_, client):
        root = ok(await client.post("/scopes", json={}), 201)["id"]
        made = ok(await client.post("/mailboxes", json={"name": "m"}), 201)
        box = Mailbox(made["id"], root)
        for _ in range(2):
            ok(await box.send().send(client), 201)
        held = delivery(ok(await box.recv(lease_s=3600).send(client)))
        async with races.holding(patient.database_url, LEASED, held.id) as holder:
            ending = asyncio.create_task(end(root).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            late = [box.recv(), box.send(), box.submit(), held.complete(), held.nack(), held.renew()]
            calls = [asyncio.create_task(call.send(client)) for call in late]
            await races.until_waiting(patient.database_url, count=7)
        assert ok(await ending)["state"] == "CANCELLED"
        for call in calls:
            refused(await call, "SCOPE_CANCELLED")


async def test_the_end_of_a_child_while_its_messages_are_settled_is_one_or_the_other(
    api, storm, box, space, database_url
):
    child = box.within(scope(api, parentId=box.scope))
    for i in range(10):
        submitted(api, child, str(i))
    held = [taken(api, child.admit()) for _ in range(10)]
    answers = await storm([*[h.complete() for h in held], end(child.scope)])
    assert set(codes(answers)) <= {None, "STALE_CLAIM"}
    states = {h.id: row(api, box, h.id)["state"] for h in held}
    for h, answer in zip(held, answers, strict=False):
        assert states[h.id] == ("ACKED" if answer.is_success else "CANCELLED")
    told = [e.type for e in events(database_url, space.id, "task.succeeded", "task.cancelled")]
    assert len(told) == 10
    assert audit.broken(database_url) == {}
