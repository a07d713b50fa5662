"""A task with all that it needs, or nothing: what is taken, when it comes back, who waits for whom."""

import pytest

from tests.support.allowances import DAY
from tests.support.budgets import budget
from tests.support.builders import Call, end, ok, refused, scope
from tests.support.events import read
from tests.support.needs import RENDER, needs, site
from tests.support.permits import look, pool
from tests.support.queues import batch, cancel, delivery, mailbox, nothing, submitted, taken, view
from tests.support.races import until_blocking


@pytest.fixture
def here(api, clock):
    clock.to_the_next(DAY)
    return site(api, scope(api))


def by_name(name, **settings):
    return Call("PUT", f"/mailboxes/by-name/{name}", settings)


def test_a_task_is_admitted_with_all_that_it_needs(api, here):
    task = submitted(api, here.box, requirements=RENDER)
    assert ok(view(task).send(api))["requirements"] == RENDER
    told = ok(here.box.admit(holder="zoe").send(api))
    (grant,) = told["grants"]
    assert grant == {"grantId": grant["grantId"], "token": grant["token"], "permit": "browsers", "units": 1}
    (consumed,) = told["consumptions"]
    assert consumed == {"consumptionId": consumed["consumptionId"], "allowance": "search-api", "units": 1}
    seen = ok(here.money.view().send(api))
    assert [r["id"] for r in seen["reservations"]] == told["reservations"]
    assert (seen["reservedMinor"], seen["availableMinor"]) == ("40", "960")
    assert here.left(api) == (1, 1, 40)
    holders = {e["type"]: e["payload"].get("holder") for e in read(api, scopeId=here.box.scope)}
    assert {holders[t] for t in ("permit.granted", "allowance.consumed", "budget.reserved")} == {"zoe"}


def test_what_the_mailbox_says_counts_for_tasks_that_say_nothing(api, here):
    made = ok(by_name("render", requirements=needs({"browsers": 2})).send(api))
    assert made["requirements"] == {"pools": [{"name": "browsers", "units": 2}]}
    plain, own = submitted(api, here.box, "plain"), submitted(api, here.box, "own", requirements=RENDER)
    assert ok(view(plain).send(api))["requirements"] is None
    assert ok(here.box.admit().send(api))["grants"][0]["units"] == 2
    assert here.left(api) == (2, 0, 0)
    nothing(api, here.box.admit())
    ok(cancel(plain).send(api))
    assert ok(here.box.admit().send(api))["taskId"] == own
    ok(by_name("render", requirements={}).send(api))
    assert ok(by_name("render").send(api))["requirements"] is None
    submitted(api, here.box, "free")
    assert ok(here.box.admit().send(api))["grants"] == []


def test_recv_delivers_no_task_that_needs_something(api, here):
    submitted(api, here.box, "a", requirements=RENDER)
    nothing(api, here.box.recv())
    submitted(api, here.box, "b")
    taken(api, here.box.recv())
    ok(by_name("render", requirements=needs({"browsers": 1})).send(api))
    submitted(api, here.box, "c")
    nothing(api, here.box.recv())


@pytest.mark.parametrize("lacking", ["a pool", "a quota", "a budget"])
def test_without_the_last_of_it_nothing_is_taken(api, here, lacking):
    """Whatever is lacking, what else is needed is left untouched."""
    if lacking == "a pool":
        ok(here.browsers.acquire(2).send(api))
    elif lacking == "a quota":
        ok(here.searches.consume(100).send(api))
    else:
        ok(here.money.reserve(1000).send(api))
    before = here.left(api)
    submitted(api, here.box, requirements=RENDER)
    nothing(api, here.box.admit())
    nothing(api, here.box.admit(max=5))
    assert here.left(api) == before


def test_one_that_cannot_be_had_does_not_stand_in_the_way_of_others(api, here):
    ok(here.browsers.acquire(2).send(api))
    blocked = [submitted(api, here.box, f"b{i}", requirements=RENDER) for i in range(5)]
    free = submitted(api, here.box, "free", requirements=needs(quotas={"search-api": 1}))
    plain = submitted(api, here.box, "plain")
    assert ok(here.box.admit().send(api))["taskId"] == free
    assert ok(here.box.admit().send(api))["taskId"] == plain
    nothing(api, here.box.admit())
    assert ok(view(blocked[0]).send(api))["state"] == "QUEUED"


