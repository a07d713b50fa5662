"""The user's JSON: as large as is promised, and out as it came in, in every place of the document where some
stands. A new room joins by `shows` in its row, see kinds.py.
"""

import json

import pytest

from tests.promises.everyone import Everyone
from tests.promises.table import SHAPES
from tests.support.builders import Call, refused
from tests.support.document import routes

BYTES_MAX = 65_536
DEPTH_MAX = 128
ROWS = {str(shape): shape for shape in SHAPES}
EVERY = pytest.mark.parametrize(
    ("route", "place"),
    [
        pytest.param(route, place, id=f"{route} {place}")
        for route in routes()
        for place in route.places
        if place.kind == "json"
    ],
)


def told(everyone: Everyone, route, place, text):
    """The answer to a new call with that text in the place, and the call."""
    call = everyone.call(route)
    response = everyone.send_raw(route, call, place, text)
    inside = Call(call.method, call.path.removeprefix(f"/v1/spaces/{everyone.space.id}"), call.body)
    return response, inside


def shown(everyone, route, place, text):
    """The answer that shows what was sent."""
    response, call = told(everyone, route, place, text)
    assert response.is_success, response.text[:200]
    look = ROWS[str(route)].shows(call, response.json()).send(everyone.api)
    assert look.is_success
    return look.content.decode()


SAME = [
    "null",
    "false",
    "-0",
    "-0.0",
    "1.0",
    "1E400",
    "-1e-400",
    "0.1000000000000000055511151231257827",
    "12345678901234567890123456789012345678901234567890",
    "9" * 5_000,
    '""',
    '"\\u0000"',
    '"a\\u0000b"',
    '{"\\u0000":"\\u0000","a\\u0000":[]}',
    '"\\/\\b\\f\\n\\r\\t\\"\\\\"',
    '"\\u00e9é\\ud83d\\ude00\U0001f600 e\u0301 \u200d\u202e\ufeff\uffff\U0010ffff"',
    '"  spaces  stay  \u2028\u2029\x7f"',
    '{"b":1,"a":2,"":3,"é":4,"e\u0301":5,"B":6}',
    '{"$payload":0}',
    '[{"$payload":0},"{\\"$payload\\":1}"]',
    '{"error":{"code":"X"},"token":"x","state":"DONE"}',
    "[[[[1],{}],null],false]",
    "[" * DEPTH_MAX + "]" * DEPTH_MAX,
    '{"a":' * (DEPTH_MAX - 1) + "[]" + "}" * (DEPTH_MAX - 1),
]


@EVERY
def test_user_json_comes_out_as_it_was_written(everyone, route, place):
    for text in SAME:
        assert f":{text}" in shown(everyone, route, place, text), text[:60]


@EVERY
def test_only_white_space_between_tokens_is_removed(everyone, route, place):
    spaced = '\t{ "a b" :\r\n [ 1 , 2.50 , " \\" { } " ] , "c" : { } } \n'
    assert ':{"a b":[1,2.50," \\" { } "],"c":{}}' in shown(everyone, route, place, spaced)


@EVERY
@pytest.mark.parametrize("filler", ["a", "é", "€", "\U0001f600", "\\u00e9", "\\u0000"])
def test_65536_bytes_are_taken_and_one_more_is_refused(everyone, route, place, filler):
    size = len(filler.encode())
    count = (BYTES_MAX - len('""')) // size
    fits = f'"{filler * count}{"a" * (BYTES_MAX - len(chr(34) * 2) - count * size)}"'
    assert len(fits.encode()) == BYTES_MAX
    assert f":{fits}" in shown(everyone, route, place, f"  {fits}  ")
    over = fits[:-1] + 'a"'
    message = refused(told(everyone, route, place, over)[0], "VALIDATION_FAILED")
    assert f"{place.name} exceeds 65536 bytes" in message


@EVERY
def test_many_small_values_are_measured_without_their_white_space(everyone, route, place):
    count = (BYTES_MAX - 1) // 2
    small = "[" + ",".join("1" * count) + "]"
    spaced = "[" + " , ".join("1" * count) + "]"
    assert len(small) in {BYTES_MAX - 1, BYTES_MAX}
    assert len(spaced) > 2 * BYTES_MAX - 10
    assert f":{small}" in shown(everyone, route, place, spaced)
    over = json.dumps([1] * (count + 1))
    assert "exceeds 65536 bytes" in refused(told(everyone, route, place, over)[0], "VALIDATION_FAILED")


@EVERY
def test_one_level_too_many_is_refused(everyone, route, place):
    for text in ("[" * 129 + "]" * 129, '{"a":' * 128 + "[]" + "}" * 128):
        message = refused(told(everyone, route, place, text)[0], "VALIDATION_FAILED")
        assert f"nested deeper than {DEPTH_MAX}" in message
    brackets = json.dumps("[{" * 5_000)
    assert brackets in shown(everyone, route, place, brackets)


@EVERY
def test_absent_means_null(everyone, route, place):
    call = everyone.call(route)
    marked = route.with_raw(call, place, "null")[2]
    body = json.loads(marked)
    *parents, last = place.at
    holder = body
    for part in parents:
        holder = holder[part]
    del holder[last]
    inside = Call(call.method, call.path.removeprefix(f"/v1/spaces/{everyone.space.id}"), body)
    response = inside.send(everyone.api)
    assert response.is_success, response.text
    look = ROWS[str(route)].shows(inside, response.json()).send(everyone.api)
    assert ":null" in look.text


def test_every_place_of_user_json_has_its_way_to_be_shown():
    assert {str(r) for r in routes() for p in r.places if p.kind == "json"} == {
        str(shape) for shape in SHAPES if shape.shows is not None
    }
