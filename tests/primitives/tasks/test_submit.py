"""Submitting: one task per key and scope, alone and in batches; all or none."""

import pytest

from tests.support.builders import end, ok, refused, scope
from tests.support.queues import batch, cancel, delivery, mailbox, nothing, sent, submitted, taken, task


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def replayed(api, call, first, state):
    assert ok(call.send(api), 201) == {"taskId": first, "replay": True, "state": state}


def test_submitting_again_answers_with_the_first_task_whatever_its_input(api, box):
    first = submitted(api, box, input=1, priority=5)
    replayed(api, box.submit(input=2, priority=-5, delaySeconds=60), first, "QUEUED")
    seen = task(api, first)
    assert (seen["input"], seen["priority"]) == (1, 5)
    held = taken(api, box.admit())
    replayed(api, box.submit(input=3), first, "RUNNING")
    nothing(api, box.admit())
    ok(held.complete("done").send(api))
    replayed(api, box.submit(input=4), first, "SUCCEEDED")
    nothing(api, box.admit())


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "EXPIRED"])
def test_a_task_that_is_over_stays_the_answer_for_the_life_of_the_scope(api, box, state):
    first = submitted(api, box, **({"deadline": "2001-01-01T00:00:00Z"} if state == "EXPIRED" else {}))
    if state == "FAILED":
        ok(taken(api, box.admit()).nack(retry=False).send(api))
    elif state == "CANCELLED":
        ok(cancel(first).send(api))
    replayed(api, box.submit(), first, state)
    nothing(api, box.admit())


def test_the_key_is_one_task_per_scope_and_mailbox(api, box):
    other_box = mailbox(api, box.scope, "other")
    other_scope = box.within(scope(api, parentId=box.scope))
    made = {submitted(api, where, "same") for where in (box, other_box, other_scope)}
    assert len(made) == 3


@pytest.mark.parametrize(
    ("key", "other"), [("a", "A"), ("é", "e\u0301"), ("a", "a "), ("😀" * 512, "😀" * 511)]
)
def test_keys_are_compared_byte_for_byte(api, box, key, other):
    assert submitted(api, box, key) != submitted(api, box, other)


def test_a_work_key_does_the_same_for_messages(api, box):
    first = sent(api, box, 1, workKey="k")
    for _ in range(2):
        assert ok(box.send(2, workKey="k").send(api), 201) == {"id": first, "replay": True}
    held = taken(api, box.recv())
    assert (held.id, held.payload) == (first, 1)
    ok(held.complete().send(api))
    assert ok(box.send(3, workKey="k").send(api), 201) == {"id": first, "replay": True}
    nothing(api, box.recv())
    child = box.within(scope(api, parentId=box.scope))
    assert sent(api, child, workKey="k") != first
    submitted(api, box, "k")


def test_a_batch_is_answered_in_the_order_of_the_request(api, box):
    first = submitted(api, box, "b")
    answer = ok(batch([box.task(key) for key in "abc"]).send(api))
    assert [(t["replay"], t["state"]) for t in answer["tasks"]] == [
        (False, "QUEUED"),
        (True, "QUEUED"),
        (False, "QUEUED"),
    ]
    assert answer["tasks"][1]["taskId"] == first
    assert len({t["taskId"] for t in answer["tasks"]}) == 3


def test_the_same_key_twice_in_a_batch_is_one_task(api, box):
    answer = ok(batch([box.task("a", input=1), box.task("b"), box.task("a", input=2)]).send(api))
    one, _, other = answer["tasks"]
    assert one["taskId"] == other["taskId"]
    assert (one["replay"], other["replay"]) == (False, True)
    assert task(api, one["taskId"])["input"] == 1


def test_a_batch_arrives_in_the_order_of_the_request_across_scopes(api, box):
    below = [box.within(scope(api, parentId=box.scope)) for _ in range(4)]
    order = [3, 0, 2, 1, 1, 2, 0, 3]
    ok(batch([below[which].task(str(i), input=i) for i, which in enumerate(order)]).send(api))
    told = ok(box.admit_below(max=50).send(api))["admitted"]
    assert [t["payload"] for t in told] == list(range(8))


def test_a_batch_spans_runs_scopes_and_mailboxes(api, box):
    others = [
        box.within(scope(api)),
        mailbox(api, scope(api), "other"),
        mailbox(api, box.scope, "in", mode="INBOX"),
    ]
    tasks = [where.task("k", input=i) for i, where in enumerate([box, *others])]
    made = ok(batch(tasks).send(api))["tasks"]
    for where, answer in zip([box, *others], made, strict=True):
        assert taken(api, where.admit()).id == answer["taskId"]


@pytest.mark.parametrize("count", [1, 500])
def test_a_batch_holds_up_to_500_tasks(api, box, count):
    made = ok(batch([box.task(str(i), input=i, priority=i % 3) for i in range(count)]).send(api))["tasks"]
    assert len({t["taskId"] for t in made}) == count
    depth = ok(box.view().send(api))["depth"]
    assert depth == {"ready": count, "delayed": 0, "leased": 0, "dead": 0}


