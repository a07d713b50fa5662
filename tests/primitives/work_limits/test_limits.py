"""At most N unfinished tasks of a name in a scope and below it."""

import pytest

from tests.promises.rows_messages import box
from tests.support.builders import Call, at_once, end, in_seconds, ok, refused, scope
from tests.support.limits import define, limit, outstanding
from tests.support.queues import batch, cancel, mailbox, redrive, submitted, taken


@pytest.fixture
def queue(api):
    return box(api)


def under(queue, key, name="outstanding", **more):
    return queue.submit(key, workLimit=name, **more)


def test_a_limit_is_seen_with_what_is_outstanding(api, queue):
    made = ok(define(queue.scope, 2).send(api), 201)
    assert made == {
        "id": made["id"],
        "name": "outstanding",
        "scopeId": queue.scope,
        "maxOutstanding": 2,
        "outstanding": 0,
    }
    ok(under(queue, "a").send(api), 201)
    submitted(api, queue, "free")
    assert ok(Call("GET", "/work-limits").send(api)) == {
        "workLimits": [made | {"outstanding": 1}],
        "nextCursor": None,
    }
    message = refused(define(queue.scope, 5).send(api), "CONFLICT", 409)
    assert '"outstanding"' in message
    ok(define(queue.scope, 5, "another").send(api), 201)
    ok(define(scope(api), 5).send(api), 201)  # its name is its scope's
    page = ok(Call("GET", "/work-limits?limit=2").send(api))
    rest = ok(Call("GET", f"/work-limits?limit=2&cursor={page['nextCursor']}").send(api))
    assert [len(page["workLimits"]), len(rest["workLimits"]), rest["nextCursor"]] == [2, 1, None]


def test_past_it_a_submit_is_refused_and_each_end_makes_room(api, queue, clock):
    it = limit(api, queue.scope, 1)

    def full():
        message = refused(under(queue, "one too many").send(api), "BACKLOG_FULL", 409)
        assert '"outstanding"' in message
        assert "1" in message
        assert outstanding(api, it) == 1

    first = submitted(api, queue, "a", workLimit="outstanding")
    full()
    held = taken(api, queue.admit())
    full()  # running is unfinished, too
    ok(held.nack(delaySeconds=0).send(api))
    full()
    held = taken(api, queue.admit())
    ok(held.complete({"done": True}).send(api))
    assert outstanding(api, it) == 0

    second = submitted(api, queue, "b", workLimit="outstanding")
    full()
    ok(cancel(second).send(api))
    third = submitted(api, queue, "c", workLimit="outstanding")
    ok(taken(api, queue.admit()).nack(retry=False, error="no").send(api))
    assert outstanding(api, it) == 0
    ok(redrive(third).send(api))
    full()  # a task that is driven again is unfinished again
    assert first != third


def test_a_task_that_is_there_already_costs_nothing(api, queue):
    it = limit(api, queue.scope, 1)
    first = ok(under(queue, "a").send(api), 201)
    assert ok(under(queue, "a").send(api), 201) == first | {"replay": True}
    assert outstanding(api, it) == 1
    submitted(api, queue, "not under it")
    assert ok(under(queue, "not under it").send(api), 201)["replay"] is True
    assert outstanding(api, it) == 1


def test_the_nearest_limit_of_the_name_on_the_chain_counts(api, queue):
    child = scope(api, parentId=queue.scope)
    below = queue.within(scope(api, parentId=child))
    above, near = limit(api, queue.scope, 1), limit(api, child, 2)
    for key in ("a", "b"):
        ok(under(below, key).send(api), 201)
    refused(under(below, "c").send(api), "BACKLOG_FULL")
    assert (outstanding(api, above), outstanding(api, near)) == (0, 2)
    ok(under(queue, "a").send(api), 201)
    refused(under(queue, "b").send(api), "BACKLOG_FULL")
    assert (outstanding(api, above), outstanding(api, near)) == (1, 2)


