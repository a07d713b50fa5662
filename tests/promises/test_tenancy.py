"""Nothing in one space is visible from another: a foreign id is an unknown id, wherever an id can stand.

The places are those of the OpenAPI document, in paths, queries and bodies at any depth: a new route is held
to this by itself, and a new kind of thing by one line of `everything`.
"""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.promises.rows_messages import box
from tests.promises.things import everything, kind_of
from tests.support import races, spaces
from tests.support.builders import Call, end, ok, refused, scope
from tests.support.document import routes
from tests.support.journal import events
from tests.support.queues import Claim, batch, mailbox, submitted, taken

UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
MALFORMED = (
    *(UNKNOWN.upper(), UNKNOWN.replace("-", ""), f"{{{UNKNOWN}}}", f"urn:uuid:{UNKNOWN}", f"{UNKNOWN} "),
    *(
        " ",
        "é",
        "0",
        "null",
        "..",
        "../..",
        "a/b",
        "a?b",
        "a#b",
        "a%2Fb",
        "\U0001f600",
        "' OR 1=1 --",
        "x" * 400,
    ),
)


@pytest.fixture
def foreign(server, database_url):
    """A client of another space."""
    with spaces.create(database_url).client(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def theirs(server, database_url, residents):
    """What another space has."""
    space = spaces.create(database_url)
    with space.client(server.url) as client:
        yield everything(client, space, residents.door)


@pytest.fixture(scope="module")
def ours(residents, meant):
    """What the space of the callers has."""
    return meant(lambda: everything(residents.api, residents.space, residents.door))


PLACES = [
    pytest.param(route, place, id=f"{route} {place}")
    for route in routes()
    for place in route.places
    if place.kind == "id"
]


def no_such(response):
    """The code for a thing that is not there: of a grant, its token holds nothing."""
    return "STALE_CLAIM" if "/grants/" in response.url.path else "NOT_FOUND"


def told_of(response, wanted):
    """All that an answer tells, with the id in question by another name."""
    message = refused(response, no_such(response)).replace(wanted, "it")
    return message, response.status_code, response.headers.keys()


@pytest.mark.parametrize(("route", "place"), PLACES)
def test_a_foreign_id_is_not_found_and_answered_as_one_that_never_was(residents, calls, theirs, route, place):
    wanted = theirs.ids[kind_of(place.name)]
    call = calls(route)
    token = theirs.tokens.get(call.path.split("/")[4]) if route.inside else None
    if token is not None and "token" in (call.body or {}):
        call = Call(call.method, call.path, call.body | {"token": token})
    before = theirs.look()
    told, absent = (
        told_of(residents.send_with(route, call, place, each), each) for each in (wanted, UNKNOWN)
    )
    assert told == absent
    assert theirs.look() == before


@pytest.mark.parametrize(("route", "place"), PLACES)
def test_an_id_of_another_kind_is_not_found(residents, calls, ours, route, place):
    kind = kind_of(place.name)
    for other, wanted in ours.ids.items():
        if wanted != ours.ids[kind]:
            response = residents.send_with(route, calls(route), place, wanted)
            assert kind in refused(response, no_such(response)), other


@pytest.mark.parametrize(("route", "place"), PLACES)
def test_a_malformed_id_is_not_found_and_not_sent_back(residents, calls, theirs, route, place):
    call = calls(route)
    secrets = [residents.space.key, *theirs.tokens.values()]
    for wanted in (*MALFORMED, *secrets):
        response = residents.send_with(route, call, place, wanted)
        message = refused(response, "NOT_FOUND")
        assert len(wanted) < 10 or wanted not in message


@pytest.mark.parametrize("name", ["mailboxId", "scopeId"])
def test_one_foreign_id_in_a_batch_refuses_all_of_it(api, theirs, name):
    it = box(api)
    wanted = theirs.ids[kind_of(name)]
    before = theirs.look()
    told, absent = (
        refused(batch([it.task("a"), it.task("b", **{name: bad}), it.task("c")]).send(api), "NOT_FOUND")
        for bad in (wanted, UNKNOWN)
    )
    assert told.replace(wanted, UNKNOWN) == absent
    assert theirs.look() == before
    assert ok(api.get("/tasks"))["tasks"] == []


def test_the_token_of_a_foreign_claim_is_stale(api, foreign):
    theirs = Claim(scope(foreign))
    token = ok(theirs.acquire().send(foreign), 201)["token"]
    before = ok(theirs.view().send(foreign))
    refused(theirs.renew(token, 600).send(api), "STALE_CLAIM")
    refused(theirs.release(token).send(api), "STALE_CLAIM")
    assert ok(theirs.view().send(foreign)) == before


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
    ours = [mailbox(client, "", "research").id for client in (api, foreign)]
    assert ours[0] != ours[1]
    assert ok(api.put("/mailboxes/by-name/research", json={}))["id"] == ours[0]


def test_listings_show_one_s_own_space_alone(api, foreign):
    scope(foreign, name="shared")
    mine = scope(api, name="shared")
    assert [s["id"] for s in ok(api.get("/scopes", params={"name": "shared"}))["scopes"]] == [mine]
    submitted(foreign, box(foreign))
    assert ok(api.get("/mailboxes"))["mailboxes"] == []
    assert ok(api.get("/tasks"))["tasks"] == []
    assert ok(mailbox(api, "").messages().send(api))["messages"] == []


def test_reports_tell_of_one_s_own_space_alone(api, foreign, space, database_url):
    assert events(database_url, space.id)  # all that there are have their numbers
    before = ok(api.get("/ops/summary"))
    it = box(foreign)
    submitted(foreign, it)
    taken(foreign, it.recv())
    claim = Claim(it.scope)
    ok(claim.acquire().send(foreign), 201)
    with ThreadPoolExecutor(1) as pool, foreign_client(foreign) as other:
        waiting = pool.submit(claim.acquire("other", waitMs=6_000).send, other)
        races.until_blocking(lambda: ok(foreign.get("/ops/waits"))["waits"], what="their wait")
        assert ok(api.get("/ops/waits"))["waits"] == []
        assert ok(api.get("/ops/summary")) == before
        refused(waiting.result(), "CLAIM_HELD")


def foreign_client(foreign):
    """Another client of the same space, for another thread."""
    return httpx.Client(base_url=foreign.base_url, headers=foreign.headers, timeout=20, trust_env=False)


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
