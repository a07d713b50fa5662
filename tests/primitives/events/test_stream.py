"""GET /events/stream: the journal as server-sent events."""

import contextlib
import json

import httpx
import pytest

from tests.support import database, spaces
from tests.support.builders import ok, refused, scope
from tests.support.events import end_of, page, read
from tests.support.metrics import until_polls
from tests.support.processes import Replica

pytestmark = pytest.mark.processes
STREAM = "/events/stream"


@contextlib.contextmanager
def streamed(client, **options):
    """The messages of a stream, as they come."""
    with client.stream("GET", STREAM, timeout=20, **options) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield messages(response)


def messages(response):
    fields = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


def test_a_stream_tells_what_was_and_then_what_comes_with_a_cursor_each(api):
    first = scope(api)
    with streamed(api) as stream:
        told = [next(stream), next(stream)]
        assert json.loads(told[1]["data"])["aggregate"]["id"] == first
        second = scope(api)
        told.append(next(stream))
    events = [json.loads(message["data"]) for message in told]
    assert events == read(api)
    assert [message["id"] for message in told] == [event["cursor"] for event in events]
    assert events[-1]["aggregate"]["id"] == second


def test_the_last_event_id_resumes_and_goes_before_the_cursor_of_the_address(api):
    runs = [scope(api) for _ in range(3)]
    events = read(api)
    resume = {"Last-Event-ID": events[-2]["cursor"]}
    with streamed(api, params={"cursor": events[0]["cursor"]}, headers=resume) as stream:
        assert json.loads(next(stream)["data"])["aggregate"]["id"] == runs[-1]


def test_filters_hold_on_a_stream_and_what_cannot_be_read_is_refused_before_it_begins(api):
    run = scope(api)
    with streamed(api, params={"types": "scope.created", "aggregate": f"scope:{run}"}) as stream:
        assert json.loads(next(stream)["data"])["aggregate"]["id"] == run
    refused(api.get(STREAM, params={"cursor": "x"}), "VALIDATION_FAILED", 400)
    refused(api.get(STREAM, headers={"Last-Event-ID": "x"}), "VALIDATION_FAILED", 400)
    refused(api.get(STREAM, params={"scopeId": "none"}), "NOT_FOUND", 404)


def test_a_stream_ends_when_its_key_is_revoked(database_url, server):
    space = spaces.create(database_url)
    with space.client(server.url) as client:
        after = end_of(client)
        with streamed(client, params={"cursor": after}) as stream:
            database.execute(
                database_url, "UPDATE runstate.api_keys SET revoked_at = now() WHERE space_id = $1", space.id
            )
            assert list(stream) == []  # within 5 s by the contract, within the client's 20 s here


def test_a_stream_ends_at_a_drain_and_can_be_resumed_elsewhere(template):
    with template.clone() as url, Replica(url) as first, Replica(url) as second:
        space = spaces.create(url)
        with space.client(first.url) as here, space.client(second.url) as there:
            after = end_of(here)
            with streamed(here, params={"cursor": after}) as stream:
                run = scope(there)
                cursor = next(stream)["id"]
                until_polls(first, 1)
                first.process.terminate()
                with contextlib.suppress(httpx.TransportError):
                    assert list(stream) == []
            assert first.process.wait(10) == 0
            later = scope(there)
            assert [e["aggregate"]["id"] for e in read(there, cursor=after)] == [run, later]
            with streamed(there, headers={"Last-Event-ID": cursor}) as stream:
                assert json.loads(next(stream)["data"])["aggregate"]["id"] == later
            assert ok(page(cursor=cursor).send(there))["events"]
