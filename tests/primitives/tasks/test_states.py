"""The life of a task: QUEUED → RUNNING → SUCCEEDED | FAILED, its view, its cancel, its redrive."""

import pytest

from tests.support.builders import Call, end, in_seconds, ok, refused, scope
from tests.support.queues import cancel, mailbox, nothing, redrive, submitted, taken, task, view


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def test_a_task_runs_and_its_outcome_is_kept(api, box):
    made = submitted(api, box, "research:acme", input={"company": "acme"}, priority=7)
    queued = task(api, made)
    assert queued == {
        "id": made,
        "scopeId": box.scope,
        "mailboxId": box.id,
        "taskKey": "research:acme",
        "state": "QUEUED",
        "attempt": 0,
        "maxAttempts": 5,
        "input": {"company": "acme"},
        "outcome": None,
        "outcomeReason": None,
        "priority": 7,
        "deadline": None,
        "requirements": None,
        "subscribers": 0,
        "groupIds": [],
        "messageId": made,
        "createdAt": queued["createdAt"],
        "startedAt": None,
        "finishedAt": None,
    }
    held = taken(api, box.admit())
    running = task(api, made)
    assert running == queued | {"state": "RUNNING", "attempt": 1, "startedAt": running["startedAt"]}
    assert running["startedAt"] >= queued["createdAt"]
    assert ok(held.complete({"rows": 3}).send(api)) == {"state": "ACKED"}
    done = task(api, made)
    ending = {"state": "SUCCEEDED", "outcome": {"rows": 3}, "finishedAt": done["finishedAt"]}
    assert done == running | ending
    assert done["finishedAt"] >= done["startedAt"]


@pytest.mark.parametrize("body", [{}, {"result": None}, {"result": {}}, {"result": {"payload": None}}])
def test_a_result_that_is_null_or_absent_is_the_outcome_null(api, box, body):
    made = submitted(api, box)
    held = taken(api, box.admit())
    ok(Call("POST", f"/messages/{held.id}/complete", {"token": held.token} | body).send(api))
    seen = task(api, made)
    assert (seen["state"], seen["outcome"]) == ("SUCCEEDED", None)


@pytest.mark.parametrize(
    ("error", "reason"), [("no network", "handler_error: no network"), (None, "attempts_exhausted")]
)
def test_when_the_attempts_are_used_up_it_is_failed_with_the_last_error(api, error, reason):
    box = mailbox(api, scope(api), maxAttempts=2)
    made = submitted(api, box)
    for attempt in (1, 2):
        assert task(api, made)["state"] == "QUEUED"
        held = taken(api, box.admit())
        assert held.attempt == attempt
        given = {} if error is None else {"error": error if attempt == 2 else "earlier"}
        ok(held.nack(delaySeconds=0, **given).send(api))
    seen = task(api, made)
    assert (seen["state"], seen["outcomeReason"], seen["attempt"]) == ("FAILED", reason, 2)
    assert seen["outcome"] is None
    nothing(api, box.admit())


@pytest.mark.parametrize(
    ("error", "reason"),
    [("bad input", "handler_error: bad input"), ("", "handler_error: "), (None, "rejected")],
)
def test_a_worker_that_gives_up_fails_it_at_once(api, box, error, reason):
    made = submitted(api, box)
    given = {} if error is None else {"error": error}
    assert ok(taken(api, box.admit()).nack(retry=False, **given).send(api))["state"] == "DEAD"
    seen = task(api, made)
    assert (seen["state"], seen["outcomeReason"], seen["attempt"]) == ("FAILED", reason, 1)


def test_when_the_last_attempt_lapses_it_is_failed(api, space, database_url, clock):
    from tests.support import races
    from tests.support.journal import events

    box = mailbox(api, scope(api), maxAttempts=2)
    made = submitted(api, box)
    taken(api, box.admit(lease_s=60))
    clock.shift(61)
    held = taken(api, box.admit(lease_s=60))
    assert held.attempt == 2
    clock.shift(61)
    nothing(api, box.admit())
    seen = task(api, made)
    assert (seen["state"], seen["outcomeReason"], seen["attempt"]) == ("FAILED", "lease_expired", 2)
    assert "lease_expired" in refused(held.complete("late").send(api), "STALE_CLAIM")
    assert task(api, made) == seen
    races.until_blocking(lambda: events(database_url, space.id, "task.failed"), what="the event")


