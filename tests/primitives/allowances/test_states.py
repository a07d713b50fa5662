"""The life of allowances: windows, the order of those who wait, cooldowns, changes of size."""

import pytest

from tests.support import races
from tests.support.allowances import DAY, HOUR, allowance, leave, look
from tests.support.builders import Call, end, ok, refused, scope
from tests.support.events import read


@pytest.fixture
def searches(api, clock):
    clock.to_the_next(DAY)
    return allowance(api, scope(api), 3)


def waits(api, searches, units=1, **how):
    return ok(searches.wait(units, **how).send(api))


def state(api, waiter):
    return ok(look(waiter).send(api))["state"]


def left(api, searches):
    seen = ok(searches.view().send(api))
    return seen["consumed"], seen["remaining"], seen["waiting"]


def test_units_are_consumed_until_the_window_has_none_and_the_next_one_has_all(api, searches, clock):
    first = ok(searches.consume(2).send(api))
    assert set(first) == {"consumptionId", "units", "windowStart", "remaining"}
    assert (first["units"], first["remaining"]) == (2, 1)
    answer = searches.consume(2).send(api)
    assert '"search-api" has 1 of 3' in refused(answer, "ALLOWANCE_EXHAUSTED", 429)
    assert 0 < float(answer.headers["Retry-After"]) <= DAY
    assert ok(searches.consume(1).send(api))["remaining"] == 0
    clock.shift(DAY)
    assert left(api, searches) == (0, 3, 0)
    then = ok(searches.consume(3).send(api))
    assert then["windowStart"] > first["windowStart"]


def test_the_windows_are_aligned_to_the_epoch_by_the_clock_of_the_database(api):
    run = scope(api)
    for seconds, tail in ((DAY, "T00:00:00.000Z"), (HOUR, ":00:00.000Z"), (60, ":00.000Z"), (1, ".000Z")):
        seen = ok(allowance(api, run, 1, seconds, f"per {seconds}").view().send(api))
        assert seen["windowStart"].endswith(tail)


def test_a_clock_that_goes_back_refills_no_window(api, searches, clock):
    ok(searches.consume(3).send(api))
    clock.shift(-3 * DAY)
    refused(searches.consume(1).send(api), "ALLOWANCE_EXHAUSTED")
    clock.shift(3 * DAY)
    refused(searches.consume(1).send(api), "ALLOWANCE_EXHAUSTED")
    clock.shift(DAY)
    assert ok(searches.consume(3).send(api))["remaining"] == 0


