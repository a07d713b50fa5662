import pytest

from runstate import _retry
from runstate.errors import map_error


@pytest.mark.parametrize(
    ("code", "status", "not_yet", "transient"),
    [
        ("UNAVAILABLE", 503, True, True),
        ("UNAVAILABLE", 0, True, True),
        ("RATE_LIMITED", 429, True, True),
        ("CONCURRENCY_LIMITED", 429, True, True),
        ("OPERATIONS_EXHAUSTED", 429, False, True),
        ("INTERNAL", 500, False, True),
        ("CLAIM_HELD", 409, False, False),
        ("STALE_CLAIM", 409, False, False),
        ("SCOPE_CANCELLED", 409, False, False),
        ("UNAUTHENTICATED", 401, False, False),
        ("VALIDATION_FAILED", 400, False, False),
    ],
)
def test_waits_and_renewals_outlast_what_time_can_clear(code, status, not_yet, transient):
    error = map_error(code, status, "m")
    assert _retry.is_not_yet(error) is not_yet
    assert _retry.is_transient(error) is transient


def test_pauses_grow_and_stay_within_their_bounds():
    for failures in range(1, 40):
        assert 0 < _retry.attempt_pause_s(failures) <= 2
        assert 0 < _retry.wait_pause_s(failures, None) <= 10
    assert _retry.wait_pause_s(1, None) < 0.2
    assert _retry.wait_pause_s(30, None) >= 5


def test_the_servers_own_guess_is_waited_for():
    assert 2 <= _retry.wait_pause_s(1, 2000) < 2.2
    assert _retry.wait_pause_s(1, 60_000) == 10


@pytest.mark.parametrize("status", [200, 400, 404, 409, 429, 500, 501, 502, 503, 504])
def test_only_answers_from_in_front_of_the_server_are_repeated(status):
    assert _retry.may_repeat_answer(status, has_envelope=False) is (status in {502, 503, 504})
    assert _retry.may_repeat_answer(status, has_envelope=True) is False
