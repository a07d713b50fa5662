"""Groups that several calls meet at once, over two replicas: one outcome, once, and nobody's deadlock."""

import asyncio

import pytest

from tests.support import database, races
from tests.support.builders import end, in_seconds, ok, refused, scope
from tests.support.groups import creation, done, group, member, state, take
from tests.support.journal import events
from tests.support.needs import RENDER, site
from tests.support.queues import cancel, delivery, mailbox, submitted, task

SUCCESS = ("FINALIZED", "SUCCESS", None)


@pytest.fixture
def box(api):
    return mailbox(api, scope(api))


def outcomes(database_url, space, of):
    """What the journal says became of it: one entry, if all is well."""
    told = [e for e in events(database_url, space.id, "group.finalized") if e.aggregate == of.id]
    return [(e.payload["outcome"], e.payload["outcomeReason"]) for e in told]


async def test_of_two_accepts_at_the_threshold_one_is_the_last_and_one_is_late(
    api, box, storm, space, database_url
):
    for _ in range(10):
        made = group(api, box, "N_ACCEPTED", threshold=2)
        first, second, third = done(api, made, "review:1", "review:2", "review:3")
        ok(made.judge(first).send(api))
        answers = [ok(r) for r in await storm([made.judge(second), made.judge(third)])]
        assert sorted(a["late"] for a in answers) == [False, True]
        assert {(a["groupState"], a["outcome"], a["outcomeReason"]) for a in answers} == {SUCCESS}
        assert ok(made.view().send(api))["accepted"] == 2
        assert outcomes(database_url, space, made) == [("SUCCESS", None)]


async def test_a_deadline_and_an_accept_at_the_same_instant_have_one_outcome(
    api, box, storm, clock, space, database_url
):
    """The accept meets the deadline at the group's row: whoever has it first decides for both."""
    seen = set()
    for turn in range(12):
        made = group(api, box, "FIRST_ACCEPTED", deadline=in_seconds(api, 60))
        (good,) = done(api, made, "review:1")
        waiting = member(api, made, "review:2")
        clock.shift(59.97 if turn % 2 else 60)
        answers = await storm([made.judge(good), made.view(), made.close(), made.judge(good)])
        verdicts = [ok(answers[n]) for n in (0, 3)]
        races.until_blocking(lambda made=made: state(api, made)[0] == "FINALIZED", what="the outcome")
        _, outcome, reason = state(api, made)
        assert {v["late"] for v in verdicts} == {outcome == "FAILURE"}
        assert outcomes(database_url, space, made) == [(outcome, reason)]
        assert task(api, waiting)["state"] == "CANCELLED"
        seen.add(outcome)
    assert "FAILURE" in seen


async def test_a_hundred_members_with_every_kind_of_end_finalize_a_group(
    api, clock, storm, space, database_url
):
    """Completed, failed, out of attempts, lapsed for good, cancelled, expired, ended with their run."""
    box = mailbox(api, scope(api), maxAttempts=1)
    elsewhere = box.within(scope(api))
    made = group(api, box, expectedMembers=100)
    for n in range(15):
        ok(made.join(submitted(api, elsewhere, f"outside:{n}")).send(api))
    soon = {"deadline": in_seconds(api, 60)}
    ids = [member(api, made, f"review:{n}", **(soon if n >= 70 else {})) for n in range(85)]
    assert state(api, made) == ("SEALED", None, None)
    got = [d for _ in range(2) for d in ok(made.box.admit(max=35).send(api))["admitted"]]
    held = [delivery(one) for one in got]
    ends = [d.complete(1) for d in held[:20]] + [d.nack(retry=False) for d in held[20:40]]
    ends += [d.nack(retry=True) for d in held[40:50]]
    ends += [cancel(one["taskId"]) for one in got[60:70]]  # 50 to 59 lapse
    for response in await storm(ends):
        ok(response)
    assert state(api, made) == ("SEALED", None, None)
    ok(end(elsewhere.scope).send(api))
    clock.shift(61)
    races.until_blocking(lambda: state(api, made) == SUCCESS, what="the outcome")
    kinds = [m["state"] for m in ok(made.view().send(api))["members"]]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "SUCCEEDED": 20,
        "FAILED": 40,
        "CANCELLED": 25,
        "EXPIRED": 15,
    }
    assert outcomes(database_url, space, made) == [("SUCCESS", None)]
    assert task(api, ids[84])["state"] == "EXPIRED"


