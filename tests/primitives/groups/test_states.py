"""The life of a group: OPEN → SEALED → FINALIZED, its view, its members, its verdicts and its deadline."""

import pytest

from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.groups import creation, done, group, member, state, take
from tests.support.journal import events
from tests.support.queues import cancel, mailbox, redrive, submitted, task
from tests.support.races import until_blocking

OPEN = ("OPEN", None, None)
SEALED = ("SEALED", None, None)
SUCCESS = ("FINALIZED", "SUCCESS", None)
CLOSED = {"state": "SEALED", "outcome": None, "outcomeReason": None}


def failure(reason):
    return ("FINALIZED", "FAILURE", reason)


def verdict(given, now=OPEN, *, late=False):
    """The answer of a verdict."""
    return {
        "verdict": given,
        "late": late,
        "groupState": now[0],
        "outcome": now[1],
        "outcomeReason": now[2],
    }


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def test_a_group_is_seen_from_its_creation_to_its_outcome(api, box):
    made = group(api, box, "N_ACCEPTED", threshold=1, expectedMembers=2)
    first = ok(made.view().send(api))
    assert first == {
        "id": made.id,
        "scopeId": made.scope,
        "mailboxId": box.id,
        "condition": "N_ACCEPTED",
        "threshold": 1,
        "expectedMembers": 2,
        "state": "OPEN",
        "outcome": None,
        "outcomeReason": None,
        "accepted": 0,
        "rejected": 0,
        "members": [],
        "deadline": None,
        "createdAt": first["createdAt"],
        "finalizedAt": None,
    }
    one, two = member(api, made, "review:1"), member(api, made, "review:2")
    held = take(api, made)
    ok(held["review:1"].complete().send(api))
    sealed = ok(made.view().send(api))
    members = [
        {"taskId": one, "taskKey": "review:1", "state": "SUCCEEDED", "verdict": None},
        {"taskId": two, "taskKey": "review:2", "state": "RUNNING", "verdict": None},
    ]
    assert sealed == first | {"state": "SEALED", "members": members}
    assert ok(made.judge(one).send(api)) == verdict("ACCEPTED", SUCCESS)
    final = ok(made.view().send(api))
    members = [members[0] | {"verdict": "ACCEPTED"}, members[1] | {"state": "CANCELLED"}]
    assert final == sealed | {
        "state": "FINALIZED",
        "outcome": "SUCCESS",
        "accepted": 1,
        "members": members,
        "finalizedAt": final["finalizedAt"],
    }
    assert final["finalizedAt"] >= final["createdAt"]


def test_a_group_owns_a_scope_below_its_parent_or_a_run(api, box):
    made = group(api, box)
    seen = ok(api.get(f"/scopes/{made.scope}"))
    assert (seen["parentId"], seen["rootId"], seen["effective"]) == (box.scope, box.scope, "ACTIVE")
    alone = ok(creation(box.id).send(api), 201)
    assert alone.keys() == {"groupId", "scopeId", "state"}
    seen = ok(api.get(f"/scopes/{alone['scopeId']}"))
    assert (seen["parentId"], seen["rootId"]) == (None, alone["scopeId"])


def test_the_scopes_of_groups_do_not_count_against_the_child_limit(api):
    root = scope(api, childLimit=1)
    box = mailbox(api, root)
    for _ in range(3):
        group(api, box)
    scope(api, parentId=root)
    refused(api.post("/scopes", json={"parentId": root}), "CONFLICT")


def test_a_group_cannot_be_deeper_than_scopes_can(api):
    deepest = scope(api)
    for _ in range(32):
        deepest = scope(api, parentId=deepest)
    box = mailbox(api, deepest)
    told = refused(creation(box.id, parentScopeId=deepest).send(api), "CONFLICT")
    assert "depth 32" in told


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"condition": "N_ACCEPTED"}, "threshold"),
        ({"condition": "FIRST_ACCEPTED", "threshold": 2}, "threshold"),
        ({"condition": "ALL_TERMINAL", "threshold": 1}, "threshold"),
        ({"condition": "N_ACCEPTED", "threshold": 0}, "threshold"),
        ({"condition": "N_ACCEPTED", "threshold": 1, "expectedMembers": 101}, "expectedMembers"),
        ({"condition": "ANY"}, "condition"),
    ],
)
def test_a_condition_that_cannot_be_is_refused_by_name(api, box, asked, names):
    assert names in refused(creation(box.id, **asked).send(api), "VALIDATION_FAILED")