def test_the_oldest_whose_set_can_be_had_comes_first_and_priority_before_age(api, here):
    tasks = [here.box.task(str(i), requirements=RENDER, priority=i // 2) for i in range(4)]
    ok(batch(tasks).send(api))
    first = ok(here.box.admit(max=2).send(api))["admitted"]
    assert [t["taskKey"] for t in first] == ["2", "3"]
    assert here.left(api) == (2, 2, 80)
    nothing(api, here.box.admit(max=2))


@pytest.mark.parametrize("how", ["complete", "nack", "fail", "hand back", "cancel", "lapse", "deadline"])
def test_units_come_back_with_the_end_of_the_delivery_and_money_as_it_ends(api, here, clock, how):
    deadline = {"deadline": "2999-01-01T00:00:00Z"}
    if how == "deadline":
        deadline = {"deadline": (clock.now().replace(microsecond=0)).isoformat()}
        clock.shift(-60)
    task = submitted(api, here.box, requirements=RENDER, **deadline)
    told = ok(here.box.admit(lease_s=600).send(api))
    held = delivery(told)
    calls = {
        "complete": held.complete({"pages": 3}),
        "nack": held.nack(),
        "fail": held.nack(retry=False, error="no"),
        "hand back": held.nack(handBack=True),
        "cancel": cancel(task),
    }
    if how in calls:
        ok(calls[how].send(api))
    else:
        clock.shift(601 if how == "lapse" else 61)
        nothing(
            api, here.box.admit(max=1) if how == "deadline" else mailbox(api, here.box.scope, "x").admit()
        )
        if how == "lapse":
            again = ok(here.box.admit().send(api))
            assert (again["attempt"], len(again["grants"]), len(again["reservations"])) == (2, 1, 1)
            assert again["grants"][0]["grantId"] != told["grants"][0]["grantId"]
            ok(delivery(again).nack(retry=False).send(api))
    assert ok(here.browsers.acquire(2).send(api))["units"] == 2, "both browsers are free again"
    assert ok(here.searches.view().send(api))["consumed"] == (2 if how == "lapse" else 1)
    assert ok(here.money.view().send(api))["reservedMinor"] == ("40" if how == "complete" else "0")


def test_after_complete_the_reservation_is_the_workers_for_an_hour(api, here, clock):
    submitted(api, here.box, requirements=RENDER)
    told = ok(here.box.admit().send(api))
    ok(delivery(told).complete().send(api))
    clock.shift(3500)
    (reservation,) = told["reservations"]
    assert ok(here.money.settle(reservation, 10).send(api))["chargedMinor"] == "10"
    clock.shift(200)
    seen = ok(here.money.view().send(api))
    assert (seen["settledMinor"], seen["reservedMinor"]) == ("10", "0")
    assert seen["reservations"][0]["state"] == "STALE"


def test_grants_are_renewed_with_the_message_and_lapse_with_it(api, here, clock):
    submitted(api, here.box, requirements=RENDER)
    held = delivery(ok(here.box.admit(lease_s=60).send(api)))
    for _ in range(3):
        clock.shift(50)
        ok(held.renew().send(api))
    ok(here.browsers.acquire(1).send(api))
    refused(here.browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")
    clock.shift(61)
    refused(held.renew().send(api), "STALE_CLAIM")
    assert ok(here.browsers.acquire(2).send(api))["units"] == 2


def test_the_end_of_a_scope_leaves_the_browser_open_until_it_is_released_or_lapses(api, here, clock):
    below = scope(api, parentId=here.box.scope)
    submitted(api, here.box.within(below), requirements=RENDER)
    told = ok(here.box.admit_below(lease_s=600).send(api))
    ok(end(below).send(api))
    refused(delivery(told).renew().send(api), "STALE_CLAIM")
    assert here.left(api) == (1, 1, 40)
    grant = told["grants"][0]
    ok(api.post(f"/grants/{grant['grantId']}/release", json={"token": grant["token"]}))
    ok(here.money.settle(told["reservations"][0], 40).send(api))
    assert here.left(api) == (0, 1, 0)


def test_what_does_not_exist_or_can_never_be_had_is_refused_at_submit_and_at_the_mailbox(api, here):
    wrong = {
        'permit pool "gpus" does not exist': needs({"gpus": 1}),
        'allowance "no" does not exist': needs({"browsers": 1}, {"no": 1}),
        'budget "eur" does not exist': needs(budgets={"eur": 1}),
    }
    for message, requirements in wrong.items():
        for call in (
            here.box.submit(requirements=requirements),
            batch([here.box.task("a"), here.box.task("b", requirements=requirements)]),
            by_name("render", requirements=requirements),
            Call("POST", "/mailboxes", {"name": "other", "requirements": requirements}),
        ):
            assert message in refused(call.send(api), "NOT_FOUND", 404)
    for requirements, amounts in (
        (needs({"browsers": 3}), "3 are more than the 2 units of permit pool"),
        (needs(quotas={"search-api": 101}), "101 are more than the 100 units per window of allowance"),
    ):
        told = refused(here.box.submit(requirements=requirements).send(api), "VALIDATION_FAILED", 400)
        assert amounts in told
    twice = {"pools": [{"name": "browsers", "units": 1}] * 2}
    assert "named twice" in refused(here.box.submit(requirements=twice).send(api), "VALIDATION_FAILED", 400)
    nothing(api, here.box.admit())


def test_a_mailbox_that_says_what_it_said_changes_nothing_and_needs_no_permission(api, here, space):
    said = {"requirements": needs({"browsers": 1})}
    ok(by_name("render", **said).send(api))
    before = len(read(api, types="resource.updated"))
    assert ok(by_name("render", **said).send(api))["requirements"] == said["requirements"]
    assert len(read(api, types="resource.updated")) == before


def test_a_replayed_admit_answers_the_same_grants(api, here):
    submitted(api, here.box, requirements=RENDER)
    first = ok(here.box.admit().send(api, "once"))
    again = here.box.admit().send(api, "once")
    assert ok(again) == first
    assert here.left(api) == (1, 1, 40)


def test_a_task_redriven_is_admitted_with_its_needs_again(api, here):
    task = submitted(api, here.box, requirements=RENDER)
    ok(delivery(ok(here.box.admit().send(api))).nack(retry=False).send(api))
    assert here.left(api) == (0, 1, 0)
    ok(Call("POST", f"/messages/{task}/redrive", {}).send(api))
    assert len(ok(here.box.admit().send(api))["grants"]) == 1


def test_it_stands_in_line_with_waiters_in_order(api, here, clock):
    """A waiter who came first is served first; the task, ready before another waiter, before that one."""
    held = ok(here.browsers.acquire(2).send(api))
    first = ok(here.browsers.wait(1).send(api))["waiterId"]
    task = submitted(api, here.box, requirements=needs({"browsers": 1}))
    ok(api.post(f"/grants/{held['grantId']}/release", json={"token": held["token"]}))
    assert ok(look(first).send(api))["state"] == "SIGNALED"
    assert ok(here.box.admit().send(api))["taskId"] == task
    ok(here.browsers.acquire(1, waiterId=first).send(api))
    refused(here.browsers.acquire(1).send(api), "CAPACITY_UNAVAILABLE")


def test_two_pools_and_two_budgets_are_taken_together(api, here):
    pool(api, here.box.scope, 1, "gpus")
    budget(api, here.box.scope, 5, "eur")
    both = needs({"browsers": 1, "gpus": 1}, budgets={"model-usd": 1, "eur": 5})
    submitted(api, here.box, "a", requirements=both)
    submitted(api, here.box, "b", requirements=both)
    told = ok(here.box.admit().send(api))
    assert {g["permit"] for g in told["grants"]} == {"browsers", "gpus"}
    assert len(told["reservations"]) == 2
    nothing(api, here.box.admit())
    assert here.left(api) == (1, 0, 1)


def test_the_money_of_a_delivery_that_ended_with_its_scope_comes_back_within_an_hour(api, here, clock):
    """Its worker may settle it or void it meanwhile; when it does neither it goes stale."""
    submitted(api, here.box, requirements=RENDER)
    taken(api, here.box.admit(lease_s=3600))
    ok(end(here.box.scope).send(api))
    assert here.left(api)[2] == 40
    clock.shift(3_601)
    until_blocking(lambda: here.left(api)[2] == 0, what="the money")
