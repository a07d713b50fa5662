"""The life of a reservation: reserved, settled in parts, given back, late; and the books that go with it."""

import uuid

import pytest

from tests.support.budgets import Budget, budget, define, reserved
from tests.support.builders import Call, end, in_seconds, ok, refused, scope
from tests.support.events import end_of, read


@pytest.fixture
def money(api):
    return budget(api, scope(api), 1000)


def books(api, money):
    """Reserved, settled, available, overrun; and the ledger's sums must be the same."""
    seen = ok(money.view().send(api))
    reserved, settled, available, overrun = (
        int(seen[f"{word}Minor"]) for word in ("reserved", "settled", "available", "overrun")
    )
    assert reserved + settled + available == int(seen["limitMinor"])
    lines = ok(money.entries(limit=500).send(api))["entries"]
    for kind, total in (("settle", settled), ("overrun", overrun)):
        assert sum(int(line["amountMinor"]) for line in lines if line["kind"] == kind) == total
    return reserved, settled, available, overrun


def reservation(api, money, wanted):
    return next(r for r in ok(money.view().send(api))["reservations"] if r["id"] == wanted)


def test_a_new_budget_has_all_of_its_limit(api):
    made = ok(define("2500", holdStale=True).send(api), 201)
    assert made == {
        "id": made["id"],
        "name": "model-usd",
        "currency": "USD",
        "scale": 2,
        "limitMinor": "2500",
        "reservedMinor": "0",
        "settledMinor": "0",
        "availableMinor": "2500",
        "overrunMinor": "0",
    }
    assert ok(Budget(made["id"], "").view().send(api)) == made | {"reservations": []}
    assert ok(Call("GET", "/budgets").send(api)) == {"budgets": [made], "nextCursor": None}
    assert '"model-usd"' in refused(define(1).send(api), "CONFLICT", 409)


def test_what_is_reserved_cannot_be_reserved_again_and_the_refusal_names_what_is_left(api, money):
    it = reserved(api, money, 700)
    assert books(api, money) == (700, 0, 300, 0)
    message = refused(money.reserve(301).send(api), "INSUFFICIENT_BUDGET", 409)
    assert "300" in message
    assert '"model-usd"' in message
    seen = reservation(api, money, it)
    assert seen == {
        "id": it,
        "scopeId": money.scope,
        "holder": "ann",
        "reservedMinor": "700",
        "state": "ACTIVE",
        "settleBy": None,
        "createdAt": seen["createdAt"],
    }
    reserved(api, money, 300)
    refused(money.reserve(1).send(api), "INSUFFICIENT_BUDGET")


def test_a_settle_charges_and_what_is_left_stays_reserved_until_it_is_given_back(api, money):
    it = reserved(api, money, 100)
    first = ok(money.settle(it, 30, "a").send(api))
    assert first == {
        "entryId": first["entryId"],
        "reservedMinor": "70",
        "state": "ACTIVE",
        "replay": False,
        "chargedMinor": "30",
        "overrunMinor": "0",
    }
    assert books(api, money) == (70, 30, 900, 0)
    assert ok(money.settle(it, 0, "nothing").send(api))["reservedMinor"] == "70"
    second = ok(money.void(it).send(api))
    assert second == {
        "entryId": second["entryId"],
        "reservedMinor": "0",
        "state": "VOIDED",
        "replay": False,
        "chargedMinor": "0",
        "overrunMinor": "0",
    }
    assert books(api, money) == (0, 30, 970, 0)
    assert reservation(api, money, it)["state"] == "VOIDED"


def test_all_that_is_reserved_settles_it(api, money):
    it = reserved(api, money, 100)
    assert ok(money.settle(it, 40, "a").send(api))["state"] == "ACTIVE"
    last = ok(money.settle(it, 60, "b").send(api))
    assert (last["state"], last["reservedMinor"], last["chargedMinor"]) == ("SETTLED", "0", "60")
    assert books(api, money) == (0, 100, 900, 0)


