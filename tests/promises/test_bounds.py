"""Every field of every route: its type, its bounds, and a refusal that names it.

Held over the table of shapes; a new room joins by its rows, see table.py.
"""

import json

import pytest

from runstate_server.primitives.messages.schemas import State as MessageState
from runstate_server.primitives.scopes.schemas import State as ScopeState
from runstate_server.primitives.tasks.schemas import State as TaskState
from tests.promises.kinds import code, post, raw, with_field
from tests.promises.table import SHAPES
from tests.support.builders import Call, Once, held, ok, refused, scope
from tests.support.queues import mailbox

BIG = [str(2**63), "1" * 30, "1e400", "-1e400", "NaN", "Infinity", "-Infinity"]
NO_TEXT = ["true", "5", "1.0", "[]", "{}", "NaN", '"\\ud800"', '"\\udc00\\ud800"', '"\\u00"', *BIG]
NO_NUMBER = ["true", "false", '"5"', '""', "[]", "{}", *BIG]
NO_OBJECT = ["true", "5", '"text"', "[]", "[{}]", "NaN", *BIG]
NO_JSON = ["NaN", "[Infinity]", '"\\ud800"', "[1,]", '{"a":1,"a":2}', '{"a":{"b":-Infinity}}']
NO_ID = ["true", "5", "1.0", "[]", "{}", "NaN", '"\\ud800"', json.dumps("x" * 1001)]
NO_KEY = [*NO_TEXT, '""', '"\\u0000"', json.dumps("é" * 513)]


def whole(least, most):
    """What is refused of a whole number within these bounds."""
    return [*NO_NUMBER, "1.0", "1e0", str(least - 1), str(most + 1)]


def within(names, *, but=None):
    """Objects of which one member is wrong or missing; `but` holds the right ones, by name."""
    right = {name: json.dumps(value) for name, value in (but or {}).items()}
    short = [{n: text for n, text in right.items() if n != name} for name in right]
    wrong = [right | {name: text} for name, texts in names.items() for text in texts]
    return ["{" + ",".join(f'"{n}":{text}' for n, text in members.items()) + "}" for members in short + wrong]


TASK = {"scopeId": "s", "mailboxId": "m", "taskKey": "k"}
NO_TASK = within(
    {
        "scopeId": NO_ID,
        "mailboxId": NO_ID,
        "taskKey": NO_KEY,
        "input": NO_JSON,
        "deadline": ['"now"', "5"],
        "priority": whole(-100, 100),
        "delaySeconds": ["-0.001", "31622400.001"],
        "workLimit": ['""', "5"],
        "surprise": ["1"],
    },
    but=TASK,
)

# Amounts are texts of decimal digits: whole, not negative, at most 10^18, one way to write each.
NO_MINOR = [
    *NO_TEXT,
    *('""', '" 1"', '"1 "', '"+1"', '"-1"', '"-0"', '"1.0"', '"1,0"', '"1e3"', '"0x1"', '"01"', '"1_0"'),
    *('"\u0661"', '"\uff11"', '"NaN"', '"null"', '"1\u0000"', f'"{10**18 + 1}"', f'"{10**19}"'),
    *(f'"{2**63}"', f'"{"9" * 400}"'),
]

# What is required: lists of so many at most, each name once, whole units, amounts of money.
UNITS = {"name": "x", "units": 1}
MONEY = {"name": "x", "reserveMinor": "1"}
NO_NEEDS = NO_OBJECT + within(
    {
        "pools": ["{}", "[null]", "[{}]", json.dumps([UNITS] * 2), json.dumps([UNITS] * 5)]
        + [f"[{text}]" for text in within({"name": ['""', "5"], "units": whole(1, 10**9)}, but=UNITS)],
        "quotas": ["{}", json.dumps([UNITS] * 5)],
        "budgets": ["{}", json.dumps([MONEY] * 3)]
        + [f"[{text}]" for text in within({"name": ['""'], "reserveMinor": [*NO_MINOR, '"0"']}, but=MONEY)],
        "surprise": ["1"],
    }
)

