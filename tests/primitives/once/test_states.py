"""The life of a once key: OPEN → HELD → DONE | FAILED, and who may move it."""

import pytest

from tests.support.builders import Once, end, held, in_seconds, ok, refused, scope


@pytest.fixture
def once(api):
    return Once(scope(api))


def test_one_caller_owns_the_key_and_everyone_else_is_told_so(api, once):
    mine = ok(once.acquire(holder="a").send(api))
    theirs = ok(once.acquire(holder="b").send(api))
    assert (mine["state"], theirs["state"]) == ("ACQUIRED", "HELD")
    assert theirs["leaseExpiresAt"] == mine["leaseExpiresAt"]


def test_the_same_holder_and_session_do_not_get_the_key_twice(api, once):
    held(api, once, holder="a", session="1")
    assert ok(once.acquire(holder="a", session="1").send(api))["state"] == "HELD"


def test_a_recorded_result_is_the_answer_for_everyone_and_for_good(api, once):
    token = held(api, once)
    assert ok(once.complete(token, {"report": 1}).send(api)) == {"state": "DONE"}
    for _ in range(2):
        answer = ok(once.acquire(holder="late").send(api))
        assert answer == {"state": "DONE", "attempts": 0, "result": {"report": 1}}
    assert ok(once.view().send(api)) == {"state": "DONE", "attempts": 0, "result": {"report": 1}}
    for call in (once.complete(token, "other"), once.fail(token), once.renew(token)):
        refused(call.send(api), "STALE_CLAIM")
    assert ok(once.view().send(api))["result"] == {"report": 1}


def test_a_failure_opens_the_key_for_the_next_caller_who_learns_of_it(api, once):
    assert ok(once.fail(held(api, once), "no network").send(api)) == {"state": "OPEN", "attempts": 1}
    assert ok(once.view().send(api)) == {"state": "OPEN", "attempts": 1, "lastError": "no network"}
    answer = ok(once.acquire(holder="next").send(api))
    assert (answer["state"], answer["attempts"]) == ("ACQUIRED", 1)


def test_attempts_count_failures_until_the_key_is_failed_for_good(api, once):
    for attempt in (1, 2):
        assert ok(once.fail(held(api, once), f"e{attempt}").send(api)) == {
            "state": "OPEN",
            "attempts": attempt,
        }
    assert ok(once.fail(held(api, once), "e3").send(api)) == {"state": "FAILED", "attempts": 3}
    failed = {"state": "FAILED", "attempts": 3, "lastError": "e3"}
    assert ok(once.acquire().send(api)) == failed
    assert ok(once.view().send(api)) == failed


def test_the_caller_that_fails_says_how_many_attempts_are_allowed(api, once):
    ok(once.fail(held(api, once), max_attempts=100).send(api))
    assert ok(once.fail(held(api, once), max_attempts=1).send(api)) == {"state": "FAILED", "attempts": 2}


def test_a_success_after_failures_forgets_the_error_and_keeps_the_count(api, once):
    ok(once.fail(held(api, once)).send(api))
    ok(once.complete(held(api, once), 7).send(api))
    assert ok(once.view().send(api)) == {"state": "DONE", "attempts": 1, "result": 7}


def test_a_lapsed_lease_opens_the_key_at_once_and_is_no_failure(api, once, clock):
    held(api, once, holder="dead", lease_s=60)
    clock.shift(61)
    assert ok(once.view().send(api)) == {"state": "OPEN", "attempts": 0}
    answer = ok(once.acquire(holder="heir").send(api))
    assert (answer["state"], answer["attempts"]) == ("ACQUIRED", 0)


def test_a_lapsed_lease_is_never_revived_not_even_if_nobody_took_it(api, once, clock):
    token = held(api, once, lease_s=60)
    clock.shift(61)
    for call in (once.renew(token), once.complete(token, "late"), once.fail(token)):
        assert "lapsed" in refused(call.send(api), "STALE_CLAIM")
    assert ok(once.view().send(api)) == {"state": "OPEN", "attempts": 0}


def test_an_owner_that_was_taken_over_changes_nothing(api, once, clock):
    old = held(api, once, holder="slow", lease_s=60)
    clock.shift(61)
    new = held(api, once, holder="heir", lease_s=60)
    for call in (once.renew(old), once.complete(old, "first"), once.fail(old, "first", 1)):
        assert '"heir"' in refused(call.send(api), "STALE_CLAIM")
    seen = ok(once.view().send(api))
    assert (seen["state"], seen["holder"], seen["attempts"]) == ("HELD", "heir", 0)
    assert ok(once.complete(new, "second").send(api)) == {"state": "DONE"}
    assert ok(once.view().send(api))["result"] == "second"