def test_members_are_tasks_of_the_group_s_scope_and_know_their_group(api, box):
    made = group(api, box)
    answer = ok(made.submit("review:1", input={"n": 1}, priority=3).send(api))
    assert answer.keys() == {"taskId", "replay"}
    assert answer["replay"] is False
    seen = task(api, answer["taskId"])
    assert (seen["scopeId"], seen["groupIds"], seen["priority"]) == (made.scope, [made.id], 3)
    assert ok(made.submit("review:1", input={"n": 2}).send(api)) == answer | {"replay": True}
    assert task(api, answer["taskId"])["input"] == {"n": 1}
    assert len(ok(made.view().send(api))["members"]) == 1


def test_a_task_that_was_submitted_into_the_scope_becomes_a_member_by_its_key(api, box):
    made = group(api, box)
    first = submitted(api, made.box, "review:1")
    assert ok(made.submit("review:1").send(api)) == {"taskId": first, "replay": True}
    assert [m["taskId"] for m in ok(made.view().send(api))["members"]] == [first]


def test_a_group_seals_itself_when_all_that_are_expected_have_joined(api, box):
    made = group(api, box, expectedMembers=2)
    first = member(api, made, "review:1")
    assert state(api, made) == OPEN
    member(api, made, "review:2")
    assert state(api, made) == SEALED
    told = refused(made.submit("review:3").send(api), "CONFLICT")
    assert "SEALED" in told
    assert ok(made.submit("review:1").send(api)) == {"taskId": first, "replay": True}


@pytest.mark.parametrize("how", ["close", "seal"])
def test_close_and_seal_take_no_more_members_and_decide(api, box, how):
    made = group(api, box)
    member(api, made)
    assert ok(made.close(how).send(api)) == CLOSED
    assert ok(made.close(how).send(api)) == CLOSED
    refused(made.submit("review:2").send(api), "CONFLICT")
    empty = group(api, box)
    outcome = {"state": "FINALIZED", "outcome": "SUCCESS", "outcomeReason": None}
    assert ok(empty.close(how).send(api)) == outcome
    assert ok(empty.close().send(api)) == outcome
    assert "FINALIZED" in refused(empty.close("seal").send(api), "CONFLICT")


def test_first_accepted_finalizes_an_open_group_and_cancels_the_rest(api, box, space, database_url):
    made = group(api, box, "FIRST_ACCEPTED")
    assert ok(made.view().send(api))["threshold"] == 1
    first, queued, running = (member(api, made, f"review:{n}") for n in range(3))
    held = take(api, made, max=3)
    ok(held["review:0"].complete().send(api))
    ok(held["review:1"].nack(handBack=True).send(api))
    assert ok(made.judge(first).send(api)) == verdict("ACCEPTED", SUCCESS)
    for loser in (queued, running):
        seen = task(api, loser)
        assert (seen["state"], seen["outcomeReason"]) == ("CANCELLED", "group_finalized")
    assert "group_finalized" in refused(held["review:2"].renew().send(api), "STALE_CLAIM")
    told = [(e.type, e.aggregate) for e in events(database_url, space.id) if e.type.startswith("group.")]
    assert told == [(f"group.{t}", made.id) for t in ("created", "accepted", "finalized")]
    assert ok(api.get(f"/scopes/{made.scope}"))["effective"] == "ACTIVE"


def test_a_threshold_that_cannot_be_reached_fails_a_sealed_group(api, box):
    made = group(api, box, "N_ACCEPTED", threshold=2)
    one, two, three = done(api, made, "review:1", "review:2", "review:3")
    assert ok(made.judge(one, "reject").send(api)) == verdict("REJECTED")
    assert ok(made.judge(two, "reject").send(api)) == verdict("REJECTED")
    assert ok(made.close().send(api)) == {
        "state": "FINALIZED",
        "outcome": "FAILURE",
        "outcomeReason": "threshold_unreachable",
    }
    late = verdict("ACCEPTED", failure("threshold_unreachable"), late=True)
    assert ok(made.judge(three).send(api)) == late


