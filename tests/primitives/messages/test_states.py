"""The life of a message: READY → LEASED → ACKED | READY | DEAD, and who may move it."""

import pytest

from tests.support.builders import ok, refused, scope
from tests.support.queues import (
    Delivery,
    dead,
    delivery,
    mailbox,
    nothing,
    redrive,
    row,
    sent,
    taken,
)


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def test_what_is_sent_is_delivered_once_and_settled_for_good(api, box):
    message = sent(api, box, {"company": "acme"})
    answer = ok(box.recv(holder="ann").send(api))
    assert answer.keys() == {"message", "token", "leaseExpiresAt"}
    assert answer["message"] == {
        "id": message,
        "payload": {"company": "acme"},
        "attempt": 1,
        "scopeId": box.scope,
        "deadline": None,
        "taskId": None,
    }
    nothing(api, box.recv(holder="bob"))
    assert ok(delivery(answer).complete().send(api)) == {"state": "ACKED"}
    nothing(api, box.recv())
    assert row(api, box, message)["state"] == "ACKED"


def test_a_delivery_is_held_by_its_token_alone(api, box):
    message = sent(api, box)
    held = taken(api, box.recv(holder="ann"))
    other = Delivery(message, "wrong", 1, None)
    for call in (other.renew(), other.complete(), other.nack()):
        assert '"ann" holds it until' in refused(call.send(api), "STALE_CLAIM")
    assert row(api, box, message)["state"] == "LEASED"
    ok(held.complete().send(api))


def test_a_settled_delivery_is_stale_and_nothing_changes(api, box):
    held = dead_or_acked(api, box)
    for acked, message in held:
        before = row(api, box, acked.id)
        for call in (acked.renew(), acked.complete("late"), acked.nack(), acked.nack(retry=False)):
            assert message in refused(call.send(api), "STALE_CLAIM")
        assert row(api, box, acked.id) == before


def dead_or_acked(api, box):
    sent(api, box)
    acked = taken(api, box.recv())
    ok(acked.complete().send(api))
    return [(acked, "ACKED"), (dead(api, box), "DEAD")]


def test_a_message_that_does_not_exist_is_not_found(api, box):
    lost = Delivery("0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47", "t", 1, None)
    for call in (lost.renew(), lost.complete(), lost.nack(), redrive(lost.id), redrive("nonsense")):
        refused(call.send(api), "NOT_FOUND")


def test_a_nack_puts_the_message_back_and_the_next_delivery_counts_it(api, box):
    message = sent(api, box)
    held = taken(api, box.recv())
    answer = ok(held.nack(delaySeconds=0).send(api))
    assert answer == {"state": "READY", "attempt": 1, "availableAt": answer["availableAt"]}
    assert row(api, box, message)["attempt"] == 1
    assert taken(api, box.recv()).attempt == 2
    refused(held.complete().send(api), "STALE_CLAIM")


def test_a_lapsed_lease_makes_it_deliverable_at_once_with_the_next_attempt(api, box, clock):
    message = sent(api, box)
    slow = taken(api, box.recv(holder="slow", lease_s=60))
    clock.shift(61)
    seen = row(api, box, message)
    assert (seen["state"], seen["holder"], seen["leaseExpiresAt"]) == ("READY", None, None)
    heir = taken(api, box.recv(holder="heir"))
    assert (heir.id, heir.attempt) == (message, 2)
    for call in (slow.renew(), slow.complete("late"), slow.nack()):
        assert '"heir"' in refused(call.send(api), "STALE_CLAIM")
    assert ok(heir.complete().send(api)) == {"state": "ACKED"}


def test_a_lapsed_lease_is_never_revived_not_even_if_nobody_took_it(api, box, clock):
    sent(api, box)
    held = taken(api, box.recv(lease_s=60))
    clock.shift(61)
    for call in (held.renew(), held.renew(3600), held.complete(), held.nack()):
        assert "lapsed" in refused(call.send(api), "STALE_CLAIM")
    assert taken(api, box.recv()).attempt == 2


