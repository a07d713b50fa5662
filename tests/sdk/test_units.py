import json
from decimal import Decimal
from pathlib import Path

import pytest

from runstate import ConfigError, decimal_to_minor, minor_to_decimal
from runstate._units import amount_to_minor, duration_s, per_s

UNITS = json.loads(Path(__file__).parent.parent.joinpath("conformance/units.json").read_text())


@pytest.mark.parametrize("case", UNITS["durations"], ids=lambda case: repr(case["input"]))
def test_durations_mean_what_the_conformance_file_says(case):
    assert duration_s(case["input"]) == case["seconds"]


@pytest.mark.parametrize("value", [*UNITS["badDurations"], float("nan"), float("inf")], ids=repr)
def test_bad_durations_are_refused(value):
    with pytest.raises(ConfigError):
        duration_s(value)


@pytest.mark.parametrize("case", UNITS["pers"], ids=lambda case: repr(case["input"]))
def test_windows_mean_what_the_conformance_file_says(case):
    assert per_s(case["input"]) == case["seconds"]


@pytest.mark.parametrize("value", UNITS["badPers"], ids=repr)
def test_bad_windows_are_refused(value):
    with pytest.raises(ConfigError):
        per_s(value)


@pytest.mark.parametrize("case", UNITS["amounts"], ids=lambda case: f"{case['amount']!r}-{case['scale']}")
def test_amounts_become_the_minor_units_of_the_conformance_file(case):
    assert amount_to_minor(case["amount"], case["scale"]) == case["minor"]


@pytest.mark.parametrize("case", UNITS["badAmounts"], ids=lambda case: repr(case["amount"]))
def test_bad_amounts_are_refused(case):
    with pytest.raises(ConfigError):
        amount_to_minor(case["amount"], case["scale"])


@pytest.mark.parametrize(
    "amount", [float("nan"), float("inf"), 10**400, Decimal("0.001"), Decimal("NaN"), Decimal(-1)]
)
def test_amounts_that_are_no_money_are_refused(amount):
    with pytest.raises(ConfigError):
        amount_to_minor(amount, 2)


def test_decimal_and_minor_units_convert_exactly_both_ways():
    assert decimal_to_minor("1.25", 2) == "125"
    assert minor_to_decimal("125", 2) == "1.25"
    assert minor_to_decimal("5", 2) == "0.05"
    assert minor_to_decimal("125", 0) == "125"
    assert minor_to_decimal("0", 9) == "0.000000000"
    assert amount_to_minor(Decimal("1E+1"), 2) == "1000"
    huge = "123456789012345678901234567890.123456789"
    assert minor_to_decimal(decimal_to_minor(huge, 9), 9) == huge


@pytest.mark.parametrize("minor", ["", "1.5", "1e3", " 1", "١", 125, None])
def test_minor_units_are_digits_only(minor):
    with pytest.raises(ConfigError):
        minor_to_decimal(minor, 2)


@pytest.mark.parametrize("scale", [-1, 10, True, "2", None])
def test_a_scale_is_a_whole_number_up_to_nine(scale):
    with pytest.raises(ConfigError):
        decimal_to_minor("1", scale)
