"""Every field of every route: its type, its bounds, and a refusal that names it.

Held over the table of shapes; a new room joins by its rows in table.py.
"""

import json

import pytest

from tests.promises.table import SHAPES, post, raw
from tests.support.builders import Call, Once, held, ok, refused, scope

BIG = [str(2**63), "1" * 30, "1e400", "-1e400", "NaN", "Infinity", "-Infinity"]
NO_TEXT = ["true", "5", "1.0", "[]", "{}", "NaN", '"\\ud800"', '"\\udc00\\ud800"', '"\\u00"', *BIG]
NO_NUMBER = ["true", "false", '"5"', '""', "[]", "{}", *BIG]

# Per kind: JSON texts that are refused.
BAD = {
    "id": ["true", "5", "1.0", "[]", "{}", "NaN", '"\\ud800"', json.dumps("x" * 1001)],
    "name": [*NO_TEXT, '""', '"a\\u0000b"', json.dumps("é" * 257)],
    "key": [*NO_TEXT, '""', '"\\u0000"', json.dumps("é" * 513)],
    "token": [*NO_TEXT, '""', '"\\u0000"', json.dumps("x" * 257)],
    "text": NO_TEXT,
    "instant": [*NO_TEXT, '""', '"2026-01-01T00:00:00"', '"now"'],
    "lease": [*NO_NUMBER, "0", "0.999", "-1", "3600.001", "3601"],
    "json": ["NaN", "[Infinity]", '"\\ud800"', "[1,]", '{"a":1,"a":2}'],
    "1..10000": [*NO_NUMBER, "1.0", "1e2", "0", "-1", "10001"],
    "1..100": [*NO_NUMBER, "1.0", "0", "-1", "101"],
    "1..50": [*NO_NUMBER, "1.0", "0", "-1", "51"],
    "1..": [*NO_NUMBER, "1.0", "0", "-1"],
    "0..30000": [*NO_NUMBER, "1.0", "-1", "30001"],
    "-100..100": [*NO_NUMBER, "1.0", "-101", "101"],
    "delay": [*NO_NUMBER, "-0.001", str(366 * 86_400 + 1)],
    "flag": ["0", "1", '"true"', '""', "[]", "{}", *BIG],
    "mode": [*NO_TEXT, '""', '"work"', '"WORK "', '"FIFO"'],
    "result": ["true", "5", '"text"', "[]", "[1]", '{"payload":NaN}', '{"surprise":1}', '{"workKey":""}'],
}
# Per kind: texts of a query that are refused.
BAD_QUERY = {
    "id": ["%00", "x" * 1001],
    "name": ["", "%00", "%C3%A9" * 257],
    "key": ["", "a%00b", "%C3%A9" * 513],
    "state": ["", "active", "DONE"],
    "cursor": ["x", "%00", "x" * 513],
    "1..500": ["", "0", "501", "-1", "+1", "1.0", "true", "%EF%BC%91", "1%20", "1_0", str(2**63), "9" * 400],
    "0..30000": ["", "-1", "30001", "1.0", "true", "1e3", str(2**63), "9" * 400],
}


def fields_of(get):
    return [
        pytest.param(shape, name, kind, id=f"{shape} {name}")
        for shape in SHAPES
        for name, kind in get(shape).items()
    ]


@pytest.mark.parametrize(("shape", "name", "kind"), fields_of(lambda shape: shape.fields))
def test_a_value_that_cannot_be_is_refused(api, shape, name, kind):
    call = shape.call(api)
    for value in BAD[kind]:
        response = post(api, call, raw(call, **{name: value}))
        assert response.status_code == 400, f"{name}: {value[:50]}: {response.text}"
        message = refused(response, "VALIDATION_FAILED")
        syntax = ("NaN", "Infinity", "surrogate", "JSON", "members named")
        assert name in message or any(word in message for word in syntax), message
        assert "x" * 50 not in message  # what was sent is not sent back