def test_more_than_is_reserved_is_a_conflict_unless_overrun_is_allowed(api, money):
    it, other = reserved(api, money, 100), reserved(api, money, 600)
    message = refused(money.settle(it, 101).send(api), "CONFLICT", 409)
    assert "100" in message
    assert "101" in message
    assert books(api, money) == (700, 0, 300, 0)
    more = ok(money.overrun(it, 250).send(api))
    assert (more["state"], more["chargedMinor"], more["overrunMinor"]) == ("SETTLED", "250", "0")
    assert books(api, money) == (600, 250, 150, 0)
    beyond = ok(money.overrun(other, 900, "b").send(api))
    assert (beyond["state"], beyond["chargedMinor"], beyond["overrunMinor"]) == ("SETTLED", "750", "150")
    assert books(api, money) == (0, 1000, 0, 150)
    assert ok(money.overrun(other, 900, "b").send(api)) == beyond | {"replay": True}


def test_overrun_adds_up_beyond_every_limit(api):
    money = budget(api, scope(api), 12)
    for n in range(12):
        it = reserved(api, money, 1)
        ok(money.limit(12).send(api))
        ok(money.overrun(it, 10**18, str(n)).send(api) if n == 11 else money.settle(it, 1, str(n)).send(api))
    for n in range(11):
        ok(money.limit(13 + n).send(api))
        ok(money.overrun(reserved(api, money, 1), 10**18, f"more {n}").send(api))
    assert ok(money.view().send(api))["overrunMinor"] == str(12 * (10**18 - 1))
    assert 12 * (10**18 - 1) > 2**63


def test_a_work_key_settles_once_whatever_is_sent_again(api, money):
    it, other = reserved(api, money, 100), reserved(api, money, 100)
    first = ok(money.settle(it, 30, "job-1").send(api))
    ok(money.settle(it, 70, "job-2").send(api))
    assert ok(money.settle(it, 30, "job-1").send(api)) == first | {"replay": True}
    message = refused(money.settle(it, 31, "job-1").send(api), "CONFLICT")
    assert "30" in message
    assert "31" in message
    assert it in refused(money.settle(other, 30, "job-1").send(api), "CONFLICT")
    assert books(api, money) == (100, 100, 800, 0)
    gone = ok(money.void(other, "job-1").send(api))  # a key of its own kind
    assert ok(money.void(other, "job-1").send(api)) == gone | {"replay": True}
    assert books(api, money) == (0, 100, 900, 0)


def test_one_budget_s_work_keys_are_no_other_s(api, money):
    other = budget(api, money.scope, 1000, "another")
    mine, theirs = reserved(api, money), reserved(api, other)
    assert not ok(money.settle(mine, 1, "k").send(api))["replay"]
    assert not ok(other.settle(theirs, 2, "k").send(api))["replay"]
    refused(money.settle(theirs, 1, "other").send(api), "NOT_FOUND", 404)
    refused(money.void(theirs).send(api), "NOT_FOUND", 404)


@pytest.mark.parametrize("ended", ["SETTLED", "VOIDED"])
def test_an_ended_reservation_is_changed_by_no_new_key(api, money, ended):
    it = reserved(api, money, 100)
    ok((money.settle(it, 100, "a") if ended == "SETTLED" else money.void(it, "a")).send(api))
    before = books(api, money)
    for call in (
        money.settle(it, 1, "b"),
        money.settle(it, 0, "b"),
        money.overrun(it, 1, "b"),
        money.void(it, "b"),
    ):
        assert ended in refused(call.send(api), "CONFLICT")
    assert books(api, money) == before


# Late


def late(api, money, clock, minor=100):
    """A reservation past its time."""
    it = reserved(api, money, minor, settleBy=in_seconds(api, 60))
    clock.shift(61)
    return it


def test_a_reservation_past_its_time_is_stale_for_every_call_and_its_money_is_back(api, money, clock):
    it = late(api, money, clock, 900)
    seen = reservation(api, money, it)
    assert (seen["state"], seen["reservedMinor"]) == ("STALE", "0")
    assert books(api, money) == (0, 0, 1000, 0)
    assert ok(Call("GET", "/budgets").send(api))["budgets"][0]["availableMinor"] == "1000"
    reserved(api, money, 1000)
    assert reservation(api, money, it)["state"] == "STALE"