@pytest.mark.parametrize("how", ["fails", "is cancelled", "is rejected"])
def test_a_member_that_is_lost_makes_the_threshold_unreachable(api, box, how):
    made = group(api, box, "N_ACCEPTED", threshold=2, expectedMembers=3)
    ids = [member(api, made, f"review:{n}") for n in range(3)]
    held = take(api, made)
    for n in (0, 1):
        if how == "fails":
            ok(held[f"review:{n}"].nack(retry=False).send(api))
        elif how == "is cancelled":
            ok(cancel(ids[n]).send(api))
        else:
            ok(made.judge(ids[n], "reject").send(api))
    assert state(api, made) == failure("threshold_unreachable")
    assert task(api, ids[2])["state"] == "CANCELLED"


def test_all_terminal_succeeds_with_the_last_end_whatever_it_is(api, box):
    made = group(api, box, expectedMembers=3)
    ids = [member(api, made, f"review:{n}") for n in range(3)]
    held = take(api, made)
    ok(held["review:0"].complete().send(api))
    ok(held["review:1"].nack(retry=False, error="no").send(api))
    assert state(api, made) == SEALED
    ok(cancel(ids[2]).send(api))
    assert state(api, made) == SUCCESS


def test_verdicts_are_given_once_and_only_to_what_succeeded(api, box):
    made = group(api, box)
    waiting = member(api, made, "review:1")
    assert "QUEUED" in refused(made.judge(waiting).send(api), "CONFLICT")
    (good,) = done(api, made, "review:2")
    assert ok(made.judge(good).send(api)) == verdict("ACCEPTED")
    assert ok(made.judge(good).send(api)) == verdict("ACCEPTED")
    assert "ACCEPTED" in refused(made.judge(good, "reject").send(api), "CONFLICT")
    ok(made.judge(waiting, "reject").send(api))
    assert "REJECTED" in refused(made.judge(waiting).send(api), "CONFLICT")
    other = submitted(api, box, "elsewhere")
    assert "no member" in refused(made.judge(other).send(api), "NOT_FOUND")
    seen = ok(made.view().send(api))
    assert (seen["accepted"], seen["rejected"]) == (1, 1)


def test_a_verdict_after_the_end_is_late_and_changes_nothing(api, box):
    made = group(api, box, "FIRST_ACCEPTED")
    first, second = done(api, made, "review:1", "review:2")
    won = ok(made.judge(first).send(api))
    assert won == verdict("ACCEPTED", SUCCESS)
    for how, given in (("accept", "ACCEPTED"), ("reject", "REJECTED")):
        assert ok(made.judge(second, how).send(api)) == verdict(given, SUCCESS, late=True)
    assert ok(made.judge(first).send(api)) == won
    seen = ok(made.view().send(api))
    assert [m["verdict"] for m in seen["members"]] == ["ACCEPTED", None]


def test_a_joined_task_is_watched_and_never_cancelled(api, box):
    outside = submitted(api, box, "outside")
    made = group(api, box, "FIRST_ACCEPTED")
    assert ok(made.join(outside).send(api)) == {"taskId": outside}
    assert ok(made.join(outside).send(api)) == {"taskId": outside}
    assert task(api, outside)["groupIds"] == [made.id]
    (first,) = done(api, made, "review:1")
    assert ok(made.judge(first).send(api))["outcome"] == "SUCCESS"
    assert task(api, outside)["state"] == "QUEUED"
    assert "FINALIZED" in refused(made.join(submitted(api, box, "another")).send(api), "CONFLICT")


def test_a_task_of_another_run_decides_a_group_that_watches_it(api, box):
    elsewhere = box.within(scope(api))
    outside = submitted(api, elsewhere, "outside")
    made = group(api, box, expectedMembers=1)
    ok(made.join(outside).send(api))
    assert state(api, made) == SEALED
    ok(end(elsewhere.scope).send(api))
    assert state(api, made) == SUCCESS


def test_a_task_that_is_over_when_it_joins_counts_at_once(api, box):
    outside = submitted(api, box, "outside")
    ok(cancel(outside).send(api))
    made = group(api, box, expectedMembers=1)
    ok(made.join(outside).send(api))
    assert state(api, made) == SUCCESS