@pytest.mark.parametrize(("shape", "name", "kind"), fields_of(lambda shape: shape.query))
def test_a_query_value_that_cannot_be_is_refused_by_name(api, shape, name, kind):
    path, _, query = shape.call(api).path.partition("?")
    kept = [pair for pair in query.split("&") if pair and not pair.startswith(f"{name}=")]
    for value in BAD_QUERY[kind]:
        response = api.get(f"{path}?{'&'.join([*kept, f'{name}={value}'])}")
        assert response.status_code == 400, f"{name}: {value[:50]}: {response.text}"
        assert name in refused(response, "VALIDATION_FAILED")


WITH_BODY = pytest.mark.parametrize("shape", [s for s in SHAPES if not s.name.startswith("GET")], ids=str)
WITHOUT = pytest.mark.parametrize("shape", [s for s in SHAPES if s.name.startswith("GET")], ids=str)


@WITH_BODY
def test_an_unknown_field_is_refused_by_name(api, shape):
    call = shape.call(api)
    for name in ("surprise", "scope_id", "Name", "holder_session", ""):
        message = refused(post(api, call, raw(call, **{name: "1"})), "VALIDATION_FAILED")
        assert f"unknown field {name!r}" in message


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_unknown_query_parameter_is_refused_by_name(api, shape):
    call = shape.call(api)
    joint = "&" if "?" in call.path else "?"
    response = Call(call.method, f"{call.path}{joint}surprise=1", call.body).send(api)
    assert "unknown query parameter 'surprise'" in refused(response, "VALIDATION_FAILED")


@WITHOUT
def test_a_query_parameter_given_twice_is_refused(api, shape):
    path = shape.call(api).path.partition("?")[0]
    for name in shape.query:
        response = api.get(f"{path}?{name}=a&{name}=a")
        assert f"{name!r} is given twice" in refused(response, "VALIDATION_FAILED")


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.required], ids=str)
def test_what_is_required_is_asked_for_by_name_and_null_is_not_enough(api, shape):
    call = shape.call(api)
    for name in shape.required:
        left = {k: v for k, v in call.body.items() if k != name}
        for body in (left, left | {name: None}):
            message = refused(Call(call.method, call.path, body).send(api), "VALIDATION_FAILED")
            assert f"{name!r} is required" in message
    message = refused(Call(call.method, call.path).send(api), "VALIDATION_FAILED")
    assert all(f"{name!r}" in message for name in shape.required)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.required_query], ids=str)
def test_what_is_required_of_a_query_is_asked_for_by_name(api, shape):
    path = shape.call(api).path.partition("?")[0]
    message = refused(api.get(path), "VALIDATION_FAILED")
    assert all(f"{name!r} is required" in message for name in shape.required_query)


@WITH_BODY
def test_null_for_an_optional_field_is_the_same_as_leaving_it_out(api, shape):
    optional = shape.fields.keys() - shape.required
    call = shape.call(api)
    left = {k: v for k, v in (call.body or {}).items() if k not in optional}
    without = Call(call.method, call.path, left).send(api)
    again = shape.call(api)
    body = {k: v for k, v in (again.body or {}).items() if k not in optional} | dict.fromkeys(optional)
    nulled = Call(again.method, again.path, body).send(api)
    assert nulled.status_code == without.status_code
    assert nulled.json().keys() == without.json().keys()
    assert nulled.status_code != 400


@pytest.mark.parametrize("lease_s", ["1", "1.0", "3600", "1.5e1", "0.1e2", "30.000000000000000001"])
def test_a_lease_may_be_written_as_any_json_number(api, lease_s):
    once = Once(scope(api))
    ok(post(api, once.acquire(), raw(once.acquire(), leaseSeconds=lease_s)))


def test_the_longest_of_everything_is_taken(api):
    once = Once(scope(api), "é" * 512)
    token = held(api, once, holder="é" * 256, session="é" * 256)
    assert ok(once.view().send(api))["holder"] == "é" * 256
    ok(once.fail(token, "é" * 2000, 100).send(api))
    assert ok(once.view(30_000).send(api))["lastError"] == "é" * 2000
