"""What has no business in a place is refused by the name of the place, over every place of the document: in
bodies at any depth, in queries, in the administration. Bounds are those of test_bounds.py.
"""

import json

import pytest

from tests.support.builders import refused
from tests.support.document import routes

NUMBERS = ["0.5", "5", "-5", "1e3", str(2**63), str(-(2**63) - 1), "1" * 30, "-" + "9" * 400]
SYNTAX = {
    "NaN": "NaN",
    "-NaN": "JSON",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "+1": "JSON",
    "01": "JSON",
    ".5": "JSON",
    "1.": "JSON",
    "0x10": "JSON",
    "1e": "JSON",
    "1_0": "JSON",
    "١": "JSON",
    "": "JSON",
    "'x'": "JSON",
    '"x': "JSON",
    '"\t"': "JSON",
    '"\\x41"': "JSON",
    '"\\u12"': "JSON",
    '"\\ud800"': "surrogate",
    '"\\udc00\\ud800"': "surrogate",
    '["\\ud83d"]': "surrogate",
    "undefined": "JSON",
    "True": "JSON",
    "[1,]": "JSON",
    "[,1]": "JSON",
    "[1 2]": "JSON",
    "{a:1}": "JSON",
    '{"a":1,}': "JSON",
    '{"a":1,"a":1}': "two members named",
    '{"a":{"b":1,"\\u0062":2}}': "two members named",
    "[" * 200 + "]" * 200: "128",
    "[" * 10_000 + "]" * 10_000: "128",
    '{"a":' * 10_000: "128",
    "/* x */ 1": "JSON",
    "1 // x": "JSON",
    "1\0": "JSON",
    "\ufeff1": "JSON",
}
BYTES = [b'"\xff"', b'"\xc3"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b"\xfe\xff"]
FAR = ["1e400", "-1e400", "1e99999"]
OTHERS = {
    "integer": [
        *("true", "false", '""', '"5"', '"x"', "[]", "[5]", "{}", "5.0", "5e0", "0.5", "-0.0", *FAR),
        *(str(2**63), str(-(2**63) - 1), str(2**64), "1" * 30, "-" + "1" * 30, "9" * 5_000),
    ],
    "number": ["true", "false", '""', '"5"', '"NaN"', "[]", "[5]", "{}", *FAR, "1" * 30, "-" + "9" * 5_000],
    "boolean": ["0", "1", "-1", '"true"', '"false"', '""', "[]", "[true]", "{}", "1.0", *FAR],
    "text": ["true", "false", *NUMBERS, "[]", '["x"]', "{}", '{"x":1}', *FAR],
    "id": ["true", "false", *NUMBERS, "[]", '["x"]', "{}", *FAR, json.dumps("x" * 1_001)],
    "choice": ["true", *NUMBERS, "[]", '["x"]', "{}", '""', '" "', '"\\u0000"', '"x"', json.dumps("x" * 300)],
    "instant": [
        *("true", *NUMBERS, "[]", "{}", '""', '"now"', '"\\u0000"', '"2999-01-01"', '"2999-01-01T00:00:00"'),
        *(
            '"2999-02-30T00:00:00Z"',
            '"2999-01-01T24:00:00Z"',
            '"2999-01-01T00:00:00+24:00"',
            '"٢999-01-01T00:00:00Z"',
        ),
        *('"99999-01-01T00:00:00Z"', '"-2999-01-01T00:00:00Z"', '"2999-01-01T00:00:00 Z"', '"1e3"'),
    ],
    "object": ["true", *NUMBERS, '"x"', "[]", "[{}]", '{"surprise":1}', '{"":1}', '{"__class__":{}}', *FAR],
    "list": ["true", *NUMBERS, '"x"', "{}", '{"0":{}}', "[[]]", "[null]", "[true]", '[{"surprise":1}]', *FAR],
    "json": [],
}
# In a query everything is text.
NO_DECIMAL = ["", " ", "5 ", " 5", "5\n", "5\0", "\uff15", "\u0665"]
NO_DECIMAL += [
    "5x",
    "x",
    "+5",
    "5e0",
    "0x5",
    "5_0",
    "--5",
    "-",
    ".",
    "NaN",
    "nan",
    "inf",
    "Infinity",
    "true",
    "null",
    "[5]",
]
QUERY = {
    "integer": [*NO_DECIMAL, "5.0", str(2**63), str(-(2**63) - 1), "1" * 30, "9" * 5_000],
    "number": [*NO_DECIMAL, "-1", ".5.", "-" + "9" * 5_000],
    "choice": ["", " ", "x", "null", "0", "active", "ACTIVE ", "A\0", "x" * 300, "ACTIVE,CANCELLED", "[]"],
}
NO_QUERY = ["%", "%4", "%zz", "%u0041", "%FF", "%C3", "%C0%AF", "%ED%A0%80", "%F4%90%80%80", "a%00b"]

EVERY = [(route, place) for route in routes() for place in route.places if place.where != "path"]
IN_BODY = [pytest.param(r, p, id=f"{r} {p}") for r, p in EVERY if p.where == "body"]
IN_QUERY = [pytest.param(r, p, id=f"{r} {p}") for r, p in EVERY if p.where == "query"]


@pytest.mark.parametrize(("route", "place"), IN_BODY)
def test_a_value_of_another_kind_is_refused_by_its_place(residents, calls, route, place):
    for text in OTHERS[place.kind]:
        response = residents.send_raw(route, calls(route), place, text)
        message = refused(response, "VALIDATION_FAILED")
        assert place.name in message, text
        assert len(text) < 20 or text.strip('"') not in message


@pytest.mark.parametrize(("route", "place"), IN_BODY)
def test_what_is_no_json_is_refused_in_every_place(residents, calls, route, place):
    for text, says in SYNTAX.items():
        if not text and place.at[-1] == 0:
            continue  # an empty list
        message = refused(residents.send_raw(route, calls(route), place, text), "VALIDATION_FAILED")
        assert says in message, text
    for raw in BYTES:
        method, path, content = route.with_raw(calls(route), place, "\udc80")
        content = content.replace(b"\xed\xb2\x80", raw)
        response = residents.request(method, path, content=content, headers=residents.rights(route))
        assert "UTF-8" in refused(response, "VALIDATION_FAILED")


@pytest.mark.parametrize(("route", "place"), [row for row in IN_BODY if row.values[1].required])
def test_null_is_not_enough_where_something_is_required(residents, calls, route, place):
    if place.kind in {"object", "list"} or place.at[-1] == 0:
        return  # named by what is within
    response = residents.send_raw(route, calls(route), place, "null")
    assert f"{'.'.join(map(str, place.at))!r} is required" in refused(response, "VALIDATION_FAILED")


@pytest.mark.parametrize(("route", "place"), IN_QUERY)
def test_a_query_value_of_another_kind_is_refused_by_its_name(residents, calls, route, place):
    for value in QUERY.get(place.kind, []):
        message = refused(residents.send_with(route, calls(route), place, value), "VALIDATION_FAILED")
        assert place.name in message, value
        assert len(value) < 20 or value not in message
    for text in NO_QUERY:
        message = refused(residents.send_raw(route, calls(route), place, text), "VALIDATION_FAILED")
        assert "query" in message or place.name in message, text


BODIES = {
    "a mark of byte order": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "UTF-32": "{}".encode("utf-32-be"),
    "a list of it": b"[{}]",
    "two of it": b"{}{}",
    "lines of it": b"{}\n{}",
    "an object within a text": b'"{}"',
    "a form": b"scopeId=x&key=y",
    "XML": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    "YAML": b"scopeId: x\n",
    "CBOR": b"\xa1\x61a\x01",
    "a comment": b"{/**/}",
    "NUL": b"{}\0",
    "null": b"null",
    "a number": b"0",
    "a member without a name": b'{"":1}',
    "a member of ours, elsewhere": b'{"__proto__":{},"constructor":{}}',
}


@pytest.mark.parametrize("route", [r for r in routes() if not r.reads], ids=str)
def test_a_body_that_is_no_object_of_the_route_is_refused(residents, calls, route):
    call = calls(route)
    for name, content in BODIES.items():
        response = residents.send_body(route, call, content)
        assert refused(response, "VALIDATION_FAILED"), name


@pytest.mark.parametrize("route", [r for r in routes() if not r.reads], ids=str)
def test_an_empty_body_is_an_empty_object_whatever_it_is_called(residents, calls, route):
    call = calls(route)
    if not any(p.required and len(p.at) == 1 for p in route.places if p.where == "body"):
        return  # it would succeed: tests/contract/test_wire.py
    told = {
        refused(residents.send_body(route, call, content, **{"Content-Type": kind}), "VALIDATION_FAILED")
        for content in (b"", b" \r\n\t", b"{}", b" { } ")
        for kind in ("application/json", "text/plain", "application/xml", "nonsense", "")
    }
    assert len(told) == 1
