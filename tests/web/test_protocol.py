"""Bytes that are no request, or could be two: 400 in the envelope, and the end of the connection."""

import pytest

from tests.support.builders import ok, refused
from tests.support.sockets import Connection, head

POST = "POST {path}/scopes HTTP/1.1"
GET = "GET {path}/scopes HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture
def dial(server):
    """Open a connection; it is closed after the test."""
    opened = []

    def make(port=server.port):
        opened.append(Connection(port))
        return opened[-1]

    yield make
    for connection in opened:
        connection.socket.close()


@pytest.fixture
def request_of(space):
    """The bytes of a request inside the space: {path} is its path; the key is sent unless told otherwise."""

    def make(line, *headers, body=b"", key=True, host="x"):
        path = f"/v1/spaces/{space.id}"
        named = [f"Authorization: Bearer {space.key}"] if key else []
        return head(line.replace("{path}", path), *named, *headers, host=host) + body

    return make


NO_REQUEST = {
    "nothing but line ends and noise": b"\r\n\r\nnoise\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "PostgreSQL": b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
    "a line without a version": b"GET /healthz\r\n\r\n",
    "a version to come": head("GET /healthz HTTP/3.0"),
    "a version that it does not speak": head("GET /healthz HTTP/2.0"),
    "no version": head("GET /healthz HTTP/x"),
    "an unknown method": head("FETCH /healthz HTTP/1.1"),
    "a method in small letters": head("get /healthz HTTP/1.1"),
    "two spaces in the target": head("GET /healthz and more HTTP/1.1"),
    "a target that is no path": head("GET healthz HTTP/1.1"),
    "a host and no path": head("GET http://x HTTP/1.1"),
    "a tunnel": head("CONNECT x:443 HTTP/1.1"),
    "a fragment": head("GET /healthz#top HTTP/1.1"),
    "NUL in the target": head("GET /health\0z HTTP/1.1"),
    "a tab in the target": head("GET /health\tz HTTP/1.1"),
    "characters in the target": head("GET /healthzé HTTP/1.1"),
    "line ends of Unix": head("GET /healthz HTTP/1.1").replace(b"\r\n", b"\n"),
    "no host": head("GET /healthz HTTP/1.1", host=None),
    "two hosts": head("GET /healthz HTTP/1.1", "Host: y"),
    "a header without a colon": head("GET /healthz HTTP/1.1", "nonsense"),
    "a header without a name": head("GET /healthz HTTP/1.1", ": x"),
    "a space before the colon": head("GET /healthz HTTP/1.1", "X-A : b"),
    "a folded header": head("GET /healthz HTTP/1.1", "X-A: b", " c"),
    "NUL in a header": head("GET /healthz HTTP/1.1", "X-A: b\0c"),
    "a line end within a header": head("GET /healthz HTTP/1.1", "X-A: b\rX-B: c"),
}


@pytest.mark.parametrize("sent", NO_REQUEST.values(), ids=NO_REQUEST)
def test_what_is_no_request_is_refused_in_the_envelope(dial, sent):
    [answer] = dial().send(sent).answers()
    refused(answer, "VALIDATION_FAILED")
    assert answer.headers["connection"] == "close"


