import dataclasses
import datetime as dt
import enum
import functools
import json
import math
from pathlib import Path

import pydantic
import pytest

from runstate import ConfigError, ResultTooLargeError
from runstate._keys import Signature, canonical_json, compact_json, hash_key

CASES = json.loads(Path(__file__).parent.parent.joinpath("conformance/keys.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["canonical"][:40])
def test_keys_and_canonical_json_equal_those_of_a_javascript_engine(case):
    assert canonical_json(case["args"]) == case["canonical"]
    assert hash_key(case["name"], case["args"]) == case["key"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (1e21, "1e+21"),
        (123e19, "1.23e+21"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (0.000123, "0.000123"),
        (1e5, "100000"),
        (2**60, "1152921504606847000"),
        (2.5e20, "250000000000000000000"),
        (5e-324, "5e-324"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(value, text):
    assert canonical_json(value) == text


def test_text_is_escaped_as_json_stringify_does():
    assert canonical_json("\u2028\u007f\u0001") == '"\u2028\u007f\\u0001"'
    assert canonical_json("\ud83d\ude00") == '"😀"'
    assert canonical_json("\ud800é") == '"\\ud800é"'


def listed(function, *args, **kwargs):
    return Signature(function).arguments(args, kwargs)[0]


def test_arguments_are_the_same_however_they_are_passed():
    def f(a, b=2, *rest, c=3, d=4, **more): ...

    assert listed(f, "x") == listed(f, a="x") == ["x"]
    assert listed(f, "x", 5) == listed(f, b=5, a="x") == ["x", 5]
    assert listed(f, "x", 2) == ["x", 2]
    assert listed(f, "x", 5, 6, 7) == ["x", 5, 6, 7]
    assert listed(f, "x", c=9) == ["x", 2, {"c": 9}]
    assert listed(f, "x", 1, d=9, c=8, e=7) == ["x", 1, {"c": 8, "d": 9, "e": 7}]


def test_a_default_that_is_skipped_before_a_given_argument_takes_its_place():
    def f(a=1, b=2, c=3): ...

    assert listed(f, c=9) == [1, 2, 9]
    assert listed(f, b=9) == [1, 9]
    assert listed(f) == []


def test_calls_the_function_would_refuse_are_refused_by_its_own_typeerror():
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        listed(lambda a: a)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        listed(lambda a: a, 1, z=2)


def test_partials_and_builtins_have_argument_lists_too():
    assert listed(functools.partial(lambda a, b: (a, b), 1), 2) == [2]
    assert listed(min, 1, 2) == [1, 2]
    assert listed(min, [1], default=0) == [[1], {"default": 0}]


@dataclasses.dataclass
class Company:
    name: str
    tags: tuple[str, ...] = ()
    parent: "Company | None" = None


class Color(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def test_tuples_dataclasses_and_enums_of_json_types_count_as_the_json_they_hold():
    company = Company("acme", ("x",), Company("parent"))
    as_json = {"name": "acme", "tags": ["x"], "parent": {"name": "parent", "tags": [], "parent": None}}

    assert hash_key("k", [company, (1, 2)]) == hash_key("k", [as_json, [1, 2]])
    assert hash_key("k", [Color.RED, Level.HIGH]) == hash_key("k", ["red", 3])


def test_pydantic_models_count_as_the_json_they_hold():
    model = pydantic.create_model("Model", day=(dt.date, ...), n=(int, 1))
    assert hash_key("k", [model(day="2026-01-02")]) == hash_key("k", [{"day": "2026-01-02", "n": 1}])


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (object(), "argument x is of type object"),
        ({1, 2}, "argument x is of type set"),
        (b"bytes", "argument x is of type bytes"),
        (Company, "argument x is of type type"),
        ({"a": [1, {"b": object()}]}, r"argument x\.a\[1\]\.b is of type object"),
        ({1: 2}, "argument x has the key 1"),
        (math.nan, "argument x is nan"),
        (math.inf, "argument x is inf"),
        (2**53 + 1, "argument x is an integer that a double cannot hold exactly"),
        (10**400, "argument x is an integer that a double cannot hold exactly"),
        ([2**53 + 1], r"argument x\[0\] is an integer"),
    ],
)
def test_an_argument_that_is_not_json_is_refused_by_name(value, fault):
    with pytest.raises(ConfigError, match=fault):
        hash_key("k", [value], ["x"])


def test_a_keyword_only_argument_is_refused_by_its_own_name():
    def f(*, client): ...

    with pytest.raises(ConfigError, match="argument client is of type object"):
        hash_key("k", *Signature(f).arguments((), {"client": object()}))


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ConfigError, match="nested deeper than 128"):
        hash_key("k", [loop], ["x"])


def test_results_keep_every_json_value_and_nothing_else():
    value = {"n": 2**70, "f": 1e16, "s": "\u2028 é \u0000", "l": [None, True, (1,)], "a": {"b": {}}}
    assert json.loads(compact_json(value, "r")) == {**value, "l": [None, True, [1]]}
    for bad in ({1: 2}, object(), math.nan, Company("acme"), "\ud800", {"\ud800": 1}, [{"x": {1}}]):
        with pytest.raises(ConfigError):
            compact_json(bad, "the result")


def test_results_are_bounded_in_bytes_not_characters():
    assert len(compact_json("é" * 32_767, "r").encode()) == 65_536
    with pytest.raises(ResultTooLargeError, match=r"the result exceeds 65536 bytes \(65538\)"):
        compact_json("é" * 32_768, "the result")