def test_a_deadline_finalizes_a_group_and_cancels_its_members(api, box, clock):
    made = group(api, box, deadline=in_seconds(api, 60))
    waiting = member(api, made)
    clock.shift(61)
    assert state(api, made) == failure("deadline")
    seen = task(api, waiting)
    assert (seen["state"], seen["outcomeReason"]) == ("CANCELLED", "group_finalized")


def test_after_the_deadline_a_verdict_is_late_and_no_member_joins(api, box, clock):
    made = group(api, box, "FIRST_ACCEPTED", deadline=in_seconds(api, 60))
    (first,) = done(api, made, "review:1")
    clock.shift(61)
    assert "deadline" in refused(made.submit("review:2").send(api), "CONFLICT")
    assert ok(made.judge(first).send(api)) == verdict("ACCEPTED", failure("deadline"), late=True)


def test_a_sweep_finalizes_what_nobody_looks_at(api, box, clock, space, database_url):
    group(api, box, deadline=in_seconds(api, 60))
    expiring = group(api, box, expectedMembers=1)
    member(api, expiring, deadline=in_seconds(api, 60))
    clock.shift(61)

    def finalized():
        return [e.payload["outcome"] for e in events(database_url, space.id, "group.finalized")]

    until_blocking(lambda: sorted(finalized()) == ["FAILURE", "SUCCESS"], what="both outcomes")


def test_a_member_whose_deadline_has_passed_decides_for_whoever_looks(api, box, clock):
    """Before any sweep: no view shows all members over and the group without its outcome."""
    soon = {"deadline": in_seconds(api, 60)}
    over = group(api, box, expectedMembers=1)
    member(api, over, **soon)
    lost = group(api, box, "FIRST_ACCEPTED", expectedMembers=1)
    member(api, lost, **soon)
    clock.shift(61)
    assert [state(api, over), state(api, lost)] == [SUCCESS, failure("threshold_unreachable")]


def test_a_lapse_that_uses_up_the_attempts_decides(api, clock):
    box = mailbox(api, scope(api), maxAttempts=1)
    made = group(api, box, expectedMembers=1)
    member(api, made)
    take(api, made)
    clock.shift(601)
    until_blocking(lambda: state(api, made) == SUCCESS, what="the outcome")


def test_a_member_that_is_redriven_is_undecided_again(api, box):
    made = group(api, box, expectedMembers=2)
    failed = member(api, made, "review:1")
    member(api, made, "review:2")
    held = take(api, made)
    ok(held["review:1"].nack(retry=False).send(api))
    ok(redrive(failed).send(api))
    ok(held["review:2"].complete().send(api))
    assert state(api, made) == SEALED
    ok(take(api, made)["review:1"].complete().send(api))
    assert state(api, made) == SUCCESS


@pytest.mark.parametrize(
    ("how", "reason", "code"),
    [
        ("cancel", "scope_cancelled", "SCOPE_CANCELLED"),
        ("complete", "scope_completed", "SCOPE_CANCELLED"),
        (None, "deadline", "DEADLINE_EXCEEDED"),
    ],
)
def test_the_end_of_its_scope_is_the_end_of_a_group(api, clock, how, reason, code):
    root = scope(api) if how else scope(api, deadline=in_seconds(api, 60))
    box = mailbox(api, root)
    made = group(api, box, "FIRST_ACCEPTED")
    (first,) = done(api, made, "review:1")
    if how:
        ok(end(root, how).send(api))
    else:
        clock.shift(61)
    assert state(api, made) == failure(reason)
    assert ok(made.view().send(api))["finalizedAt"] is not None
    assert ok(made.judge(first).send(api)) == verdict("ACCEPTED", failure(reason), late=True)
    closed = {"state": "FINALIZED", "outcome": "FAILURE", "outcomeReason": reason}
    assert ok(made.close().send(api)) == closed
    refused(made.close("seal").send(api), "CONFLICT")
    refused(made.submit("review:2").send(api), code)
    refused(made.join(first).send(api), code)
    refused(creation(box.id, parentScopeId=root).send(api), code)
