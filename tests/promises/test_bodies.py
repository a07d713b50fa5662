"""Bodies: bounded before they are read, JSON and nothing else, and never a 500.

Held over the table of shapes; a new room joins by its rows, see table.py.
"""

import json
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.promises.kinds import BODY_BYTES_MAX, code, post, raw
from tests.promises.table import SHAPES
from tests.support.builders import Call, ok, refused, scope

PAYLOAD_BYTES_MAX = 65_536
WITH_BODY = pytest.mark.parametrize("shape", [s for s in SHAPES if not s.reads], ids=str)


NO_OBJECTS = [
    (b"[]", "object"),
    (b"null", "object"),
    (b'"text"', "object"),
    (b"1", "object"),
    (b"NaN", "object"),
    (b"{", "JSON"),
    (b'{"a"}', "JSON"),
    (b'{"a":}', "JSON"),
    (b'{"a":1,}', "JSON"),
    (b"{a:1}", "JSON"),
    (b"{'a':1}", "JSON"),
    (b'{"a":1} {}', "after"),
    (b"{}x", "after"),
    (b"\xef\xbb\xbf{}", "object"),
    (b"\xff\xfe{\x00}\x00", "UTF-8"),
    (b'{"a":"\xff"}', "UTF-8"),
    (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
    (b'{"a":1,"a":2}', "'a'"),
    (b'{"a":1,"\\u0061":2}', "'a'"),
    (b'{"a":{"b":1,"b":2}}', "'b'"),
    (b'{"\\ud800":1}', "surrogate"),
    (b'{"a":"\\ud800"}', "surrogate"),
    (b'{"a":NaN}', "NaN"),
    (b'{"a":[-Infinity]}', "-Infinity"),
    (b'{"a":"\t"}', "JSON"),
    (b"\x00", "object"),
    (b'{"a":' + b"[" * 129 + b"]" * 129 + b"}", "128"),
    (b"[" * 10_000, "128"),
    (b'{"a":' * 10_000, "128"),
    (b'{"a":1' + b"0" * 10_000 + b"}", "'"),
    (b'{"a":1e999999999}', "'"),
    (b'{"a":"' + b"\\" * 99_999, "JSON"),
]


@WITH_BODY
def test_what_is_not_one_json_object_is_refused(api, shape):
    call = shape.call(api)
    for content, says in NO_OBJECTS:
        response = post(api, call, content)
        assert response.status_code == 400, f"{content[:50]!r}: {response.text}"
        assert says in refused(response, "VALIDATION_FAILED")


@WITH_BODY
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_the_content_type_decides_nothing(api, shape, kind):
    call = shape.call(api)
    response = post(api, call, raw(call), **{"Content-Type": kind})
    assert response.status_code != 400
    assert code(response) is None


def chunks(total):
    """A body without a declared length."""
    for _ in range(total // 4096):
        yield b" " * 4096
    yield b" " * (total % 4096)


@WITH_BODY
def test_a_body_over_its_limit_is_refused_whether_its_length_was_declared_or_not(api, shape):
    call = shape.call(api)
    for content in (b" " * (shape.body_bytes_max + 1), chunks(shape.body_bytes_max + 1)):
        message = refused(post(api, call, content), "VALIDATION_FAILED", status=413)
        assert str(shape.body_bytes_max) in message


@WITH_BODY
def test_a_body_of_just_the_limit_is_read(api, shape):
    call = shape.call(api)
    body = raw(call)
    padded = body + b" " * (shape.body_bytes_max - len(body))
    for content in (padded, iter([padded[:1000], padded[1000:]])):
        response = post(api, call, content)
        assert response.status_code != 413, response.text
        assert code(response) != "VALIDATION_FAILED"


def test_a_declared_length_over_the_limit_is_refused_before_anything_is_sent(server, space):
    head = (
        f"POST /v1/spaces/{space.id}/scopes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {space.key}\r\n"
        "Content-Length: 999999999999\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_large_upload_gets_its_answer_and_not_a_reset(api):
    for content in (b" " * 5_000_000, chunks(5_000_000)):
        refused(api.post("/scopes", content=content), "VALIDATION_FAILED", status=413)


def test_an_oversized_body_is_not_read_for_a_caller_without_a_key(server, space):
    import httpx

    url = f"{server.url}/v1/spaces/{space.id}/scopes"
    response = httpx.post(url, content=b" " * (BODY_BYTES_MAX + 1), timeout=20, trust_env=False)
    refused(response, "UNAUTHENTICATED")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=5), some, max_size=3)
)
FUZZ = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@WITH_BODY
def test_no_body_whatever_makes_a_500(api, shape):
    call = shape.call(api)
    names = st.sampled_from([*shape.fields, "surprise"]) if shape.fields else st.text(max_size=5)
    bodies = st.binary(max_size=60) | st.dictionaries(names, VALUES).map(lambda b: json.dumps(b).encode())

    @FUZZ
    @given(bodies)
    def send(content):
        response = post(api, call, content)
        assert response.status_code < 500, response.text
        assert response.headers["x-request-id"]

    send()


def payloads():
    """Every place of a user's JSON: the shape, its name, and the field around it as a text with a %s."""
    for shape in SHAPES:
        for name, kind in shape.fields.items():
            if kind == "json":
                yield shape, name, name, "%s"
            elif kind == "result":
                yield shape, "payload", name, '{"payload":%s}'
            elif kind == "tasks":
                task = '{"scopeId":"s","mailboxId":"m","taskKey":"k","input":%s}'
                yield shape, "input", name, f"[{task}]"


@pytest.mark.parametrize(("shape", "name", "field", "around"), list(payloads()), ids=str)
def test_a_payload_that_is_too_large_is_told_apart_from_a_body_that_is(api, shape, name, field, around):
    def send(characters):
        call = shape.call(api)
        return post(api, call, raw(call, **{field: around % f'  "{"x" * characters}"  '}))

    fits = PAYLOAD_BYTES_MAX - len('""')
    assert code(send(fits)) in {None, "NOT_FOUND"}  # NOT_FOUND: a batch of made-up ids
    message = refused(send(fits + 1), "VALIDATION_FAILED")
    assert f"{name} exceeds 65536 bytes" in message
    message = refused(send(shape.body_bytes_max), "VALIDATION_FAILED", status=413)
    assert "exceeds 65536 bytes" not in message


def test_an_empty_body_is_an_empty_object_where_nothing_is_required(api):
    for content in (b"", b" \r\n\t ", b"{}", b" { } "):
        ok(api.post("/scopes", content=content), 201)
        ok(api.put("/runs/r", content=content))
        ok(post(api, Call("POST", f"/scopes/{scope(api)}/cancel"), content))