def test_a_lapsed_task_is_queued_again_and_keeps_its_first_start(api, box, clock):
    made = submitted(api, box)
    taken(api, box.admit(lease_s=60))
    started = task(api, made)["startedAt"]
    clock.shift(61)
    seen = task(api, made)
    assert (seen["state"], seen["attempt"]) == ("QUEUED", 1)
    assert taken(api, box.admit()).attempt == 2
    seen = task(api, made)
    assert (seen["state"], seen["attempt"], seen["startedAt"]) == ("RUNNING", 2, started)


def test_a_task_handed_back_is_queued_as_if_it_had_not_run(api, box):
    made = submitted(api, box)
    ok(taken(api, box.admit()).nack(handBack=True).send(api))
    seen = task(api, made)
    assert (seen["state"], seen["attempt"]) == ("QUEUED", 0)


def test_recv_delivers_tasks_too_and_says_so(api, box):
    made = submitted(api, box, input=[1])
    answer = ok(box.recv().send(api))
    assert answer["message"] == {
        "id": made,
        "payload": [1],
        "attempt": 1,
        "scopeId": box.scope,
        "deadline": None,
        "taskId": made,
    }
    assert task(api, made)["state"] == "RUNNING"


# Cancel


@pytest.mark.parametrize(("given", "reason"), [({}, "cancelled"), ({"reason": "not needed"}, "not needed")])
@pytest.mark.parametrize("before", ["queued", "delayed", "running", "lapsed", "in backoff"])
def test_what_is_not_over_is_cancelled_whoever_has_it(api, box, clock, *, given, reason, before):
    made = submitted(api, box, delaySeconds=600 if before == "delayed" else 0)
    held = taken(api, box.admit(lease_s=60)) if before not in ("queued", "delayed") else None
    if before == "lapsed":
        clock.shift(61)
    elif before == "in backoff":
        ok(held.nack(delaySeconds=600).send(api))
    answer = ok(cancel(made, **given).send(api))
    assert (answer["state"], answer["outcomeReason"]) == ("CANCELLED", reason)
    assert answer["finishedAt"]
    assert task(api, made) == answer
    assert ok(cancel(made, reason="again").send(api)) == answer
    if held is not None:
        for call in (held.renew(), held.complete(), held.nack()):
            refused(call.send(api), "STALE_CLAIM")
    clock.shift(601)
    nothing(api, box.recv())


def test_a_task_that_is_over_is_answered_as_it_is(api, box, clock):
    over = {"SUCCEEDED": submitted(api, box, "a")}
    ok(taken(api, box.admit()).complete("kept").send(api))
    over["FAILED"] = submitted(api, box, "b")
    ok(taken(api, box.admit()).nack(retry=False).send(api))
    over["EXPIRED"] = submitted(api, box, "c", deadline=in_seconds(api, 60))
    ended = box.within(scope(api, parentId=box.scope))
    over["CANCELLED"] = submitted(api, ended, "d")
    ok(end(ended.scope).send(api))
    clock.shift(61)
    for state, made in over.items():
        before = task(api, made)
        assert before["state"] == state
        after = ok(cancel(made, reason="late").send(api))
        assert {**after, "finishedAt": None} == {**before, "finishedAt": None}


def test_a_cancel_that_is_repeated_with_its_key_is_answered_the_same(api, box):
    made = submitted(api, box, input={"a": "\u0000"})
    call = cancel(made, reason="once")
    first, again = call.send(api, "key"), call.send(api, "key")
    assert ok(first) == ok(again)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == first.content


# Redrive