FRAMINGS = {
    "length and chunks": (["Content-Length: 2", CHUNKED], b"2\r\n{}\r\n0\r\n\r\n"),
    "chunks and length": ([CHUNKED, "Content-Length: 12"], b"2\r\n{}\r\n0\r\n\r\n"),
    "two lengths": (["Content-Length: 2", "Content-Length: 3"], b"{} "),
    "one length twice": (["Content-Length: 2", "Content-Length: 2"], b"{}"),
    "a list of lengths": (["Content-Length: 2, 2"], b"{}"),
    "a negative length": (["Content-Length: -1"], b"{}"),
    "a signed length": (["Content-Length: +2"], b"{}"),
    "a length in hexadecimal": (["Content-Length: 0x2"], b"{}"),
    "no length": (["Content-Length: "], b"{}"),
    "a length beyond all numbers": (["Content-Length: " + "9" * 40], b"{}"),
    "chunked twice": ([CHUNKED, CHUNKED], b"2\r\n{}\r\n0\r\n\r\n"),
    "compressed chunks": (["Transfer-Encoding: gzip, chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "chunks that are not the last": (["Transfer-Encoding: chunked, identity"], b"2\r\n{}\r\n0\r\n\r\n"),
    "no chunks": (["Transfer-Encoding: identity"], b"{}"),
    "a coding by another name": (["Transfer-Encoding: xchunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "a chunk without a size": ([CHUNKED], b"\r\n{}\r\n0\r\n\r\n"),
    "a chunk with a sign": ([CHUNKED], b"+2\r\n{}\r\n0\r\n\r\n"),
    "a chunk that is no number": ([CHUNKED], b"zz\r\n{}\r\n0\r\n\r\n"),
    "a chunk beyond all numbers": ([CHUNKED], b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "a chunk that is longer": ([CHUNKED], b"2\r\n{}{}\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize(("headers", "body"), FRAMINGS.values(), ids=FRAMINGS)
def test_a_body_whose_end_is_not_certain_is_refused_and_changes_nothing(dial, request_of, api, headers, body):
    [answer] = dial().send(request_of(POST, *headers, body=body)).answers()
    refused(answer, "VALIDATION_FAILED")
    assert answer.headers["connection"] == "close"
    assert ok(api.get("/scopes"))["scopes"] == []


def test_chunks_of_http_1_0_are_refused(dial, request_of):
    sent = request_of("POST {path}/scopes HTTP/1.0", CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n")
    [answer] = dial().send(sent).answers()
    assert "chunked" in refused(answer, "VALIDATION_FAILED")


def test_a_trailer_is_no_header(dial, request_of, api):
    """Else a body could carry a key of its own, or an Idempotency-Key, past whoever looked at the head."""
    trailers = b"Authorization: Bearer wrong\r\nIdempotency-Key: k\r\nContent-Encoding: gzip\r\n"
    sent = request_of(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n")
    made = [ok(dial().send(sent).answer(), 201)["id"] for _ in range(2)]
    assert made[0] != made[1]
    keyless = request_of(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\n", key=False)
    with_key = request_of("", key=True).partition(b"Authorization")[1:]
    refused(dial().send(keyless + b"".join(with_key)).answer(), "UNAUTHENTICATED")
    assert len(ok(api.get("/scopes"))["scopes"]) == 2


@pytest.mark.parametrize("name", ["Authorization", "Idempotency-Key", "Content-Length", "Host"])
def test_a_header_that_decides_is_sent_once(dial, request_of, api, name):
    values = {"Authorization": "Bearer x", "Idempotency-Key": "k", "Content-Length": "2", "Host": "x"}
    twice = [f"{name}: {values[name]}"] * 2
    answer = dial().send(request_of(POST, *twice, "Connection: close", body=b"{}")).answer()
    refused(answer, "UNAUTHENTICATED" if name == "Authorization" else "VALIDATION_FAILED")
    assert ok(api.get("/scopes"))["scopes"] == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "x-mine"])
def test_a_compressed_body_is_refused_as_such(api, coding):
    for content in (b"{}", b"\x1f\x8b\x08\x00" + b"x" * 40, b""):
        response = api.post("/scopes", content=content, headers={"Content-Encoding": coding})
        assert "Content-Encoding" in refused(response, "VALIDATION_FAILED")
    ok(api.post("/scopes", content=b"{}", headers={"Content-Encoding": "Identity"}), 201)


@pytest.mark.parametrize("target", ["{path}/scopes", "http://x{path}/scopes", "https://y:1{path}/scopes"])
def test_a_target_may_name_the_host(dial, request_of, target):
    assert ok(dial().send(request_of(f"GET {target} HTTP/1.1")).answer())["scopes"] == []


def test_a_target_that_is_an_asterisk_is_no_path(dial, request_of):
    refused(dial().send(request_of("OPTIONS * HTTP/1.1")).answer(), "NOT_FOUND")


@pytest.mark.parametrize("host", ["x", None])
def test_http_1_0_is_answered_and_closed(dial, request_of, host):
    [answer] = dial().send(request_of("GET {path}/scopes HTTP/1.0", host=host)).answers()
    assert ok(answer)["scopes"] == []
    [made] = dial().send(request_of("POST {path}/scopes HTTP/1.0", "Content-Length: 2", body=b"{}")).answers()
    ok(made, 201)


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "CONNECT"])
@pytest.mark.parametrize("path", ["/healthz", "{path}/scopes", "/openapi.json"])
def test_a_method_that_no_route_has_is_refused_and_nothing_is_sent_back(dial, request_of, method, path):
    sent = request_of(f"{method} {path} HTTP/1.1", "X-Secret: rs_secret", "Connection: close")
    [answer] = dial().send(sent).answers()
    assert method in refused(answer, "VALIDATION_FAILED", status=405)
    assert "rs_secret" not in answer.text


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 405), ("{path}/scopes", 405), ("/openapi.json", 200)]
)
def test_the_answer_to_head_has_no_body(dial, request_of, path, status):
    data = dial().send(request_of(f"HEAD {path} HTTP/1.1", "Connection: close")).rest()
    assert data.startswith(b"HTTP/1.1 %d " % status)
    assert b"x-request-id: " in data
    assert data.endswith(b"\r\n\r\n")


def test_a_length_over_the_limit_is_refused_before_the_caller_is_told_to_go_on(dial, request_of):
    sent = request_of(POST, "Expect: 100-continue", f"Content-Length: {300_000}")
    connection = dial().send(sent)
    assert connection.socket.recv(20).startswith(b"HTTP/1.1 413 ")
    going_on = dial().send(request_of(POST, "Expect: 100-continue", "Content-Length: 2"))
    assert going_on.socket.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    ok(going_on.send(b"{}").answer(), 201)
