"""One connection, many requests: each is answered in its turn, and a caller that is gone gets nothing."""

import json
import time

import pytest

from tests.support import races, spaces
from tests.support.builders import Call, Once, held, ok, refused, scope
from tests.support.metrics import until_polls
from tests.support.processes import Replica
from tests.support.queues import batch, mailbox, sent, taken
from tests.support.sockets import Connection, head

STALL_S = 1


def request_of(space, call, *headers, body=None):
    """The bytes of a call inside the space."""
    content = json.dumps(call.body).encode() if body is None and call.body is not None else body or b""
    line = f"{call.method} /v1/spaces/{space.id}{call.path} HTTP/1.1"
    framing = [] if call.method == "GET" or "chunked" in str(headers) else [f"Content-Length: {len(content)}"]
    return head(line, f"Authorization: Bearer {space.key}", *framing, *headers) + content


LIST = Call("GET", "/scopes")


def make(name):
    return Call("POST", "/scopes", {"name": name})


@pytest.fixture
def connection(server):
    with Connection(server.port) as connection:
        yield connection


def test_requests_sent_together_are_answered_in_their_order(connection, space):
    calls = [make("a"), LIST, make("b"), Call("GET", "/nowhere"), make("c"), LIST]
    connection.send(b"".join(request_of(space, call) for call in calls))
    answers = [connection.answer() for _ in calls]
    assert [a.json().get("name") for a in answers] == ["a", None, "b", None, "c", None]
    assert [s["name"] for s in answers[-1].json()["scopes"]] == ["c", "b", "a"]
    assert len({a.headers["x-request-id"] for a in answers}) == len(calls)


def test_a_request_may_come_byte_by_byte(connection, space):
    for byte in request_of(space, make("a")):
        connection.send(bytes([byte]))
    assert ok(connection.answer(), 201)["name"] == "a"


NOISE = {
    "noise": b"noise\r\n\r\n",
    "a body of no certain end": head("POST /x HTTP/1.1", "Content-Length: 2", "Transfer-Encoding: chunked"),
    "a chunk that is none": head("POST /x HTTP/1.1", "Transfer-Encoding: chunked") + b"zz\r\n",
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_what_is_no_request_is_answered_after_those_before_it(connection, space, api, noise):
    once = Once(scope(api))
    held(api, once, lease_s=3600)
    connection.send(request_of(space, once.view(500)) + request_of(space, LIST) + noise)
    first, second, third = connection.answers()
    assert ok(first)["state"] == "HELD"
    assert len(ok(second)["scopes"]) == 1
    refused(third, "VALIDATION_FAILED")


def test_noise_in_a_body_is_answered_as_the_body_and_changes_nothing(connection, space, api):
    connection.send(request_of(space, make("a"), "Transfer-Encoding: chunked", body=b"1\r\n{\r\n"))
    assert connection.quiet(0.2)
    [answer] = connection.send(b"noise").answers()
    refused(answer, "VALIDATION_FAILED")
    assert ok(api.get("/scopes"))["scopes"] == []


def test_a_connection_has_no_endless_line_of_requests(connection, space, api):
    once = Once(scope(api))
    held(api, once, lease_s=3600)
    connection.send(request_of(space, once.view(500)) + request_of(space, LIST) * 150)
    first, *middle, last = connection.answers()
    assert ok(first)["state"] == "HELD"
    assert 100 <= len([ok(answer) for answer in middle]) <= 101
    assert "wait on this connection" in refused(last, "VALIDATION_FAILED")


GONE = {"closed": lambda c: c.socket.close(), "half closed": lambda c: c.half_close()}


@pytest.mark.parametrize("leave", GONE.values(), ids=GONE)
@pytest.mark.parametrize("behind", [0, 1, 20])
def test_a_caller_that_hangs_up_leases_nothing_also_with_requests_in_line(server, space, api, leave, behind):
    box = mailbox(api, scope(api))
    with Connection(server.port) as connection:
        connection.send(request_of(space, box.recv(waitMs=30_000)) + request_of(space, LIST) * behind)
        until_polls(server, 1)
        leave(connection)
        until_polls(server, 0)
    message = sent(api, box)
    delivery = taken(api, box.recv())
    assert (delivery.id, delivery.attempt) == (message, 1)


UPGRADES = {"h2c": "h2c", "websocket": "websocket", "TLS": "TLS/1.0, HTTP/1.1"}


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_a_request_for_an_upgrade_is_served_as_it_is(connection, space, api, upgrade, chunked, apart):
    """Some clients ask for HTTP/2 with every first request. Its body is a body, not the next request."""
    asked = [f"Upgrade: {upgrade}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQCAAAA"]
    inner = b'{"name":"GET /healthz HTTP/1.1"}'
    framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner) if chunked else inner
    framing = ["Transfer-Encoding: chunked"] if chunked else []
    data = request_of(space, make("a"), *asked, *framing, body=framed)
    cut = data.index(b"\r\n\r\n") + 4 if apart else 0
    connection.send(data[:cut])
    assert connection.quiet(0.1 if apart else 0)
    connection.send(data[cut:])
    assert ok(connection.answer(), 201)["name"] == "GET /healthz HTTP/1.1"
    connection.send(request_of(space, LIST, *asked) + request_of(space, make("b")))
    assert len(ok(connection.answer())["scopes"]) == 1
    assert ok(connection.answer(), 201)["name"] == "b"