def test_a_failed_task_that_is_redriven_is_queued_again_with_fresh_attempts(api):
    box = mailbox(api, scope(api), maxAttempts=1)
    made = submitted(api, box)
    ok(taken(api, box.admit()).nack(error="boom").send(api))
    assert ok(redrive(made).send(api)) == {"state": "READY"}
    seen = task(api, made)
    assert (seen["state"], seen["attempt"], seen["outcomeReason"], seen["finishedAt"]) == (
        "QUEUED",
        0,
        None,
        None,
    )
    held = taken(api, box.admit())
    assert held.attempt == 1
    ok(held.complete("better").send(api))
    assert task(api, made)["outcome"] == "better"


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED"])
def test_no_other_task_can_be_redriven(api, box, state):
    made = submitted(api, box, **({"deadline": "2001-01-01T00:00:00Z"} if state == "EXPIRED" else {}))
    if state == "CANCELLED":
        ok(cancel(made).send(api))
    elif state in ("RUNNING", "SUCCEEDED"):
        held = taken(api, box.admit())
        if state == "SUCCEEDED":
            ok(held.complete().send(api))
    refused(redrive(made).send(api), "CONFLICT")
    assert task(api, made)["state"] == state


# Subscribers


def test_subscribers_are_counted_and_the_last_one_to_leave_cancels_nothing(api, box):
    made = submitted(api, box, subscriberId="ann")
    assert task(api, made)["subscribers"] == 1
    join = Call("POST", f"/tasks/{made}/join", {"subscriberId": "bob", "scopeId": box.scope})
    detach = [Call("POST", f"/tasks/{made}/detach", {"subscriberId": who}) for who in ("ann", "bob")]
    assert ok(join.send(api)) == {"subscribers": 2}
    assert ok(join.send(api)) == {"subscribers": 2}
    assert ok(box.submit(subscriberId="cy").send(api), 201)["replay"] is True
    assert task(api, made)["subscribers"] == 3
    assert ok(detach[0].send(api)) == {"subscribers": 2}
    assert ok(detach[0].send(api)) == {"subscribers": 2}
    assert ok(detach[1].send(api)) == {"subscribers": 1}
    assert ok(Call("POST", f"/tasks/{made}/detach", {"subscriberId": "cy"}).send(api)) == {"subscribers": 0}
    assert task(api, made)["state"] == "QUEUED"


def test_what_does_not_exist_is_not_found(api, box):
    unknown = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
    made = submitted(api, box)
    message = ok(box.send().send(api), 201)["id"]
    for lost in (unknown, "nonsense", message):
        calls = [view(lost), cancel(lost), Call("POST", f"/tasks/{lost}/detach", {"subscriberId": "a"})]
        calls.append(Call("POST", f"/tasks/{lost}/join", {"subscriberId": "a", "scopeId": box.scope}))
        for call in calls:
            refused(call.send(api), "NOT_FOUND")
    join = Call("POST", f"/tasks/{made}/join", {"subscriberId": "a", "scopeId": unknown})
    refused(join.send(api), "NOT_FOUND")


# Deadlines


def test_a_deadline_that_passes_expires_a_task_that_waits_or_runs(api, box, clock):
    deadline = in_seconds(api, 60)
    waiting = submitted(api, box, "a", deadline=deadline)
    running = submitted(api, box, "b", deadline=deadline, priority=1)
    held = taken(api, box.admit(lease_s=3600))
    clock.shift(61)
    for made in (waiting, running):
        seen = task(api, made)
        assert (seen["state"], seen["outcomeReason"]) == ("EXPIRED", "deadline")
    refused(held.complete().send(api), "STALE_CLAIM")
    nothing(api, box.admit())
    for made in (waiting, running):
        seen = task(api, made)
        assert (seen["state"], seen["outcomeReason"]) == ("EXPIRED", "deadline")
        assert seen["finishedAt"]


@pytest.mark.parametrize("how", ["cancel", "complete"])
def test_a_task_that_has_expired_stays_so_when_its_scope_ends_before_anybody_noticed(api, box, clock, how):
    waiting = submitted(api, box, "a", deadline=in_seconds(api, 60))
    running = submitted(api, box, "b", deadline=in_seconds(api, 60), priority=1)
    taken(api, box.admit(lease_s=3600))
    clock.shift(61)
    ok(end(box.scope, how).send(api))
    for made in (waiting, running):
        seen = task(api, made)
        assert (seen["state"], seen["outcomeReason"]) == ("EXPIRED", "deadline")