def test_a_limit_bounds_its_whole_subtree_and_all_its_mailboxes(api, queue):
    limit(api, queue.scope, 2)
    other = mailbox(api, scope(api, parentId=queue.scope), "another")
    ok(under(queue, "a").send(api), 201)
    ok(under(other, "a").send(api), 201)
    refused(under(queue, "b").send(api), "BACKLOG_FULL")
    refused(under(other, "b").send(api), "BACKLOG_FULL")


def test_a_name_that_no_scope_of_the_chain_has_is_not_found(api, queue):
    limit(api, scope(api, parentId=queue.scope), 5, "below")
    limit(api, scope(api), 5, "elsewhere")
    for name in ("below", "elsewhere", "none"):
        assert f'"{name}"' in refused(under(queue, "k", name).send(api), "NOT_FOUND", 404)
        it = [queue.task("a"), queue.task("b", workLimit=name)]
        refused(batch(it).send(api), "NOT_FOUND", 404)
    assert ok(api.get("/tasks"))["tasks"] == []


def test_a_batch_fits_as_a_whole_or_not_at_all(api, queue):
    it = limit(api, queue.scope, 3)
    ok(under(queue, "a").send(api), 201)
    four = [queue.task(key, workLimit="outstanding") for key in ("a", "b", "c", "d")]
    refused(batch(four).send(api), "BACKLOG_FULL")
    assert outstanding(api, it) == 1
    ok(batch([*four[:3], four[1]]).send(api))  # one was there, one is named twice
    assert outstanding(api, it) == 3


@pytest.mark.parametrize(
    "unnoticed", ["the deadline of the task", "the deadline of its scope", "its scope's end"]
)
def test_what_is_over_and_not_yet_swept_counts_no_more(api, queue, clock, unnoticed):
    it = limit(api, queue.scope, 1)
    soon = in_seconds(api, 60)
    if unnoticed == "the deadline of the task":
        ok(under(queue, "a", deadline=soon).send(api), 201)
        clock.shift(61)
    else:
        deadline = soon if unnoticed == "the deadline of its scope" else None
        child = scope(api, parentId=queue.scope, deadline=deadline)
        ok(under(queue.within(child), "a").send(api), 201)
        if deadline:
            clock.shift(61)
        else:
            ok(end(child).send(api))
    assert outstanding(api, it) == 0
    ok(under(queue, "b").send(api), 201)


async def test_of_fifty_submits_at_once_over_two_replicas_a_limit_of_ten_lets_ten_through(
    api, both_apis, queue
):
    it = limit(api, queue.scope, 10)
    other = mailbox(api, scope(api, parentId=queue.scope), "another")
    answers = await at_once(both_apis, [under((queue, other)[n % 2], f"k{n}") for n in range(50)])
    assert [a.status_code for a in answers].count(201) == 10
    for answer in answers:
        if answer.status_code != 201:
            refused(answer, "BACKLOG_FULL")
    assert outstanding(api, it) == 10


async def test_batches_that_name_limits_in_opposite_order_do_not_wait_in_a_circle(api, both_apis, queue):
    for name in ("a", "b"):
        limit(api, queue.scope, 1_000, name)
    calls = []
    for n in range(30):
        names = ("a", "b") if n % 2 else ("b", "a")
        calls.append(batch([queue.task(f"{n}-{name}", workLimit=name) for name in names]))
    answers = await at_once(both_apis, calls)
    assert {a.status_code for a in answers} == {200}


def test_a_full_limit_may_be_tried_under_the_same_key_until_it_has_room(api, queue):
    limit(api, queue.scope, 1)
    ok(under(queue, "a").send(api), 201)
    call = under(queue, "b")
    for _ in range(2):
        refused(call.send(api, "again"), "BACKLOG_FULL")
    ok(taken(api, queue.admit()).complete(1).send(api))
    ok(call.send(api, "again"), 201)
    assert call.send(api, "again").headers["idempotent-replayed"] == "true"


def test_the_end_of_a_scope_stops_new_limits(api):
    root = scope(api)
    ok(end(root).send(api))
    refused(define(root).send(api), "SCOPE_CANCELLED", 409)
