"""Each filter of GET /tasks lists what its view says it is, newest first, in pages of any size."""

import pytest

from runstate_server.primitives.tasks.schemas import State
from tests.support.builders import end, in_seconds, ok, scope
from tests.support.queues import cancel, mailbox, sent, submitted, taken, task


@pytest.fixture
def tasks(api, clock):
    """Tasks in every state, among messages; the ids, oldest first."""
    run = scope(api)
    box = mailbox(api, run)
    child = box.within(scope(api, parentId=run))
    found = []
    for lease_s in (20, 3_600):
        for ending in ("complete", "fail", "hold", "cancel", "expire", "leave", "delay"):
            key = f"{ending} {lease_s}"
            more = {"deadline": in_seconds(api, 30)} if ending == "expire" else {}
            more |= {"delaySeconds": 600} if ending == "delay" else {}
            is_taken = ending in {"complete", "fail", "hold"}
            found.append(submitted(api, box, key, priority=int(is_taken), **more))
            sent(api, box)
            if is_taken:
                delivery = taken(api, box.admit(lease_s=lease_s))
                if ending != "hold":
                    ok(
                        (delivery.complete() if ending == "complete" else delivery.nack(retry=False)).send(
                            api
                        )
                    )
            if ending == "cancel":
                ok(cancel(found[-1]).send(api))
    found.append(submitted(api, child, "ends with its scope"))
    ok(end(child.scope).send(api))
    clock.shift(30)
    return found


def listed(api, **query):
    page = ok(api.get("/tasks", params=query))
    return [t["id"] for t in page["tasks"]], page["nextCursor"]


@pytest.mark.parametrize("state", [None, *State])
def test_a_filter_lists_what_is_in_that_state_whatever_the_size_of_the_pages(api, tasks, state):
    views = [task(api, each) for each in tasks[::-1]]
    wanted = [view["id"] for view in views if state in (None, view["state"])]
    assert len(wanted) >= (2 if state != State.RUNNING else 1)
    for where in ({}, {"scopeId": views[-1]["scopeId"]}, {"mailboxId": views[-1]["mailboxId"]}):
        here = [v["id"] for v in views if v["id"] in wanted and where.items() <= v.items()]
        query = where | ({"state": state} if state else {})
        assert listed(api, **query) == (here, None)
        for limit in (1, 3):
            found, cursor = listed(api, **query, limit=limit)
            while cursor is not None:
                more, cursor = listed(api, **query, limit=limit, cursor=cursor)
                found += more
            assert found == here
