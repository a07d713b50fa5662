"""The groups of a run in its report: those without an outcome, and how far they are."""

import pytest

from tests.support.builders import end, ok, scope
from tests.support.groups import done, group, member
from tests.support.queues import mailbox
from tests.support.reports import in_run


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def test_open_and_sealed_groups_of_the_subtree_are_told(api, box):
    child = scope(api, parentId=box.scope)
    first = group(api, box, "N_ACCEPTED", threshold=2)
    second = group(api, box.within(child), expectedMembers=1)
    one, two, _ = done(api, first, "review:1", "review:2", "review:3")
    ok(first.judge(one).send(api))
    ok(first.judge(two, "reject").send(api))
    member(api, second)
    told = in_run(api, box.scope)["groups"]
    assert told == [
        {
            "id": first.id,
            "scopeId": first.scope,
            "mailboxId": box.id,
            "condition": "N_ACCEPTED",
            "threshold": 2,
            "expectedMembers": None,
            "state": "OPEN",
            "members": 3,
            "accepted": 1,
            "rejected": 1,
            "deadline": None,
            "createdAt": told[0]["createdAt"],
        },
        {
            "id": second.id,
            "scopeId": second.scope,
            "mailboxId": box.id,
            "condition": "ALL_TERMINAL",
            "threshold": None,
            "expectedMembers": 1,
            "state": "SEALED",
            "members": 1,
            "accepted": 0,
            "rejected": 0,
            "deadline": None,
            "createdAt": told[1]["createdAt"],
        },
    ]
    assert in_run(api, child)["groups"] == told[1:]


def test_a_group_with_an_outcome_is_told_no_more(api, box):
    over = group(api, box)
    ok(over.close().send(api))
    open_still = group(api, box)
    assert [g["id"] for g in in_run(api, box.scope)["groups"]] == [open_still.id]
    ok(end(box.scope).send(api))
    assert in_run(api, box.scope)["groups"] == []