def test_those_who_wait_are_granted_in_order_as_the_window_turns_and_nobody_overtakes(api, clock):
    searches = allowance(api, scope(api), 3, HOUR // 2)
    clock.to_the_next(HOUR // 2)
    assert waits(api, searches, 2)["state"] == "GRANTED"
    large, small = (waits(api, searches, units, ttlSeconds=HOUR) for units in (3, 1))
    assert (large["state"], large["position"], large["consumptionId"]) == ("WAITING", 1, None)
    assert small["position"] == 2
    refused(searches.consume(1).send(api), "ALLOWANCE_EXHAUSTED")  # one is left, and two wait
    assert left(api, searches) == (2, 1, 2)
    clock.shift(HOUR // 2)
    seen = ok(look(large["waiterId"], 5_000).send(api))
    assert set(seen) == {"waiterId", "state", "units", "consumptionId"}
    assert (seen["state"], seen["units"]) == ("GRANTED", 3)
    assert seen["consumptionId"]
    assert state(api, small["waiterId"]) == "WAITING"
    assert left(api, searches) == (3, 0, 1)
    clock.shift(HOUR // 2)
    refused(searches.consume(3).send(api), "ALLOWANCE_EXHAUSTED")  # the small one comes first
    assert state(api, small["waiterId"]) == "GRANTED"
    assert ok(searches.consume(2).send(api))["remaining"] == 0


def test_a_waiter_that_is_gone_consumes_nothing_and_holds_nobody_up(api, searches, clock):
    ok(searches.consume(3).send(api))
    other = scope(api)
    missed = waits(api, searches, 3, ttlSeconds=60)["waiterId"]
    ended = waits(api, type(searches)(searches.id, other), 3, ttlSeconds=3600)["waiterId"]
    gone = waits(api, searches, 3, ttlSeconds=3600)["waiterId"]
    kept = waits(api, searches, 1, ttlSeconds=3600)["waiterId"]
    ok(end(other).send(api))
    assert ok(leave(gone).send(api))["state"] == "CANCELLED"
    clock.shift(61)
    assert state(api, missed) == "EXPIRED"
    assert state(api, ended) == "CANCELLED"
    assert left(api, searches) == (3, 0, 1)
    for _ in range(DAY // 1800):
        clock.shift(1800)
        ok(look(kept).send(api))
    assert state(api, kept) == "GRANTED"
    assert left(api, searches) == (1, 2, 0)
    told = ok(leave(kept).send(api))
    assert (told["state"], told["units"]) == ("GRANTED", 1)
    assert left(api, searches) == (1, 2, 0), "what was consumed is not given back"


def test_a_cooldown_grants_nothing_to_anybody_and_is_never_shortened(api, searches, clock):
    until = ok(searches.cool(600, reason="429").send(api))["cooldownUntil"]
    answer = searches.consume().send(api)
    assert until in refused(answer, "ALLOWANCE_COOLDOWN", 429)
    assert 590 < float(answer.headers["Retry-After"]) <= 600
    assert ok(searches.cool(60).send(api))["cooldownUntil"] == until
    waiter = waits(api, searches, 1, ttlSeconds=3600)
    assert waiter["state"] == "WAITING"
    assert ok(searches.view().send(api))["cooldownUntil"] == until
    clock.shift(601)
    assert ok(searches.view().send(api))["cooldownUntil"] is None
    assert ok(look(waiter["waiterId"], 5_000).send(api))["state"] == "GRANTED"


def test_the_turn_of_a_window_is_taken_without_anybody_asking(api, clock):
    quick = allowance(api, scope(api), 1, 60)
    clock.to_the_next(60)
    ok(quick.consume().send(api))
    ok(quick.wait(ttlSeconds=HOUR, holder="zoe").send(api))
    clock.shift(60)
    races.until_blocking(
        lambda: [e for e in read(api, types="allowance.consumed") if e["payload"]["holder"] == "zoe"],
        what="the grant",
    )
    assert left(api, quick) == (1, 0, 0)


def test_more_than_a_window_has_is_refused_and_a_smaller_limit_sends_such_waiters_away(api, searches):
    assert "4 are more than the 3" in refused(searches.consume(4).send(api), "VALIDATION_FAILED", 400)
    assert "4 are more than the 3" in refused(searches.wait(4).send(api), "VALIDATION_FAILED", 400)
    ok(searches.consume(3).send(api))
    large = waits(api, searches, 3)["waiterId"]
    ok(searches.resize(unitsLimit=2).send(api))
    assert state(api, large) == "CANCELLED"
    assert left(api, searches) == (3, 0, 0)


def test_a_change_of_size_is_no_refill(api, clock):
    clock.to_the_next(DAY)
    searches = allowance(api, scope(api), 3, HOUR)
    ok(searches.consume(3).send(api))
    for seconds in (60, DAY, HOUR):
        seen = ok(searches.resize(windowSeconds=seconds).send(api))
        assert (seen["consumed"], seen["remaining"], seen["windowSeconds"]) == (3, 0, seconds)
        refused(searches.consume().send(api), "ALLOWANCE_EXHAUSTED")
    waiter = waits(api, searches, 1)["waiterId"]
    assert ok(searches.resize(unitsLimit=4).send(api))["remaining"] == 0
    assert state(api, waiter) == "GRANTED"


def test_by_name_it_is_found_checked_and_created(api):
    by_name = "/allowances/by-name/search%2Fapi"

    def put(**sizes):
        return Call("PUT", by_name, sizes).send(api)

    assert '"search/api"' in refused(put(), "NOT_FOUND")
    assert "windowSeconds" in refused(put(unitsLimit=3), "VALIDATION_FAILED", 400)
    made = ok(put(unitsLimit=3, windowSeconds=60))
    assert (made["unitsLimit"], made["windowSeconds"], made["name"]) == (3, 60, "search/api")
    assert ok(put())["id"] == ok(put(unitsLimit=3))["id"] == made["id"]
    assert "3 units in 60 s, not 4 in 60 s" in refused(put(unitsLimit=4, windowSeconds=60), "CONFLICT")
    assert "not 3 in 61 s" in refused(put(windowSeconds=61), "CONFLICT")
    again = {"name": "search/api", "unitsLimit": 3, "windowSeconds": 60}
    refused(Call("POST", "/allowances", again).send(api), "CONFLICT")
    assert [a["id"] for a in ok(Call("GET", "/allowances").send(api))["allowances"]] == [made["id"]]