def test_with_hold_stale_its_money_stays_held_until_it_is_settled_or_voided(api, clock):
    money = budget(api, scope(api), 1000, holdStale=True)
    it, other = late(api, money, clock, 900), late(api, money, clock, 100)
    seen = reservation(api, money, it)
    assert (seen["state"], seen["reservedMinor"]) == ("STALE", "900")
    assert books(api, money) == (1000, 0, 0, 0)
    refused(money.reserve(1).send(api), "INSUFFICIENT_BUDGET")
    refused(money.settle(it, 901).send(api), "CONFLICT")
    part = ok(money.settle(it, 300).send(api))
    assert (part["state"], part["reservedMinor"], part["chargedMinor"]) == ("ACTIVE", "600", "300")
    assert ok(money.void(other).send(api))["state"] == "VOIDED"
    assert books(api, money) == (600, 300, 100, 0)


def test_a_stale_reservation_is_settled_late_from_what_the_budget_then_has(api, money, clock):
    it = late(api, money, clock, 100)
    told = ok(money.settle(it, 100).send(api))
    assert (told["state"], told["chargedMinor"], told["overrunMinor"]) == ("SETTLED", "100", "0")
    assert books(api, money) == (0, 100, 900, 0)


def test_a_stale_reservation_settled_in_part_is_active_again_with_the_rest(api, money, clock):
    it = late(api, money, clock, 100)
    told = ok(money.settle(it, 40, "a").send(api))
    assert (told["state"], told["reservedMinor"], told["chargedMinor"]) == ("ACTIVE", "60", "40")
    assert books(api, money) == (60, 40, 900, 0)
    clock.shift(3600)
    seen = reservation(api, money, it)
    assert (seen["state"], seen["reservedMinor"], seen["settleBy"]) == ("ACTIVE", "60", None)
    assert ok(money.settle(it, 60, "b").send(api))["state"] == "SETTLED"
    assert books(api, money) == (0, 100, 900, 0)


def test_a_late_settle_that_the_budget_no_longer_has_is_refused_or_recorded_as_overrun(api, money, clock):
    it = late(api, money, clock, 100)
    reserved(api, money, 970)
    assert "30" in refused(money.settle(it, 40).send(api), "INSUFFICIENT_BUDGET", 409)
    assert reservation(api, money, it)["state"] == "STALE"
    refused(money.settle(it, 101).send(api), "CONFLICT")
    part = ok(money.settle(it, 20, "a").send(api))
    assert (part["state"], part["reservedMinor"]) == ("ACTIVE", "10")  # of the 80 that are left
    assert books(api, money) == (980, 20, 0, 0)
    last = ok(money.overrun(it, 80, "b").send(api))
    assert (last["state"], last["chargedMinor"], last["overrunMinor"]) == ("SETTLED", "10", "70")
    assert books(api, money) == (970, 30, 0, 70)


def test_a_stale_reservation_is_voided_without_giving_anything_back_twice(api, money, clock):
    it = late(api, money, clock, 100)
    assert ok(money.void(it).send(api))["state"] == "VOIDED"
    assert books(api, money) == (0, 0, 1000, 0)


def test_the_sweep_writes_stale_reservations_off_once(api, money, clock, space, database_url, kernel_schema):
    from tests.support import database
    from tests.support.journal import events

    late(api, money, clock, 100)
    for _ in range(2):
        database.fetch(database_url, f"SELECT * FROM {kernel_schema}.budget_sweep(100)")
    told = events(database_url, space.id, "budget.stale")
    assert [(e.aggregate, e.payload["amountMinor"]) for e in told] == [(money.id, "100")]
    lines = ok(money.entries().send(api))["entries"]
    assert [(line["kind"], line["amountMinor"]) for line in lines] == [("reserve", "100"), ("stale", "100")]


# Scopes, limits, names


def test_the_end_of_a_scope_stops_new_reservations_and_leaves_the_old_ones_to_be_settled(api, money):
    one, two = reserved(api, money), reserved(api, money)
    ok(end(money.scope).send(api))
    refused(money.reserve(1).send(api), "SCOPE_CANCELLED")
    assert reservation(api, money, one)["state"] == "ACTIVE"
    assert ok(money.settle(one, 100).send(api))["state"] == "SETTLED"
    assert ok(money.void(two).send(api))["state"] == "VOIDED"
    expired = money.within(scope(api, deadline=in_seconds(api, -1)))
    refused(expired.reserve(1).send(api), "DEADLINE_EXCEEDED")


