"""However much is sent, the server keeps little of it, and answers where there is something to answer."""

import gzip
import itertools

import pytest

from tests.support import machine
from tests.support.builders import ok, refused
from tests.support.sockets import Connection, head

MB = 1024 * 1024
FLOOD_BYTES = 300 * MB
KEPT_BYTES_MAX = 24 * MB
BLOCK = b"x" * MB


@pytest.fixture
def bounded(server):
    """At the end of the test the server has never had much more memory than before it."""
    machine.forget_peak(server.pid)
    before = machine.peak_bytes(server.pid)
    yield
    grown = machine.peak_bytes(server.pid) - before
    assert grown < KEPT_BYTES_MAX, f"{grown // MB} MB more"


@pytest.fixture
def flood(server, space, bounded):
    """Send a head with the key, then blocks up to 300 MB while they are taken. Returns: the answers, and how
    much was taken."""

    def send(start, block=BLOCK, *, size=FLOOD_BYTES):
        with Connection(server.port) as connection:
            connection.send(start)
            taken = connection.pour(itertools.repeat(block, size // len(block)))
            return connection.answers(), taken

    return send


def posting(space, *headers, key=True):
    named = [f"Authorization: Bearer {space.key}"] if key else []
    return head(f"POST /v1/spaces/{space.id}/scopes HTTP/1.1", *named, *headers)


CHUNKED = "Transfer-Encoding: chunked"
CHUNK = b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK)


@pytest.mark.parametrize("size", [300 * 1024, FLOOD_BYTES], ids=["300 KB", "300 MB"])
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_a_body_that_is_too_large_is_refused_and_not_kept(flood, space, size, chunked):
    framing = CHUNKED if chunked else f"Content-Length: {size}"
    block = b"4000\r\n" + b"x" * 0x4000 + b"\r\n" if chunked else b"x" * 0x4000
    [answer], taken = flood(posting(space, framing), block, size=size)
    refused(answer, "VALIDATION_FAILED", status=413)
    assert taken < 20 * MB


def test_a_body_without_a_key_is_not_kept(flood, space):
    start = posting(space, f"Content-Length: {FLOOD_BYTES}", "Connection: close", key=False)
    [answer], _ = flood(start)
    refused(answer, "UNAUTHENTICATED")


def test_a_body_that_would_unfold_is_not_unfolded(api, bounded):
    small = gzip.compress(b"\0" * FLOOD_BYTES)
    assert len(small) > 256 * 1024
    for content in (small, small[: 200 * 1024]):
        response = api.post("/scopes", content=content, headers={"Content-Encoding": "gzip"})
        assert "Content-Encoding" in refused(response, "VALIDATION_FAILED")


ENDLESS = {
    "target": (b"GET /", b"x" * MB),
    "method": (b"", b"G" * MB),
    "header": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", b"y" * MB),
    "name of a header": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX", b"y" * MB),
    "headers": (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"X: y\r\n" * 10_000),
    "empty headers": (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"a:\r\n" * 10_000),
    "line ends": (b"", b"\r\n" * 10_000),
}


@pytest.mark.parametrize(("start", "block"), ENDLESS.values(), ids=ENDLESS)
def test_a_head_without_end_is_refused_and_not_kept(flood, start, block):
    [answer], taken = flood(start, block)
    refused(answer, "VALIDATION_FAILED")
    assert taken < 20 * MB


ENDLESS_CHUNKS = {
    "size": (b"", b"0" * MB),
    "extension": (b"1;", b"x" * MB),
    "trailer": (b"2\r\n{}\r\n0\r\nX: ", b"y" * MB),
    "trailers": (b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 10_000),
}


@pytest.mark.parametrize(("start", "block"), ENDLESS_CHUNKS.values(), ids=ENDLESS_CHUNKS)
def test_a_chunk_without_end_is_refused_and_not_kept(flood, space, api, start, block):
    [answer], taken = flood(posting(space, CHUNKED) + start, block)
    refused(answer, "VALIDATION_FAILED")
    assert taken < 20 * MB
    assert ok(api.get("/scopes"))["scopes"] == []


def test_requests_without_end_are_not_kept_whether_their_answers_are_read_or_not(server, space, bounded):
    """Each alone is small and right. Behind more than may stand in line they are read and thrown away, until
    the answers before them have been sent or given up."""
    one = head("GET /healthz HTTP/1.1")
    with Connection(server.port) as connection:
        assert connection.push(one * 1_000, bytes_max=FLOOD_BYTES) > 0
    listing = head(f"GET /v1/spaces/{space.id}/scopes HTTP/1.1", f"Authorization: Bearer {space.key}")
    with Connection(server.port) as connection:
        for _ in range(1_000):
            ok(connection.send(listing).answer())


def test_answers_that_nobody_reads_are_not_kept(server, bounded):
    one = head("GET /openapi.json HTTP/1.1")
    with Connection(server.port) as connection:
        for _ in range(100):
            connection.send(one)
            connection.quiet(0.005)
        assert connection.answer().status_code == 200


def test_many_connections_that_ask_for_nothing_cost_little_and_stand_in_nobody_s_way(server, api, bounded):
    opened = [Connection(server.port) for _ in range(500)]
    try:
        for connection in opened[::2]:
            connection.send(b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 1_000)
        ok(api.get("/scopes"))
    finally:
        for connection in opened:
            connection.socket.close()
