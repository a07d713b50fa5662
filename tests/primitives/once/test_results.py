"""What is recorded is what was sent: user JSON as text, white space apart."""

import json

import pytest

from tests.support.builders import Once, held, ok, refused, scope

BYTES_MAX = 65_536

AS_WRITTEN = [
    "null",
    "true",
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1e400",
    "-1E+400",
    "0.1000000000000000055511151231257827",
    "123456789012345678901234567890",
    "1" * 5_000,
    '""',
    '"\\u0000"',
    '"a\\u0000b\\/\\b\\f\\n\\r\\t\\"\\\\"',
    '"\\u00e9 é \\ud83d\\ude00 😀"',
    '"  spaces  stay  "',
    '"\u2028\u2029\x7f"',
    "[]",
    "{}",
    '{"b":1,"a":2,"":3,"A":4}',
    '{"result":{"state":"OPEN"},"}":"]"}',
    "[[[[1],{}],null],false]",
]


@pytest.fixture
def once(api):
    return Once(scope(api))


def complete_raw(api, once, result):
    """Complete with a result that is JSON text, put into the body as it is."""
    token = held(api, once)
    body = json.dumps(once.complete(token).body)
    head, _, tail = body.partition('"result": null')
    assert tail
    return api.post("/once/complete", content=f'{head}"result": {result}{tail}'.encode())


def recorded(api, once):
    """The text of the recorded result, as a reader gets it: the last member of the answer."""
    text = once.view().send(api).text
    head = '{"state":"DONE","attempts":0,"result":'
    assert text.startswith(head)
    return text.removeprefix(head).removesuffix("}")


@pytest.mark.parametrize("result", AS_WRITTEN, ids=lambda text: ascii(text)[:24])
def test_a_result_comes_out_as_it_was_written(api, once, result):
    ok(complete_raw(api, once, result))
    assert recorded(api, once) == result
    assert once.acquire().send(api).text.endswith(f'"result":{result}}}')


def test_only_white_space_between_tokens_is_removed(api, once):
    ok(complete_raw(api, once, '\t{ "a b" :\r\n [ 1 , 2.50 , " \\" { } " ] , "c" : { } } \n'))
    assert recorded(api, once) == '{"a b":[1,2.50," \\" { } "],"c":{}}'


@pytest.mark.parametrize("filler", ["a", "é", "€", "😀"])
def test_a_result_of_65536_bytes_is_recorded_and_one_byte_more_is_refused(api, once, filler):
    room = BYTES_MAX - 2
    size = len(filler.encode())
    text = filler * (room // size) + "a" * (room % size)
    fits = json.dumps(text, ensure_ascii=False)
    assert len(fits.encode()) == BYTES_MAX
    larger = Once(once.scope, "larger")
    message = refused(complete_raw(api, larger, fits[:-1] + 'a"'), "VALIDATION_FAILED")
    assert "result exceeds 65536 bytes" in message
    assert "65537" in message
    assert ok(larger.view().send(api))["state"] == "HELD"
    ok(complete_raw(api, once, fits))
    assert ok(once.view().send(api))["result"] == text


def test_white_space_does_not_count_against_the_size(api, once):
    ok(complete_raw(api, once, "[" + " " * 100_000 + "1]"))
    assert recorded(api, once) == "[1]"


def test_a_result_nested_128_deep_is_recorded_and_129_is_refused(api, once):
    deepest = "[" * 128 + "]" * 128
    ok(complete_raw(api, once, deepest))
    assert recorded(api, once) == deepest
    for depth in (129, 10_000):
        deeper = '{"a":' * depth + "1" + "}" * depth
        message = refused(complete_raw(api, Once(once.scope, f"k{depth}"), deeper), "VALIDATION_FAILED")
        assert "128" in message


def test_brackets_inside_strings_are_no_nesting(api, once):
    text = json.dumps("[{" * 10_000 + '"' + "\\")
    ok(complete_raw(api, once, text))
    assert recorded(api, once) == text


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ("NaN", "NaN"),
        ("[Infinity]", "Infinity"),
        ('{"a":-Infinity}', "-Infinity"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff":1}', "surrogate"),
        ('["\\ude00\\ud83d"]', "surrogate"),
        ('{"a":1,"a":2}', "'a'"),
        ('[{"a":{"b":1,"\\u0062":2}}]', "'b'"),
        ("01", "JSON"),
        ("1.", "JSON"),
        (".5", "JSON"),
        ("+1", "JSON"),
        ("'a'", "JSON"),
        ("[1,]", "JSON"),
        ('{"a":1,}', "JSON"),
        ('"a\nb"', "JSON"),
        ('"\\x"', "JSON"),
        ("\u00a01", "JSON"),
        ("// no\n1", "JSON"),
        ("", "JSON"),
    ],
    ids=ascii,
)
def test_what_json_does_not_have_or_cannot_be_carried_is_refused_and_changes_nothing(
    api, once, result, names
):
    assert names in refused(complete_raw(api, once, result), "VALIDATION_FAILED")
    assert ok(once.view().send(api))["state"] == "HELD"
