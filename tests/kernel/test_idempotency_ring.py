"""The ring of four daily slots: a key is found for 24 h across midnight, and each slot is emptied in turn."""

import uuid

import pytest

from tests.support import database, spaces
from tests.support.clock import Clock

DAY_S = 86_400


class Ring:
    """Idempotency keys of one space, used through scope_create, under a clock that only this test moves."""

    def __init__(self, url, schema):
        self._url, self._schema = url, schema
        self._clock = Clock(url)
        self._space = spaces.create(url).id
        today = database.fetchval(url, f"SELECT extract(epoch FROM {schema}.kernel_now())::float8") % DAY_S
        self._clock.shift(DAY_S - today)  # midnight

    def use(self, key):
        """Whether the key was replayed; its scope's id."""
        rows = database.fetch(
            self._url,
            f"SELECT replayed, facts->>'id' AS id FROM {self._schema}.scope_create("
            "$1, $2, NULL, NULL, NULL, 10, 32, $3, $4)",
            self._space,
            uuid.uuid4(),
            key,
            b"print",
        )
        return rows[0]["replayed"], rows[0]["id"]

    def hours_pass(self, hours):
        self._clock.shift(hours * 3600)

    def sweep(self):
        return database.fetchval(self._url, f"SELECT {self._schema}.idempotency_sweep(1)")

    def kept(self):
        return database.fetchval(self._url, "SELECT count(*) FROM runstate.idempotency")


@pytest.fixture
def ring(fresh_database, kernel_schema):
    return Ring(fresh_database, kernel_schema)


@pytest.mark.parametrize("at_hour", [0, 1, 12, 23])
def test_a_key_is_found_for_24_hours_at_whatever_hour_it_was_used(ring, at_hour):
    ring.hours_pass(at_hour)
    first = ring.use("k")
    for _ in range(23):
        ring.hours_pass(1)
        ring.sweep()
        assert ring.use("k") == (True, first[1])
    ring.hours_pass(1.01)
    replayed, other = ring.use("k")
    assert not replayed
    assert other != first[1]


def test_every_slot_is_emptied_before_its_turn_comes_and_none_too_early(ring):
    for day in range(9):
        first = ring.use(f"day-{day}")
        assert ring.sweep() in {0, 1}
        ring.hours_pass(23.9)
        assert ring.sweep() == 0 or day >= 2
        assert ring.use(f"day-{day}") == (True, first[1])
        ring.hours_pass(0.1)
        assert ring.kept() <= 3


def test_a_key_left_over_from_an_earlier_turn_of_the_ring_does_not_stand_in_the_way(ring):
    first = ring.use("k")
    ring.hours_pass(96)
    replayed, other = ring.use("k")
    assert (replayed, other == first[1]) == (False, False)
    assert ring.use("k") == (True, other)