async def test_the_last_ends_of_members_at_once_finalize_a_group_once(api, box, storm, space, database_url):
    made = group(api, box, expectedMembers=20)
    ids = [member(api, made, f"review:{n}") for n in range(20)]
    held = take(api, made)
    ends = [d.complete(1) if n % 2 else cancel(ids[n]) for n, d in enumerate(held.values())]
    for response in await storm(ends):
        ok(response)
    assert state(api, made) == SUCCESS
    assert outcomes(database_url, space, made) == [("SUCCESS", None)]


async def test_a_task_that_ends_as_it_joins_is_never_missed(api, box, storm):
    """The end is noticed by the group, or seen by the joining call; in either order, and in between."""
    for n in range(25):
        outside = submitted(api, box, f"outside:{n}")
        made = group(api, box, expectedMembers=1)
        for response in await storm([made.join(outside), cancel(outside)]):
            ok(response)
        assert state(api, made) == SUCCESS


async def test_a_task_whose_end_is_not_committed_yet_joins_after_it(
    api, box, both_apis, space, database_url, kernel_schema
):
    outside = submitted(api, box, "outside")
    made = group(api, box, expectedMembers=1)
    join = made.join(outside)
    cancelling = f"SELECT {kernel_schema}.task_cancel($1, $2::text::uuid, NULL, NULL, NULL)"
    async with database.connected(database_url) as connection, connection.transaction():
        await connection.execute(cancelling, space.id, outside)
        first, _ = both_apis
        joining = asyncio.create_task(first.post(join.path, json=join.body))
        await races.until_waiting(database_url, behind=await races.backend_pid(connection))
    ok(await joining)
    assert state(api, made) == SUCCESS


async def test_members_that_join_at_once_are_sealed_at_the_number_that_is_expected(api, box, storm):
    made = group(api, box, expectedMembers=10)
    answers = await storm([made.submit(f"review:{n}") for n in range(15)])
    assert sum(a.is_success for a in answers) == 10
    for answer in answers:
        if not answer.is_success:
            refused(answer, "CONFLICT")
    seen = ok(made.view().send(api))
    assert (seen["state"], len(seen["members"])) == ("SEALED", 10)


async def test_the_end_of_the_scope_and_the_last_accept_are_one_outcome(api, box, storm, space, database_url):
    for _ in range(8):
        root = scope(api)
        made = group(api, box.within(root), "FIRST_ACCEPTED")
        (good,) = done(api, made, "review:1")
        verdict, ending = await storm([made.judge(good), end(root)])
        ok(ending)
        late = ok(verdict)["late"]
        assert state(api, made)[1] == ("FAILURE" if late else "SUCCESS")
        assert len(outcomes(database_url, space, made)) == 1


async def test_a_finalization_gives_back_what_its_losers_held(api, box):
    root = scope(api)
    place = site(api, root, browsers=3)
    made = group(api, place.box, "FIRST_ACCEPTED")
    ids = [member(api, made, f"review:{n}", requirements=RENDER) for n in range(3)]
    held = take(api, made)
    assert place.left(api) == (3, 3, 120)
    ok(held["review:0"].complete(1).send(api))
    ok(made.judge(ids[0]).send(api))
    assert place.left(api) == (0, 3, 40)  # a quota is spent; the winner has yet to settle


async def test_groups_over_the_same_task_are_all_decided_by_its_end(api, box, storm):
    outside = submitted(api, box, "outside")
    made = [group(api, box, expectedMembers=1) for _ in range(5)]
    for each in made:
        ok(each.join(outside).send(api))
    ok(cancel(outside).send(api))
    assert {state(api, each) for each in made} == {SUCCESS}
    assert set(task(api, outside)["groupIds"]) == {each.id for each in made}


async def test_a_long_poll_of_a_group_on_another_replica_wakes_with_the_outcome(api, both_apis, box):
    made = group(api, box, "FIRST_ACCEPTED")
    (good,) = done(api, made, "review:1")
    _, second = both_apis
    poll = asyncio.create_task(second.get(made.view(30_000).path, timeout=40))
    await asyncio.sleep(0)
    ok(made.judge(good).send(api))
    answer = await asyncio.wait_for(poll, 15)
    assert answer.json()["state"] == "FINALIZED"


async def test_a_group_without_a_parent_is_made_once_by_a_call_that_is_repeated(api, box, storm):
    asked = creation(box.id)
    ids = {ok(asked.send(api, "one-key"), 201)["groupId"] for _ in range(3)}
    assert len(ids) == 1