def test_the_limit_is_changed_but_not_below_what_is_settled_and_reserved(api, money):
    it = reserved(api, money, 300)
    ok(money.settle(it, 100).send(api))
    message = refused(money.limit(299).send(api), "CONFLICT", 409)
    assert "300" in message
    assert "299" in message
    assert ok(money.limit(300).send(api))["availableMinor"] == "0"
    assert ok(money.limit(10**18).send(api))["availableMinor"] == str(10**18 - 300)
    reserved(api, money, 10**18 - 300)
    for call in (Call("PATCH", f"/budgets/{money.id}", {"limitMinor": "1", "scale": 3}), money.limit("1.5")):
        refused(call.send(api), "VALIDATION_FAILED", 400)


def test_by_name_a_budget_is_made_found_and_checked(api):
    from urllib.parse import quote

    path = f"/budgets/by-name/{quote('model/usd', safe='')}"
    settings = {"currency": "USD", "scale": 2, "limitMinor": "500"}
    assert '"model/usd"' in refused(Call("PUT", path, {}).send(api), "NOT_FOUND", 404)
    message = refused(Call("PUT", path, {"limitMinor": "500"}).send(api), "NOT_FOUND", 404)
    assert "currency" in message
    made = ok(Call("PUT", path, settings).send(api))
    assert made["name"] == "model/usd"
    for same in (settings, {}, {"scale": 2}, {"limitMinor": "500", "holdStale": False}):
        assert ok(Call("PUT", path, same).send(api)) == made
    for name, other, words in (
        ("currency", "EUR", ("USD", "EUR")),
        ("scale", 3, ("scale 2", "not 3")),
        ("limitMinor", "501", ("500", "501")),
        ("holdStale", True, ("holdStale false", "not true")),
    ):
        message = refused(Call("PUT", path, settings | {name: other}).send(api), "CONFLICT", 409)
        assert all(word in message for word in words), message


def test_what_ended_a_day_ago_is_seen_no_more_and_the_ledger_keeps_it(api, money, clock):
    it = reserved(api, money)
    ok(money.settle(it, 100).send(api))
    clock.shift(86_300)
    assert reservation(api, money, it)["state"] == "SETTLED"
    clock.shift(200)
    assert ok(money.view().send(api))["reservations"] == []
    assert len(ok(money.entries().send(api))["entries"]) == 2


def test_the_ledger_is_read_in_pages_oldest_first(api, money):
    it = reserved(api, money, 100)
    for n in range(4):
        ok(money.settle(it, 10, f"k{n}").send(api))
    ok(money.void(it).send(api))
    found, query = [], {"limit": 2}
    while True:
        page = ok(money.entries(**query).send(api))
        found += page["entries"]
        assert len(page["entries"]) <= 2
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
    assert [(e["kind"], e["amountMinor"], e["workKey"]) for e in found] == [
        ("reserve", "100", None),
        *(("settle", "10", f"k{n}") for n in range(4)),
        ("void", "60", "unused"),
    ]
    assert {(e["reservationId"], e["scopeId"]) for e in found} == {(it, money.scope)}
    refused(Budget(str(uuid.uuid4()), "").entries().send(api), "NOT_FOUND", 404)


def test_each_change_is_an_event_of_the_budget(api, money, clock):
    after = end_of(api)
    ok(money.overrun(reserved(api, money, 100), 1001).send(api))
    ok(money.limit(1001).send(api))
    ok(money.void(late(api, money, clock, 1)).send(api))
    told = read(api, cursor=after, aggregate=f"budget:{money.id}")
    assert [(e["type"], e["payload"].get("amountMinor")) for e in told] == [
        ("budget.reserved", "100"),
        ("budget.settled", "1000"),
        ("budget.overrun", "1"),
        ("resource.updated", None),
        ("budget.reserved", "1"),
        ("budget.stale", "1"),
        ("budget.voided", "0"),
    ]
    assert {e["scopeId"] for e in told if e["type"].startswith("budget.")} == {money.scope}