@pytest.fixture(scope="module")
def hasty(database_url):
    """A replica that waits a second for the rest of a request."""
    with Replica(database_url, STALL_S=str(STALL_S)) as replica:
        yield replica


LATE = {
    "a line": b"GET /healthz HT",
    "a head": head("GET /healthz HTTP/1.1")[:-2],
    "a body": head("POST /v1/spaces/x/scopes HTTP/1.1", "Content-Length: 20"),
}


@pytest.mark.processes
@pytest.mark.parametrize("sent", LATE.values(), ids=LATE)
def test_a_request_that_does_not_come_to_its_end_is_given_up(hasty, sent):
    with Connection(hasty.port) as connection:
        *_, answer = connection.send(sent).answers()
        code = answer.json()["error"]["code"]
        assert code == ("UNAUTHENTICATED" if b"POST" in sent else "VALIDATION_FAILED")


@pytest.mark.processes
def test_a_body_that_stalls_is_given_up_and_changes_nothing(hasty, space, api):
    with Connection(hasty.port) as connection:
        connection.send(request_of(space, make("a"))[:-1])
        [answer] = connection.answers()
        assert "did not come" in refused(answer, "VALIDATION_FAILED")
    assert ok(api.get("/scopes"))["scopes"] == []


@pytest.mark.processes
def test_a_head_that_drips_is_given_up_and_a_body_that_drips_is_read(hasty, space):
    with Connection(hasty.port) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\n")

        def drip():
            while connection.quiet(STALL_S / 5):
                yield b"X: y\r\n"

        assert connection.pour(drip()) <= 60
        refused(connection.answer(), "VALIDATION_FAILED")
    with Connection(hasty.port) as connection:
        data = request_of(space, make("abcdefgh"))
        connection.send(data[:-5])
        for byte in data[-5:]:
            assert connection.quiet(STALL_S / 2)
            connection.send(bytes([byte]))
        assert ok(connection.answer(), 201)["name"] == "abcdefgh"


@pytest.mark.processes
def test_a_connection_that_asks_for_nothing_is_closed(hasty):
    for nothing in (b"", b"\r\n"):
        with Connection(hasty.port) as connection:
            assert connection.send(nothing).rest() == b""


@pytest.mark.processes
def test_a_request_behind_one_that_takes_its_time_is_not_late(hasty, space, api):
    once = Once(scope(api))
    held(api, once, lease_s=3600)
    data = request_of(space, make("second"))
    for cut in (10, len(data) - 5):
        with Connection(hasty.port) as connection:
            connection.send(request_of(space, once.view(2_500)) + data[:cut])
            assert ok(connection.answer())["state"] == "HELD"
            assert ok(connection.send(data[cut:]).answer(), 201)["name"] == "second"


@pytest.mark.processes
def test_several_server_processes_read_requests_alike(fresh_database):
    space = spaces.create(fresh_database)
    with Replica(fresh_database, WORKERS="2") as replica:
        with Connection(replica.port) as connection:
            [answer] = connection.send(b"noise\r\n\r\n").answers()
            refused(answer, "VALIDATION_FAILED")
        with space.client(replica.url) as client:
            scope(client)
        races.until_blocking(lambda: "no request" in replica.log(), what="the log of what was refused")


LARGE_BYTES = 60_000
TASKS = 260  # together more than the sockets of both sides hold


@pytest.fixture
def large(space, api):
    """The bytes of a call whose answer has 15 MB."""
    root = scope(api)
    box = mailbox(api, root)
    given = "x" * LARGE_BYTES
    for start in range(0, TASKS, 65):
        ok(batch([box.task(f"{n}", input=given) for n in range(start, start + 65)]).send(api))
    return request_of(space, Call("GET", f"/tasks?scopeId={root}&limit={TASKS}"))


@pytest.mark.processes
def test_an_answer_that_nobody_reads_is_not_kept_for_ever(hasty, space, large):
    with Connection(hasty.port, receive_bytes=65_536) as connection:
        connection.send(large)
        races.until_blocking(lambda: "was not read" in hasty.log(), what="the end of patience")
        assert len(connection.rest()) < TASKS * LARGE_BYTES


@pytest.mark.processes
def test_an_answer_that_is_read_slowly_comes_whole(database_url, space, large):
    with (
        Replica(database_url, STALL_S="3") as replica,
        Connection(replica.port, receive_bytes=65_536, pause_s=0.03) as connection,
    ):
        connection.send(large)
        began_at = time.monotonic()
        assert len(ok(connection.answer())["tasks"]) == TASKS
        assert time.monotonic() - began_at > 3
