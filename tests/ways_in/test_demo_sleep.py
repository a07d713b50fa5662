"""What the demo claims of its durable sleep is called false when it is."""

import dataclasses

import pytest

from examples.demo.sleeping import Seen, _claims
from tests.support.crowd import Telling

EVENTS = [("timer.created", 0.0), ("timer.fired", 12.01), ("timer.acked", 12.1)]


def awake(who, at, slept_s):
    return Telling(at, who, "awake", {"slept_s": slept_s})


SECOND, THIRD = awake("sleeper-2", 12.1, 10.0), awake("sleeper-3", 13.0, 0.1)
TRUE = Seen(due_at=12.0, back_at=5.0, awake=[SECOND, THIRD], events=EVENTS)
LIES = {
    "fired early": {"events": [EVENTS[0], ("timer.fired", 11.9), EVENTS[2]]},
    "fired twice": {"events": [*EVENTS, ("timer.fired", 13.0)]},
    "never fired": {"events": EVENTS[:1]},
    "awake early": {"awake": [awake("sleeper-2", 11.0, 10.0), THIRD]},
    "slept all of it": {"awake": [awake("sleeper-2", 12.1, 12.5), THIRD]},
    "woke late": {"awake": [awake("sleeper-2", 40.0, 10.0), THIRD]},
    "slept again": {"awake": [SECOND, awake("sleeper-3", 25.0, 12.0)]},
}


@pytest.mark.parametrize("back_at", [5.0, 14.0])
def test_a_true_account_of_the_sleep_is_called_true(back_at):
    assert all(claim.holds for claim in _claims(dataclasses.replace(TRUE, back_at=back_at)))


@pytest.mark.parametrize("lie", LIES)
def test_a_false_account_of_the_sleep_is_called_false(lie):
    assert not all(claim.holds for claim in _claims(dataclasses.replace(TRUE, **LIES[lie])))
