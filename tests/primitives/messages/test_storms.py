"""Everything at once, over many connections: nothing is lost, recorded twice, out of order or over its
attempts."""

import asyncio
import json
import random
import uuid
from collections import Counter

import pytest

from tests.primitives.messages.storm import ATTEMPTS_MAX, Storm, World, counters, kernel
from tests.support import audit, database

ENDS = {"ACKED", "DEAD", "EXPIRED", "CANCELLED"}
SETTLED = {
    "message.acked",
    "message.dead",
    "message.expired",
    "task.succeeded",
    "task.failed",
    "task.expired",
    "task.cancelled",
}
BACK = {"message.retried", "message.lapsed", "task.retried"}


@pytest.fixture(params=[1, 2])
def storm(request, fresh_database):
    """A storm that has raged, and been drained."""

    async def rage():
        async with kernel(fresh_database) as floor:
            storm = Storm(await World.create(floor, fresh_database), random.Random(request.param))
            await storm.rage(60)
            broken = audit.broken(fresh_database)
            await storm.cancel_scope(storm.world.roots[1])
            await drain(storm)
        return storm, broken, await counters(fresh_database)  # the pool is closed: all is counted

    storm, broken, counted = asyncio.run(rage())
    assert broken == {}
    return storm, counted


async def drain(storm):
    """Complete what is left; a clock moved on ends delays and lapses leases meanwhile."""
    for _ in range(ATTEMPTS_MAX + 2):
        await storm.later()
        await storm.world.sweep()
        for box in storm.world.boxes:
            while await storm.drain(box, storm.world.roots[0]):
                pass


def test_after_a_storm_everything_acknowledged_has_one_recorded_end_and_the_tables_agree(
    storm, fresh_database
):
    raged, counted = storm
    assert audit.broken(fresh_database) == {}
    ends = {
        row["id"]: row["ended"]
        for row in database.fetch(fresh_database, "SELECT id, ended FROM runstate.messages")
    }
    assert len(raged.sent) > 150
    assert not [m for m in raged.sent if ends.get(m) not in ENDS]
    assert max(raged.acked.values()) == 1
    assert {m for m, end in ends.items() if end == "ACKED"} == set(raged.acked)
    assert set(raged.dead) >= {m for m, end in ends.items() if end == "DEAD"} - lapsed(fresh_database)
    # A rollback that is certain is repeated by the seam, and rare: no two calls lock in circles.
    assert counted["deadlocks"] == 0
    assert counted["xact_rollback"] <= 5
    events = told(fresh_database)
    assert max(e["attempt"] for e in events if "attempt" in e) <= ATTEMPTS_MAX
    recorded = Counter(e["id"] for e in events if e["type"] in ("message.acked", "task.succeeded"))
    assert recorded == {str(m): 1 for m in raged.acked}
    lines_are_in_order(fresh_database, raged.world, events)
    deliveries_alternate(events)


def lapsed(url):
    return {
        uuid.UUID(e["id"])
        for e in told(url)
        if e["type"] in ("message.dead", "task.failed") and e["attempt"] == ATTEMPTS_MAX
    }


def told(url):
    """All events in the order of their commits; no sequencer runs here, so they are in the outbox."""
    rows = database.fetch(
        url,
        "SELECT type, aggregate_id, scope_id, payload FROM runstate.outbox"
        " WHERE aggregate_type IN ('message', 'task') ORDER BY seq",
    )
    return [
        {"type": r["type"], "id": r["aggregate_id"], "scope": r["scope_id"]} | json.loads(r["payload"])
        for r in rows
    ]


def deliveries_alternate(events):
    """A message is delivered to one holder at a time, and to none once it is settled, unless it is
    redriven."""
    out: set[str] = set()
    over: set[str] = set()
    for e in events:
        if e["type"] in ("message.delivered", "task.started"):
            assert e["id"] not in out | over, e
            out.add(e["id"])
        elif e["type"] in SETTLED:
            assert e["id"] not in over, e
            out.discard(e["id"])
            over.add(e["id"])
        elif e["type"] in BACK:
            out.discard(e["id"])
            over.discard(e["id"])


def lines_are_in_order(url, world, events):
    """In an INBOX nothing is delivered while anything that arrived before it in its scope is unsettled. What
    was redriven takes its place again, and is left out."""
    arrived = {str(r["id"]): r["seq"] for r in database.fetch(url, "SELECT id, seq FROM runstate.messages")}
    again = {e["id"] for e in events if e.get("reason") == "redriven"}
    inboxes = {str(box) for box in world.inboxes}
    waiting: dict[tuple[str, str], set[int]] = {}
    delivered = 0
    for e in events:
        if e.get("mailboxId") not in inboxes or e["id"] in again:
            continue
        line = waiting.setdefault((e["mailboxId"], e["scope"]), set())
        if e["type"] in ("message.sent", "task.submitted"):
            line.add(arrived[e["id"]])
        elif e["type"] in ("message.delivered", "task.started"):
            assert min(line) == arrived[e["id"]], e
            delivered += 1
        elif e["type"] in SETTLED:
            line.discard(arrived[e["id"]])
    assert delivered > 20