# Per kind: JSON texts that are refused.
BAD = {
    "id": NO_ID,
    "name": [*NO_TEXT, '""', '"a\\u0000b"', json.dumps("é" * 257)],
    "key": NO_KEY,
    "name of a limit": [*NO_TEXT, '""', '"a\\u0000b"', json.dumps("é" * 257)],
    "token": [*NO_TEXT, '""', '"\\u0000"', json.dumps("x" * 257)],
    "text": NO_TEXT,
    "instant": [*NO_TEXT, '""', '"2026-01-01T00:00:00"', '"now"'],
    "instant ahead": [*NO_TEXT, '""', '"2026-01-01T00:00:00"', '"now"', '"2999-01-01T00:00:00Z"'],
    "lease": [*NO_NUMBER, "0", "0.999", "-1", "3600.001", "3601"],
    "cooldown": [*NO_NUMBER, "0", "0.999", "-1", "86400.001", "1e18"],
    "delay": [*NO_NUMBER, "-0.001", "-1", "31622400.001", "31622401"],
    "boolean": ["1", "0", '"true"', '""', "[]", "{}", "NaN"],
    "condition": [*NO_TEXT, '""', '"n_accepted"', '"ANY"'],
    "mode": [*NO_TEXT, '""', '"work"', '"WORK "', '"OTHER"'],
    "json": NO_JSON,
    "minor": NO_MINOR,
    "positive minor": [*NO_MINOR, '"0"'],
    "currency": [*NO_TEXT, '""', '"usd"', '"US"', '"USDT"', '"US$"', '"USD\\n"', '"\u00c9UR"'],
    "0..9": whole(0, 9),
    "1..10000": whole(1, 10_000),
    "1..100": whole(1, 100),
    "threshold": whole(1, 1_000),
    "1..86400": whole(1, 86_400),
    "1..50": whole(1, 50),
    "1..1000000000": whole(1, 1_000_000_000),
    "-100..100": whole(-100, 100),
    "0..30000": whole(0, 30_000),
    "needs": NO_NEEDS,
    "result": NO_OBJECT
    + within(
        {"payload": NO_JSON, "mailboxId": NO_ID, "scopeId": NO_ID, "workKey": NO_KEY, "surprise": ["1"]}
    ),
    "tasks": ["true", "5", '"text"', "{}", "[]", "[null]", '["text"]', "[[]]", "[{}]"]
    + [f"[{json.dumps(TASK)},{text}]" for text in NO_TASK]
    + [json.dumps([TASK] * 501)],
}
# Per kind: JSON texts that are taken.
GOOD = {
    "name": ['"x"', '" "', json.dumps("é" * 256)],
    "key": ['"x"', '"a/b"', json.dumps("é" * 512)],
    "text": ['""', '"a\\u0000b"', json.dumps("é" * 5_000)],
    "instant": ['"2999-01-01T00:00:00Z"', '"2999-01-01t00:00:00.123456789z"', '"2999-12-31T23:59:59+23:59"'],
    "instant ahead": ['"2001-01-01T00:00:00Z"', '"0001-01-01t00:00:00.123456789z"'],
    "lease": ["1", "1.0", "3600", "1.5e1", "0.1e2", "30.000000000000000001"],
    "cooldown": ["1", "1.5e1", "86400"],
    "delay": ["0", "-0", "-0.0", "0.0001", "1e-9", "31622400", "3.16224e7"],
    "boolean": ["true", "false"],
    "condition": ['"FIRST_ACCEPTED"', '"N_ACCEPTED"'],
    "mode": ['"WORK"', '"INBOX"'],
    "minor": ['"0"', '"1"', f'"{10**18}"'],
    "currency": ['"USD"', '"XXX"'],
    "0..9": ["0", "-0", "9"],
    "json": ["null", "false", '""', "[]", '"\\u0000"', "-0.10E+5", "9" * 100, "[" * 127 + "]" * 127],
    "1..10000": ["1", "10000"],
    "1..100": ["1", "100"],
    "threshold": ["1"],  # of FIRST_ACCEPTED
    "1..86400": ["1", "86400"],
    "1..50": ["1", "50"],
    "1..1000000000": ["1", "1000000000"],
    "-100..100": ["-100", "-0", "0", "100"],
    "0..30000": ["0", "-0", "30000"],
    "needs": ["{}", '{"pools":null}', '{"pools":[],"quotas":[],"budgets":[]}'],
    "result": ["{}", '{"payload":null}', '{"workKey":"x"}', '{"mailboxId":null,"scopeId":null}'],
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
    "0..1000": ["", "-1", "1001", "1.0", "true", str(2**63)],
    "types": ["", "x" * 4001, "%00"],
    "aggregate": ["", "claim", "claim:", ":a", "thing:a", "Claim:a", "claim:" + "x" * 1100, "claim:%00"],
    "seconds": ["", "-1", "+1", "true", "1e3", "nan", "inf", "1.0.0", "%EF%BC%91", "1%20"],
}

