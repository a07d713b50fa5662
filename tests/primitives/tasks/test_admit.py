"""Admitting: one task or up to max, with what an SDK needs to run them."""

import pytest

from tests.support.builders import ok, refused, scope
from tests.support.queues import batch, mailbox, nothing, sent, submitted, taken


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def test_one_task_is_answered_with_all_that_its_worker_needs(api, box):
    made = submitted(api, box, "k", input={"a": 1})
    answer = ok(box.admit().send(api))
    assert answer == {
        "taskId": made,
        "taskKey": "k",
        "messageId": made,
        "scopeId": box.scope,
        "payload": {"a": 1},
        "attempt": 1,
        "token": answer["token"],
        "leaseExpiresAt": answer["leaseExpiresAt"],
        "grants": [],
        "consumptions": [],
        "reservations": [],
    }
    assert len(answer["token"]) == 32
    nothing(api, box.admit())


def test_messages_are_left_to_recv(api, box):
    sent(api, box, priority=100)
    submitted(api, box, "task")
    assert ok(box.admit().send(api))["taskKey"] == "task"
    nothing(api, box.admit())
    nothing(api, box.admit(max=2))
    taken(api, box.recv())


def test_with_max_over_one_up_to_that_many_are_answered_in_order(api, box):
    ok(batch([box.task(str(i), input=i, priority=i % 2) for i in range(5)]).send(api))
    told = ok(box.admit(max=3).send(api))
    assert told.keys() == {"admitted"}
    assert [t["payload"] for t in told["admitted"]] == [1, 3, 0]
    assert len({t["token"] for t in told["admitted"]}) == 3
    rest = ok(box.admit(max=50).send(api))["admitted"]
    assert [t["payload"] for t in rest] == [2, 4]
    nothing(api, box.admit(max=50))
    for one in (*told["admitted"], *rest):
        body = {"token": one["token"]}
        ok(api.post(f"/messages/{one['messageId']}/complete", json=body))


def test_with_max_one_the_answer_is_the_task_itself(api, box):
    submitted(api, box)
    assert "taskId" in ok(box.admit(max=1).send(api))


def test_of_an_inbox_at_most_one_of_each_scope_is_admitted(api):
    box = mailbox(api, scope(api), mode="INBOX")
    child = box.within(scope(api, parentId=box.scope))
    ok(batch([where.task(str(i), input=i) for i in range(3) for where in (box, child)]).send(api))
    told = ok(box.admit_below(max=50).send(api))["admitted"]
    assert [(t["scopeId"], t["payload"]) for t in told] == [(box.scope, 0), (child.scope, 0)]


@pytest.mark.parametrize("count", [1, 3])
def test_an_admit_that_is_repeated_with_its_key_gets_the_same_leases_tokens_included(api, box, count):
    ok(batch([box.task(str(i), input={"i": i, "text": "\u0000é"}) for i in range(6)]).send(api))
    call = box.admit(max=count)
    first = call.send(api, "lost reply")
    ok(first)
    for _ in range(2):
        again = call.send(api, "lost reply")
        assert again.headers["Idempotent-Replayed"] == "true"
        assert (again.status_code, again.content) == (first.status_code, first.content)
    assert ok(box.view().send(api))["depth"]["leased"] == count


def test_a_replay_is_told_though_the_task_is_over_meanwhile(api, box):
    submitted(api, box, input="kept")
    call = box.admit()
    first = call.send(api, "key")
    body = {"token": ok(first)["token"]}
    ok(api.post(f"/messages/{first.json()['messageId']}/complete", json=body))
    assert call.send(api, "key").content == first.content


def test_nothing_to_admit_is_not_kept_and_the_same_key_is_served_later(api, box):
    call = box.admit()
    assert call.send(api, "later").status_code == 204
    submitted(api, box)
    assert ok(call.send(api, "later"))["attempt"] == 1


def test_the_same_key_with_another_body_is_a_conflict(api, box):
    submitted(api, box)
    ok(box.admit(holder="a").send(api, "key"))
    refused(box.admit(holder="b").send(api, "key"), "IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize("bad", [0, 51, -1, 1.5, "2", True])
def test_max_is_a_whole_number_from_1_to_50(api, box, bad):
    assert "max" in refused(box.admit(max=bad).send(api), "VALIDATION_FAILED")


def test_what_does_not_exist_is_not_found(api, box):
    unknown = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
    for change in ({"scopeId": unknown}, {"mailboxId": unknown}, {"mailboxId": "nonsense"}):
        refused(box.admit(**change).send(api), "NOT_FOUND")
    for change in ({"scopeId": unknown}, {"scopeId": "x"}):
        refused(box.recv(**change).send(api), "NOT_FOUND")
        refused(box.send(**change).send(api), "NOT_FOUND")