def test_a_batch_of_none_or_more_than_500_is_refused(api, box):
    refused(batch([]).send(api), "VALIDATION_FAILED")
    message = refused(batch([box.task(str(i)) for i in range(501)]).send(api), "VALIDATION_FAILED")
    assert "tasks" in message


BAD = {
    "a scope that does not exist": ({"scopeId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"}, "NOT_FOUND"),
    "a mailbox that does not exist": ({"mailboxId": "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"}, "NOT_FOUND"),
    "a key that is too long": ({"taskKey": "k" * 513}, "VALIDATION_FAILED"),
    "no key": ({"taskKey": None}, "VALIDATION_FAILED"),
    "a field nobody knows": ({"colour": "red"}, "VALIDATION_FAILED"),
    "an input that is too large": ({"input": "a" * 65_535}, "VALIDATION_FAILED"),
    "a deadline without offset": ({"deadline": "2999-01-01T00:00:00"}, "VALIDATION_FAILED"),
    "a priority out of bounds": ({"priority": 101}, "VALIDATION_FAILED"),
    "a delay below zero": ({"delaySeconds": -1}, "VALIDATION_FAILED"),
    "a delay over a year and a day": ({"delaySeconds": 366 * 86_400 + 1}, "VALIDATION_FAILED"),
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_task_refuses_the_whole_batch_and_a_submit_alike(api, box, what):
    change, code = BAD[what]
    bad = box.task("bad") | change
    message = refused(batch([box.task("good"), bad]).send(api), code)
    assert any(word in message for word in (*change, *map(str, change.values()))), message
    refused(api.post("/tasks", json=bad), code)
    nothing(api, box.admit())


def test_an_ended_scope_refuses_the_whole_batch(api, box):
    ended = box.within(scope(api))
    first = submitted(api, ended, "there before")
    ok(end(ended.scope).send(api))
    for key in ("new", "there before"):
        refused(batch([box.task("good"), ended.task(key)]).send(api), "SCOPE_CANCELLED")
    nothing(api, box.admit())
    assert task(api, first)["state"] == "CANCELLED"


# backlogLimit


def test_past_its_backlog_limit_a_mailbox_takes_nothing_more(api):
    box = mailbox(api, scope(api), "small", backlogLimit=3)
    sent(api, box)
    sent(api, box, delaySeconds=600)
    submitted(api, box, "a")
    for call in (box.send(), box.submit("b"), batch([box.task("c")])):
        message = refused(call.send(api), "BACKLOG_FULL")
        assert '"small"' in message
        assert "3" in message
    held = taken(api, box.recv())
    sent(api, box)
    refused(box.send().send(api), "BACKLOG_FULL")
    assert ok(held.nack(delaySeconds=0).send(api))["state"] == "READY"
    refused(box.send().send(api), "BACKLOG_FULL")


def test_what_is_there_already_is_answered_by_a_full_mailbox(api):
    box = mailbox(api, scope(api), backlogLimit=2)
    task_id, message = submitted(api, box, "t"), sent(api, box, workKey="w")
    replayed(api, box.submit("t"), task_id, "QUEUED")
    assert ok(box.send(workKey="w").send(api), 201) == {"id": message, "replay": True}
    assert ok(batch([box.task("t"), box.task("t")]).send(api))["tasks"][0]["replay"] is True


def test_a_batch_that_does_not_fit_is_refused_whole_and_one_that_just_fits_is_taken(api):
    box = mailbox(api, scope(api), backlogLimit=3)
    free = mailbox(api, box.scope, "free")
    refused(batch([free.task("x"), *[box.task(str(i)) for i in range(4)]]).send(api), "BACKLOG_FULL")
    nothing(api, free.admit())
    ok(batch([*[box.task(str(i)) for i in range(3)], box.task("0")]).send(api))
    refused(batch([box.task("0"), box.task("new")]).send(api), "BACKLOG_FULL")


def test_what_waits_behind_the_head_of_an_inbox_counts(api):
    box = mailbox(api, scope(api), mode="INBOX", backlogLimit=2)
    sent(api, box)
    sent(api, box)
    refused(box.send().send(api), "BACKLOG_FULL")
    ok(taken(api, box.recv()).complete().send(api))
    sent(api, box)


def test_a_refusal_is_not_kept_and_the_same_key_succeeds_later(api):
    box = mailbox(api, scope(api), backlogLimit=1)
    sent(api, box)
    call = box.submit("t")
    refused(call.send(api, "retried"), "BACKLOG_FULL")
    ok(taken(api, box.recv()).complete().send(api))
    made = ok(call.send(api, "retried"), 201)
    assert (made["replay"], made["state"]) == (False, "QUEUED")


def test_settings_that_change_under_load_count_at_once(api):
    box = mailbox(api, scope(api), "changing", backlogLimit=1)
    sent(api, box)
    refused(box.send().send(api), "BACKLOG_FULL")
    ok(api.put("/mailboxes/by-name/changing", json={"backlogLimit": 2}))
    sent(api, box)
    ok(api.put("/mailboxes/by-name/changing", json={"backlogLimit": 1}))
    refused(box.send().send(api), "BACKLOG_FULL")
    assert len({delivery(ok(box.recv().send(api))).id for _ in range(2)}) == 2
