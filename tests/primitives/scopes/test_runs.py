"""Named runs: one active run per name, joined by whoever asks for it."""

from urllib.parse import quote

import pytest

from tests.support.builders import Once, end, held, in_seconds, ok, refused, scope
from tests.support.journal import events


def run(client, name="default", **body):
    return ok(client.put(f"/runs/{quote(name, safe='')}", json=body))


def test_everyone_who_asks_for_a_name_gets_the_same_run(api, server, space):
    first = run(api, "nightly")
    with space.client(server.url) as other:
        assert run(other, "nightly") == first
    assert run(api, "hourly")["id"] != first["id"]


@pytest.mark.parametrize("how", ["cancel", "complete"])
def test_a_run_that_has_ended_is_not_joined_the_next_call_starts_fresh(api, how):
    first = run(api)
    token = held(api, Once(first["id"]))
    ok(end(first["id"], how).send(api))
    second = run(api)
    assert second["id"] != first["id"]
    assert (second["effective"], second["version"]) == ("ACTIVE", 1)
    assert run(api) == second
    refused(Once(first["id"]).complete(token, 1).send(api), "SCOPE_CANCELLED")
    assert ok(Once(second["id"]).acquire().send(api))["state"] == "ACQUIRED"


def test_a_run_past_its_deadline_is_not_joined_and_its_expiry_is_told_once(api, space, database_url, clock):
    first = run(api, deadline=in_seconds(api, 60))
    clock.shift(61)
    second = run(api)
    assert second["id"] != first["id"]
    assert second["deadline"] is None
    assert run(api)["id"] == second["id"]
    told = events(database_url, space.id, "scope.expired")
    assert [event.aggregate for event in told] == [first["id"]]


def test_a_deadline_counts_only_when_the_run_is_made(api):
    first = run(api, "a", deadline="2999-01-01T00:00:00Z")
    assert run(api, "a", deadline="2999-06-01T00:00:00Z") == first
    assert run(api, "a") == first
    run(api, "b")
    assert run(api, "b", deadline="2999-01-01T00:00:00Z")["deadline"] is None


def test_a_run_may_be_made_with_a_deadline_that_has_passed(api):
    old = run(api, deadline="2001-01-01T00:00:00Z")
    assert old["effective"] == "EXPIRED"
    assert run(api)["id"] != old["id"]


def test_joining_changes_nothing(api, space, database_url):
    first = run(api)
    for _ in range(3):
        run(api)
    assert run(api)["version"] == first["version"]
    assert [e.type for e in events(database_url, space.id, "scope.created")] == ["scope.created"]


def test_a_scope_s_name_is_a_label_that_no_run_is_found_by(api):
    labelled = scope(api, name="nightly")
    assert scope(api, name="nightly") != labelled
    joined = run(api, "nightly")
    assert joined["id"] != labelled
    assert scope(api, name="nightly") != joined["id"]
    assert run(api, "nightly") == joined


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "a%2Fb",
        "a//b/",
        "/",
        "ünïcode",
        "e\u0301",
        "名前",
        "\U0001f680",
        "with space",
        "+",
        "%",
        "?q=1&r=2",
        "#top",
        ".",
        "..",
        "../../runs",
        "a\nb",
        "\U0001f600" * 256,
    ],
    ids=lambda name: ascii(name)[:20],
)
def test_a_name_in_the_path_may_hold_any_character(space, server, name):
    path = "".join(f"%{byte:02X}" for byte in name.encode())
    first = put_raw(server, space, path)
    assert first["name"] == name
    assert put_raw(server, space, quote(name, safe="").replace(".", "%2E")) == first


def put_raw(server, space, segment):
    """PUT /runs/{segment}, the segment sent exactly so; HTTP clients tidy paths."""
    import http.client
    import json

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("PUT", f"/v1/spaces/{space.id}/runs/{segment}", headers=space.headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        assert response.status == 200, body
        return body
    finally:
        connection.close()


def test_names_that_differ_in_a_byte_are_different_runs(api):
    names = ["a", "A", "a ", "é", "e\u0301", "a/b", "a%2Fb"]
    assert len({run(api, name)["id"] for name in names}) == len(names)


@pytest.mark.parametrize(
    ("segment", "says"),
    [("%00", "NUL"), ("a%00b", "NUL"), ("%FF", "UTF-8"), ("%ED%A0%80", "UTF-8"), ("a" * 257, "256")],
)
def test_a_name_that_cannot_be_is_refused(api, segment, says):
    assert says in refused(api.put(f"/runs/{segment}", json={}), "VALIDATION_FAILED")


def test_a_name_is_needed(api):
    refused(api.put("/runs/", json={}), "NOT_FOUND")


def test_a_raw_slash_ends_the_segment(api):
    refused(api.put("/runs/a/b", json={}), "NOT_FOUND")
