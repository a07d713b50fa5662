"""Nothing in one space is visible from another: a foreign id is an unknown id, wherever an id can stand.

The places are those of the shapes in table.py: a new room is held to this by its rows there.
"""

import httpx
import pytest

from tests.promises.table import SHAPES
from tests.support import spaces
from tests.support.builders import Call, Once, end, held, ok, refused, scope
from tests.support.journal import events

UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"


@pytest.fixture
def foreign(server, database_url):
    """A client of another space."""
    with spaces.create(database_url).client(server.url) as client:
        yield client


def places():
    """Every place of every route where an id can stand: the field, the query parameter, or the path."""
    named = [(s, name) for s in SHAPES for name, kind in (s.fields | s.query).items() if kind == "id"]
    return named + [(s, "path") for s in SHAPES if "{id}" in s.name]


def with_id(call, place, wanted):
    """The call, about that id."""
    if place == "path":
        parts = call.path.split("/")
        parts[2] = wanted
        return Call(call.method, "/".join(parts), call.body)
    if call.method == "GET":
        path, _, query = call.path.partition("?")
        return Call("GET", f"{path}?{httpx.QueryParams(query).set(place, wanted)}")
    return Call(call.method, call.path, call.body | {place: wanted})


@pytest.mark.parametrize(("shape", "place"), places(), ids=str)
def test_a_foreign_id_is_not_found_and_answered_as_one_that_never_was(api, foreign, shape, place):
    theirs = scope(foreign)
    once = Once(theirs)
    token = held(foreign, once)
    call = shape.call(api)
    if call.body and "token" in call.body:
        call = Call(call.method, call.path, call.body | {"token": token})
    told = refused(with_id(call, place, theirs).send(api), "NOT_FOUND")
    absent = refused(with_id(call, place, UNKNOWN).send(api), "NOT_FOUND")
    assert told.replace(theirs, UNKNOWN) == absent
    seen = ok(once.view().send(foreign))
    assert (seen["state"], seen["attempts"]) == ("HELD", 0)
    assert ok(foreign.get(f"/scopes/{theirs}"))["effective"] == "ACTIVE"


def test_a_space_that_does_not_exist_is_answered_as_one_that_the_key_does_not_cover(server, api, foreign):
    there = str(foreign.base_url).rstrip("/").rpartition("/")[2]
    answers = []
    for name in (there, "nowhere", "no%20such", "x" * 65, "%00", "%FF", "%2E%2E", "é"):
        response = httpx.get(
            f"{server.url}/v1/spaces/{name}/scopes", headers=api.headers, timeout=20, trust_env=False
        )
        refused(response, "FORBIDDEN")
        body = response.json()["error"]
        del body["requestId"]
        answers.append((response.status_code, body))
    assert all(answer == answers[0] for answer in answers)


def test_equal_names_in_two_spaces_are_two_things(api, foreign):
    mine, theirs = (ok(client.put("/runs/default", json={})) for client in (api, foreign))
    assert mine["id"] != theirs["id"]
    ok(end(mine["id"]).send(api))
    assert ok(foreign.put("/runs/default", json={})) == theirs


def test_listings_show_one_s_own_space_alone(api, foreign):
    scope(foreign, name="shared")
    mine = scope(api, name="shared")
    assert [s["id"] for s in ok(api.get("/scopes", params={"name": "shared"}))["scopes"]] == [mine]


def test_a_cursor_of_another_space_shows_nothing_of_it(api, foreign):
    for _ in range(3):
        scope(foreign)
    cursor = ok(foreign.get("/scopes", params={"limit": 1}))["nextCursor"]
    mine = scope(api)
    page = ok(api.get("/scopes", params={"cursor": cursor}))
    assert {s["id"] for s in page["scopes"]} <= {mine}


def test_each_space_s_journal_holds_its_own_events(api, foreign, space, database_url):
    theirs = scope(foreign)
    mine = scope(api)
    assert mine in {e.aggregate for e in events(database_url, space.id)}
    assert theirs not in {e.aggregate for e in events(database_url, space.id)}