def test_a_renewal_extends_the_lease_and_none_shortens_it(api, box, clock):
    message = sent(api, box)
    held = taken(api, box.recv(lease_s=60))
    first = row(api, box, message)["leaseExpiresAt"]
    longer = ok(held.renew(600).send(api))
    assert longer.keys() == {"leaseExpiresAt"}
    assert longer["leaseExpiresAt"] > first
    assert ok(held.renew(1).send(api)) == longer
    clock.shift(300)
    nothing(api, box.recv())
    clock.shift(301)
    assert taken(api, box.recv()).attempt == 2


def test_a_renewal_without_a_length_uses_the_lease_s_own(api, box, clock):
    sent(api, box)
    held = taken(api, box.recv(lease_s=100))
    for _ in range(3):
        clock.shift(80)
        ok(held.renew().send(api))
        nothing(api, box.recv())
    clock.shift(101)
    assert taken(api, box.recv()).attempt == 2


@pytest.mark.parametrize("how", ["nack", "lapse"])
def test_when_the_attempts_are_used_up_the_message_is_dead(api, clock, how):
    box = mailbox(api, scope(api), maxAttempts=3)
    message = sent(api, box)
    for attempt in (1, 2, 3):
        held = taken(api, box.recv(lease_s=60))
        assert held.attempt == attempt
        if how == "nack":
            answer = ok(held.nack(error=f"e{attempt}", delaySeconds=0).send(api))
            assert answer["state"] == ("DEAD" if attempt == 3 else "READY")
            assert answer["attempt"] == attempt
        else:
            clock.shift(61)
    nothing(api, box.recv())
    seen = row(api, box, message)
    assert (seen["state"], seen["attempt"]) == ("DEAD", 3)
    assert seen["lastError"] == ("e3" if how == "nack" else None)


def test_a_nack_that_gives_up_is_dead_at_once_with_its_error(api, box):
    message = sent(api, box)
    assert ok(taken(api, box.recv()).nack(retry=False, error="no such company").send(api)) == {
        "state": "DEAD",
        "attempt": 1,
    }
    nothing(api, box.recv())
    seen = row(api, box, message)
    assert (seen["state"], seen["lastError"]) == ("DEAD", "no such company")


def test_max_attempts_is_read_at_the_settle(api, box):
    """The mailbox's settings may change while a message is out."""
    sent(api, box)
    held = taken(api, box.recv())
    ok(api.put("/mailboxes/by-name/research", json={"maxAttempts": 1}))
    assert ok(held.nack(delaySeconds=0).send(api))["state"] == "DEAD"
    ok(api.put("/mailboxes/by-name/research", json={"maxAttempts": 2}))
    sent(api, box)
    assert ok(taken(api, box.recv()).nack(delaySeconds=0).send(api))["state"] == "READY"


def test_handing_back_costs_no_attempt_however_often_and_is_available_at_once(api):
    box = mailbox(api, scope(api), maxAttempts=1)
    message = sent(api, box)
    for _ in range(3):
        held = taken(api, box.recv())
        assert held.attempt == 1
        answer = ok(held.nack(handBack=True).send(api))
        assert answer == {"state": "READY", "attempt": 0, "availableAt": answer["availableAt"]}
    assert row(api, box, message)["attempt"] == 0
    assert ok(taken(api, box.recv()).nack(delaySeconds=0).send(api))["state"] == "DEAD"


def test_handing_back_after_a_failed_attempt_keeps_the_count_of_that(api, box):
    sent(api, box)
    ok(taken(api, box.recv()).nack(error="boom", delaySeconds=0).send(api))
    held = taken(api, box.recv())
    assert ok(held.nack(handBack=True).send(api))["attempt"] == 1
    assert taken(api, box.recv()).attempt == 2


