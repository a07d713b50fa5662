import asyncio
import time

import pytest

from runstate import (
    AuthenticationError,
    ConfigError,
    ConflictError,
    RateLimitError,
    ResultTooLargeError,
    RunstateError,
    UnavailableError,
)
from runstate._config import resolve_config
from runstate._transport import Space, Transport
from tests.sdk.peer import DROP, HANG, Answer, Peer, refusal


def calling(peer, *path, method="POST", config=(), **options):
    """One call of a client of its own."""

    async def call():
        settings = {"api_key": "rs_secret_key", "space_id": "s", "base_url": peer.url, **dict(config)}
        transport = Transport(resolve_config(**settings))
        try:
            return await Space(transport, "s").call(method, *path, **options)
        finally:
            await transport.aclose()

    return asyncio.run(call())


def replies(*answers):
    """Answers in turn, the last one for ever."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_a_call_carries_the_key_its_body_and_an_idempotency_key():
    with Peer(replies(Answer(201, {"id": "1"}))) as peer:
        assert calling(peer, "scopes", body={"name": "é", "parentId": None}) == {"id": "1"}

    (request,) = peer.requests
    assert (request.method, request.path) == ("POST", "/v1/spaces/s/scopes")
    assert request.body == '{"name":"é"}'.encode()
    assert request.headers["authorization"] == "Bearer rs_secret_key"
    assert request.headers["content-type"] == "application/json"
    assert 1 <= len(request.headers["idempotency-key"]) <= 255


def test_a_get_has_no_body_and_no_idempotency_key_and_leaves_out_what_is_none():
    with Peer(replies(Answer())) as peer:
        calling(peer, "once", method="GET", query={"key": "a/b &+é", "scopeId": None}, wait_ms=250)

    (request,) = peer.requests
    assert request.path == "/v1/spaces/s/once?key=a%2Fb%20%26%2B%C3%A9&waitMs=250"
    assert "idempotency-key" not in request.headers
    assert request.body == b""


@pytest.mark.parametrize(
    ("segment", "on_the_wire"),
    [
        ("a/b c?d#e", "a%2Fb%20c%3Fd%23e"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "%2E%2E%2E"),
        ("../x", "..%2Fx"),
        ("%2E", "%252E"),
        ("日", "%E6%97%A5"),
        ("a.b-c_d~e", "a.b-c_d~e"),
    ],
)
def test_any_name_survives_as_one_segment_of_the_path(segment, on_the_wire):
    with Peer(replies(Answer())) as peer:
        calling(peer, "claims", segment, "renew", config={"base_url": f"{peer.url}/prefix/"})
    assert peer.requests[0].path == f"/prefix/v1/spaces/s/claims/{on_the_wire}/renew"


def test_an_empty_segment_is_refused_before_it_is_sent():
    with Peer(replies(Answer())) as peer, pytest.raises(ConfigError):
        calling(peer, "scopes", "")
    assert peer.requests == []


@pytest.mark.parametrize(
    "fault", [DROP, Answer(502, b"<html>"), Answer(503, b""), Answer(504, {"message": "timeout"})], ids=str
)
def test_attempts_without_a_usable_answer_are_repeated_with_the_same_key_and_body(fault):
    with Peer(replies(fault, fault, Answer(200, {"ok": True}))) as peer:
        assert calling(peer, "scopes", body={"name": "n"}) == {"ok": True}

    assert len(peer.requests) == 3
    assert len({request.headers["idempotency-key"] for request in peer.requests}) == 1
    assert len({request.body for request in peer.requests}) == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_a_call_without_any_usable_answer_is_unavailable_with_status_0(retries):
    with Peer(replies(DROP)) as peer, pytest.raises(UnavailableError) as caught:
        calling(peer, "scopes", config={"retries": retries})
    assert len(peer.requests) == 1 + retries
    assert (caught.value.status, caught.value.code) == (0, "UNAVAILABLE")


def test_nobody_listening_is_unavailable():
    with Peer(replies(Answer())) as peer:
        pass
    with pytest.raises(UnavailableError, match=r"ConnectError.*127\.0\.0\.1") as caught:
        calling(peer, "scopes")
    assert caught.value.status == 0


def test_each_attempt_has_its_own_deadline():
    with Peer(replies(HANG, Answer(200, {"ok": True}))) as peer:
        started = time.monotonic()
        assert calling(peer, "scopes", config={"request_timeout_ms": 200}) == {"ok": True}
        assert time.monotonic() - started < 5
    with Peer(replies(HANG)) as peer, pytest.raises(UnavailableError, match=r"no answer within 0\.05 s"):
        calling(peer, "scopes", config={"request_timeout_ms": 50, "retries": 0})


def test_a_long_poll_adds_its_wait_to_the_deadline_and_a_repeated_one_waits_for_what_is_left():
    def slow(_):
        if len(peer.requests) == 1:
            time.sleep(0.4)
            return DROP
        return Answer(200, {"late": True})

    with Peer(slow) as peer:
        answer = calling(
            peer, "once", method="GET", wait_ms=1000, config={"request_timeout_ms": 200, "retries": 1}
        )
    assert answer == {"late": True}
    first, second = (int(request.path.partition("waitMs=")[2]) for request in peer.requests)
    assert first == 1000
    assert second < 700


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(409, "CLAIM_HELD"), ConflictError),
        (refusal(503, "UNAVAILABLE"), UnavailableError),
        (refusal(401, "UNAUTHENTICATED"), AuthenticationError),
        (refusal(500, "INTERNAL"), RunstateError),
        (refusal(400, "VALIDATION_FAILED", "result exceeds 65536 bytes (70000)"), ResultTooLargeError),
    ],
)
def test_a_refusal_is_raised_at_once_with_what_the_server_said(answer, kind):
    with Peer(replies(answer)) as peer, pytest.raises(kind) as caught:
        calling(peer, "scopes")
    assert len(peer.requests) == 1
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.request_id) == (answer.status, "req-1")


@pytest.mark.parametrize(
    ("header", "retry_after_ms"),
    [("2", 2000), ("0.25", 250), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("nan", None)],
)
def test_retry_after_comes_in_milliseconds(header, retry_after_ms):
    answer = refusal(429, "RATE_LIMITED", retry_after=header)
    with Peer(replies(answer)) as peer, pytest.raises(RateLimitError) as caught:
        calling(peer, "scopes")
    assert caught.value.retry_after_ms == retry_after_ms


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, b"<h1>Not found</h1>"),
        Answer(200, b"<html>"),
        Answer(200, [1]),
        Answer(302, b"", {"location": "/"}),
    ],
    ids=str,
)
def test_an_answer_of_something_else_says_so(answer):
    with Peer(replies(answer)) as peer, pytest.raises(RunstateError, match="does not answer like a runstate"):
        calling(peer, "scopes")


def test_neither_the_key_nor_what_echoes_it_is_ever_shown():
    for answer in (
        refusal(400, "VALIDATION_FAILED", "bad header Bearer rs_secret_key"),
        Answer(404, b"you sent rs_secret_key"),
    ):
        with Peer(replies(answer)) as peer, pytest.raises(RunstateError) as caught:
            calling(peer, "scopes")
        assert "secret" not in f"{caught.value}{caught.value!r}"


def test_no_content_is_none():
    with Peer(replies(Answer(204, b""))) as peer:
        assert calling(peer, "recv") is None


def test_what_json_cannot_carry_is_refused_before_it_is_sent():
    with Peer(replies(Answer())) as peer:
        for value in (object(), float("nan"), "\ud800"):
            with pytest.raises(ConfigError):
                calling(peer, "scopes", body={"name": value})
    assert peer.requests == []


def test_a_cancelled_call_is_cancelled_at_once_and_leaves_no_connection():
    async def cancelled():
        transport = Transport(resolve_config(api_key="k", space_id="s", base_url=peer.url))
        call = asyncio.create_task(Space(transport, "s").call("POST", "scopes"))
        await asyncio.to_thread(peer.arrived, 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await transport.aclose()

    with Peer(replies(HANG)) as peer:
        started = time.monotonic()
        asyncio.run(cancelled())
        assert time.monotonic() - started < 5


def test_a_hundred_long_polls_leave_room_for_other_calls():
    def script(request):
        return HANG if request.method == "GET" else Answer(200, {"ok": True})

    async def crowded():
        transport = Transport(resolve_config(api_key="k", space_id="s", base_url=peer.url))
        space = Space(transport, "s")
        polls = [asyncio.create_task(space.call("GET", "once", wait_ms=20_000)) for _ in range(120)]
        await asyncio.to_thread(peer.arrived, 120)
        answer = await asyncio.wait_for(space.call("POST", "once", "renew", body={}), 10)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        await transport.aclose()
        return answer

    with Peer(script) as peer:
        assert asyncio.run(crowded()) == {"ok": True}


def test_one_client_serves_several_event_loops_one_after_the_other():
    transport = Transport(resolve_config(api_key="k", space_id="s", base_url="http://127.0.0.1:1"))

    async def call():
        try:
            return await Space(transport, "s").call("POST", "scopes")
        finally:
            await transport._close_here()

    with Peer(replies(Answer(200, {"ok": True}))) as peer:
        transport.config = resolve_config(api_key="k", space_id="s", base_url=peer.url)
        assert [asyncio.run(call()) for _ in range(3)] == [{"ok": True}] * 3


def test_a_closed_client_refuses_calls():
    async def closed():
        transport = Transport(resolve_config(api_key="k", space_id="s", base_url=peer.url))
        await transport.aclose()
        await transport.aclose()
        with pytest.raises(ConfigError, match="closed"):
            await Space(transport, "s").call("POST", "scopes")

    with Peer(replies(Answer())) as peer:
        asyncio.run(closed())
    assert peer.requests == []


def test_two_clients_of_one_holder_are_told_apart_by_their_sessions():
    config = resolve_config(api_key="k", space_id="s", holder="same")
    one, two = Space(Transport(config), "s"), Space(Transport(config), "s")
    assert one.holder()["holder"] == two.holder()["holder"] == "same"
    assert one.holder()["holderSession"] != two.holder()["holderSession"]
    assert one.holder() == one.holder()