def test_a_renewal_extends_the_lease_and_none_shortens_it(api, once, clock):
    token = held(api, once, lease_s=60)
    first = ok(once.view().send(api))["leaseExpiresAt"]
    longer = ok(once.renew(token, 600).send(api))
    assert longer.keys() == {"leaseExpiresAt"}
    assert longer["leaseExpiresAt"] > first
    assert ok(once.renew(token, 1).send(api)) == longer
    assert ok(once.view().send(api))["leaseExpiresAt"] == longer["leaseExpiresAt"]
    clock.shift(300)
    assert ok(once.acquire(holder="b").send(api))["state"] == "HELD"
    clock.shift(301)
    assert ok(once.acquire(holder="b").send(api))["state"] == "ACQUIRED"


def test_a_wrong_token_is_stale_whatever_the_state_of_the_key(api, once):
    for call in (once.renew("x"), once.complete("x"), once.fail("x")):
        assert "nobody has acquired it" in refused(call.send(api), "STALE_CLAIM")
    held(api, once)
    for call in (once.renew("x"), once.complete("x"), once.fail("x")):
        refused(call.send(api), "STALE_CLAIM")
    seen = ok(once.view().send(api))
    assert (seen["state"], seen["attempts"]) == ("HELD", 0)


def test_the_token_of_one_key_opens_no_other(api, once):
    token = held(api, once)
    other = Once(once.scope, "other")
    held(api, other)
    refused(other.complete(token, 1).send(api), "STALE_CLAIM")


def test_equal_keys_in_two_scopes_are_two_keys(api, once):
    other = Once(scope(api, parentId=once.scope), once.key)
    ok(once.complete(held(api, once), "parent").send(api))
    assert ok(other.acquire().send(api))["state"] == "ACQUIRED"


@pytest.mark.parametrize(
    ("key", "other"),
    [("a", "A"), ("é", "e\u0301"), ("ß", "ss"), ("a", "a "), ("a/b", "a%2Fb"), ("\U0001f600", "\U0001f601")],
)
def test_keys_are_compared_byte_for_byte(api, once, key, other):
    held(api, Once(once.scope, key))
    assert ok(Once(once.scope, other).acquire().send(api))["state"] == "ACQUIRED"
    assert ok(Once(once.scope, key).acquire().send(api))["state"] == "HELD"


@pytest.mark.parametrize(
    ("how", "code"),
    [("cancel", "SCOPE_CANCELLED"), ("complete", "SCOPE_CANCELLED"), (None, "DEADLINE_EXCEEDED")],
)
def test_nothing_is_granted_or_recorded_in_a_scope_that_has_ended(api, clock, how, code):
    once = Once(scope(api, deadline="2999-01-01T00:00:00Z" if how else in_seconds(api, 60)))
    token = held(api, once, lease_s=3600)
    if how:
        ok(end(once.scope, how).send(api))
    else:
        clock.shift(120)
    calls = (once.acquire(), once.renew(token), once.complete(token, 1), once.fail(token))
    for call in (*calls, Once(once.scope, "new").acquire()):
        assert once.scope in refused(call.send(api), code)
    assert ok(once.view(wait_ms=30_000).send(api)) == {"state": "OPEN", "attempts": 0}


def test_what_was_recorded_before_the_end_of_the_scope_stays_readable(api, once):
    other = Once(once.scope, "failed")
    ok(once.complete(held(api, once), [1]).send(api))
    ok(other.fail(held(api, other), "e", 1).send(api))
    ok(end(once.scope).send(api))
    assert ok(once.view(wait_ms=30_000).send(api)) == {"state": "DONE", "attempts": 0, "result": [1]}
    assert ok(other.view().send(api)) == {"state": "FAILED", "attempts": 1, "lastError": "e"}


def test_the_end_of_a_scope_ends_the_leases_below_it_and_no_others(api, once):
    below = Once(scope(api, parentId=scope(api, parentId=once.scope)), "below")
    beside = Once(scope(api), "beside")
    held(api, below)
    token = held(api, beside)
    ok(end(once.scope).send(api))
    refused(below.acquire().send(api), "SCOPE_CANCELLED")
    assert ok(below.view().send(api))["state"] == "OPEN"
    assert ok(beside.complete(token, 1).send(api)) == {"state": "DONE"}


def test_the_end_of_a_child_leaves_the_parent_s_leases_alone(api, once):
    child = scope(api, parentId=once.scope)
    token = held(api, once)
    ok(end(child).send(api))
    assert ok(once.complete(token, 1).send(api)) == {"state": "DONE"}