LONGEST = {"name": 256, "key": 512}  # of a parameter of the path, in characters


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
        response = post(api, call, with_field(shape, call, name, value))
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


WITH_BODY = pytest.mark.parametrize("shape", [s for s in SHAPES if not s.reads], ids=str)
WITHOUT = pytest.mark.parametrize("shape", [s for s in SHAPES if s.reads], ids=str)


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
    optional = shape.fields.keys() - shape.required - shape.one_of
    call = shape.call(api)
    left = {k: v for k, v in (call.body or {}).items() if k not in optional}
    without = Call(call.method, call.path, left).send(api)
    again = shape.call(api)
    body = {k: v for k, v in (again.body or {}).items() if k not in optional} | dict.fromkeys(optional)
    nulled = Call(again.method, again.path, body).send(api)
    assert nulled.status_code == without.status_code
    assert nulled.json().keys() == without.json().keys()
    assert nulled.status_code != 400


GOOD_FIELDS = [row for row in fields_of(lambda shape: shape.fields) if row.values[2] in GOOD]


@pytest.mark.parametrize(("shape", "name", "kind"), GOOD_FIELDS)
def test_a_value_at_its_bounds_is_taken(api, shape, name, kind):
    for value in GOOD[kind]:
        call = shape.call(api)
        response = post(api, call, with_field(shape, call, name, value))
        told = response.text  # and taken for what it is: of another key, with another setting
        assert code(response) in {None, "STALE_CLAIM", "CONFLICT"}, f"{name}: {value[:50]}: {told}"


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        pytest.param(shape, name, id=str(shape))
        for shape in SHAPES
        for name in shape.in_path
        if name in LONGEST
    ],
)
def test_a_name_or_key_in_the_path_is_bound_as_one_in_a_body(api, shape, name):
    call = shape.call(api)
    for wrong in ("", "%00", "a%00b", "%FF", "%C3%A9" * (LONGEST[name] + 1), "%ED%A0%80"):
        response = shape.with_path(call, name, wrong).send(api)
        if wrong:
            assert f"{name} in the path" in refused(response, "VALIDATION_FAILED"), wrong
        else:
            refused(response, "NOT_FOUND")
    for right in ("a%2Fb", "%2E%2E", "%25", "%C3%A9" * LONGEST[name], "a+b"):
        response = shape.with_path(call, name, right).send(api)
        assert code(response) in {None, "STALE_CLAIM"}, response.text


@pytest.mark.parametrize(
    ("path", "states"),
    [("/scopes", ScopeState), ("/mailboxes/{}/messages", MessageState), ("/tasks", TaskState)],
)
def test_a_listing_takes_every_state(api, path, states):
    place = path.format(mailbox(api, "").id)
    for state in states:
        ok(api.get(place, params={"state": state.value}))


def test_the_longest_of_everything_is_taken(api):
    once = Once(scope(api), "é" * 512)
    token = held(api, once, holder="é" * 256, session="é" * 256)
    assert ok(once.view().send(api))["holder"] == "é" * 256
    ok(once.fail(token, "é" * 2000, 100).send(api))
    assert ok(once.view(30_000).send(api))["lastError"] == "é" * 2000