@pytest.mark.parametrize("attempt", [1, 2, 3, 8, 20])
def test_the_backoff_doubles_from_half_a_second_to_a_minute_give_or_take_a_fifth(api, attempt):
    from datetime import datetime

    box = mailbox(api, scope(api), maxAttempts=100)
    sent(api, box)
    for _ in range(attempt - 1):
        ok(taken(api, box.recv()).nack(delaySeconds=0).send(api))
    before = datetime.fromisoformat(ok(api.post("/scopes", json={}), 201)["createdAt"])
    answer = ok(taken(api, box.recv()).nack().send(api))
    after = datetime.fromisoformat(ok(api.post("/scopes", json={}), 201)["createdAt"])
    available = datetime.fromisoformat(answer["availableAt"])
    base = min(0.5 * 2 ** (attempt - 1), 60)
    assert 0.8 * base <= (available - before).total_seconds() + 0.001
    assert (available - after).total_seconds() - 0.001 <= min(1.2 * base, 60)


def test_a_delay_given_with_the_nack_replaces_the_backoff(api, box, clock):
    sent(api, box)
    ok(taken(api, box.recv()).nack(delaySeconds=600).send(api))
    clock.shift(590)
    nothing(api, box.recv())
    clock.shift(11)
    assert taken(api, box.recv()).attempt == 2


def test_a_dead_message_that_is_redriven_gets_a_fresh_set_of_attempts(api):
    box = mailbox(api, scope(api), maxAttempts=2)
    message = sent(api, box)
    for _ in range(2):
        ok(taken(api, box.recv()).nack(error="boom", delaySeconds=0).send(api))
    assert ok(redrive(message).send(api)) == {"state": "READY"}
    seen = row(api, box, message)
    assert (seen["state"], seen["attempt"]) == ("READY", 0)
    for attempt in (1, 2):
        held = taken(api, box.recv())
        assert held.attempt == attempt
        ok(held.nack(error="boom", delaySeconds=0).send(api))
    assert row(api, box, message)["state"] == "DEAD"


def test_only_a_dead_message_can_be_redriven(api, box, clock):
    ready = sent(api, box)
    assert "not settled" in refused(redrive(ready).send(api), "CONFLICT")
    held = taken(api, box.recv())
    refused(redrive(ready).send(api), "CONFLICT")
    ok(held.complete().send(api))
    assert "ACKED" in refused(redrive(ready).send(api), "CONFLICT")
    expired = sent(api, box, deadline="2001-01-01T00:00:00Z")
    nothing(api, box.recv())
    assert "EXPIRED" in refused(redrive(expired).send(api), "CONFLICT")
    gone = dead(api, box)
    ok(redrive(gone.id).send(api))
    refused(redrive(gone.id).send(api), "CONFLICT")


def test_a_worker_that_reuses_a_holder_name_holds_only_what_it_was_given(api, box):
    sent(api, box, 1)
    sent(api, box, 2)
    first, second = taken(api, box.recv(holder="w")), taken(api, box.recv(holder="w"))
    assert first.id != second.id
    crossed = Delivery(first.id, second.token, 1, None)
    for call in (crossed.renew(), crossed.complete(), crossed.nack()):
        refused(call.send(api), "STALE_CLAIM")
    ok(first.complete().send(api))
    ok(second.complete().send(api))


def test_the_depth_counts_what_waits_what_is_delayed_held_and_dead(api, box, clock):
    empty = {"ready": 0, "delayed": 0, "leased": 0, "dead": 0}
    seen = ok(box.view().send(api))
    assert (seen["depth"], seen["oldestReadyAt"]) == (empty, None)
    dead(api, box)
    for _ in range(3):
        sent(api, box)
    sent(api, box, delaySeconds=600)
    oldest = row(api, box, taken(api, box.recv(lease_s=60)).id)
    seen = ok(box.view().send(api))
    assert seen["depth"] == {"ready": 2, "delayed": 1, "leased": 1, "dead": 1}
    assert seen["oldestReadyAt"] >= oldest["createdAt"]
    clock.shift(61)
    assert ok(box.view().send(api))["depth"] == {"ready": 3, "delayed": 1, "leased": 0, "dead": 1}
    clock.shift(600)
    assert ok(box.view().send(api))["depth"] == {"ready": 4, "delayed": 0, "leased": 0, "dead": 1}
