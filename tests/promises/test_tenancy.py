"""Nothing in one space is visible from another: a foreign id is an unknown id, wherever an id can stand.

The places are those of the shapes of table.py: a new room is held to this by its rows.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import pytest

from tests.promises.rows_messages import box
from tests.promises.table import SHAPES
from tests.support import spaces
from tests.support.builders import Call, Once, end, held, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import Claim, batch, mailbox, sent, submitted, taken, view

UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"


@pytest.fixture
def foreign(server, database_url):
    """A client of another space."""
    with spaces.create(database_url).client(server.url) as client:
        yield client


@dataclass(frozen=True)
class Theirs:
    """One of everything that has an id, in the other space, held by `token` where it can be."""

    client: httpx.Client
    ids: dict[str, str]
    token: str
    views: list[Call]

    def look(self):
        """All of it as its own space sees it."""
        return [ok(view.send(self.client)) for view in self.views]


def once_of(foreign):
    once = Once(scope(foreign))
    views = [once.view(), Call("GET", f"/scopes/{once.scope}")]
    return Theirs(foreign, {"scope": once.scope}, held(foreign, once), views)


def delivery_of(foreign):
    it = box(foreign)
    task = submitted(foreign, it)
    held = taken(foreign, it.recv())
    views = [it.view(), it.messages(), view(task), Call("GET", f"/scopes/{it.scope}")]
    ids = {"scope": it.scope, "mailbox": it.id, "message": held.id, "task": task}
    return Theirs(foreign, ids, held.token, views)


def kind_of(name):
    """The kind of thing that a field or parameter of this name refers to."""
    return {"parent": "scope"}.get(word := re.sub(r"_?[iI]d$", "", name), word)


def places():
    """Every place of every route where an id can stand: field, query parameter, or parameter of the path."""
    named = [(s, name) for s in SHAPES for name, kind in (s.fields | s.query).items() if kind == "id"]
    return named + [(s, name) for s in SHAPES for name in s.in_path if name.endswith("_id")]


def with_id(shape, call, place, wanted):
    """The call, about that id."""
    if place in shape.in_path:
        return shape.with_path(call, place, wanted)
    if shape.reads:
        path, _, query = call.path.partition("?")
        return Call("GET", f"{path}?{httpx.QueryParams(query).set(place, wanted)}")
    return Call(call.method, call.path, call.body | {place: wanted})


@pytest.mark.parametrize(("shape", "place"), places(), ids=str)
def test_a_foreign_id_is_not_found_and_answered_as_one_that_never_was(api, foreign, shape, place):
    theirs = (once_of if shape.name.startswith("POST /once") else delivery_of)(foreign)
    wanted = theirs.ids[kind_of(place)]
    call = shape.call(api)
    if call.body and "token" in call.body:
        call = Call(call.method, call.path, call.body | {"token": theirs.token})
    before = theirs.look()
    told = refused(with_id(shape, call, place, wanted).send(api), "NOT_FOUND")
    absent = refused(with_id(shape, call, place, UNKNOWN).send(api), "NOT_FOUND")
    assert told.replace(wanted, UNKNOWN) == absent
    assert theirs.look() == before


@pytest.mark.parametrize(("shape", "place"), places(), ids=str)
def test_a_malformed_id_is_not_found(api, shape, place):
    call = shape.call(api)
    unknown = (
        UNKNOWN.upper(),
        UNKNOWN.replace("-", ""),
        f"{{{UNKNOWN}}}",
        f"urn:uuid:{UNKNOWN}",
        " ",
        "é",
        "0",
    )
    for wanted in unknown:
        sent_as = quote(wanted) if place in shape.in_path else wanted
        refused(with_id(shape, call, place, sent_as).send(api), "NOT_FOUND")


@pytest.mark.parametrize("name", ["mailboxId", "scopeId"])
def test_a_completion_cannot_send_on_into_another_space(api, foreign, name):
    theirs = delivery_of(foreign)
    it = box(api)
    sent(api, it)
    held = taken(api, it.recv())
    wanted = theirs.ids[kind_of(name)]
    result = {"mailboxId": it.id} | {name: wanted}
    before = theirs.look()
    told = refused(held.complete(**result).send(api), "NOT_FOUND")
    absent = refused(held.complete(**result | {name: UNKNOWN}).send(api), "NOT_FOUND")
    assert told.replace(wanted, UNKNOWN) == absent
    assert theirs.look() == before
    ok(held.complete(mailboxId=it.id).send(api))


@pytest.mark.parametrize("name", ["mailboxId", "scopeId"])
def test_one_foreign_id_in_a_batch_refuses_all_of_it(api, foreign, name):
    theirs = delivery_of(foreign)
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
    delivery_of(foreign)
    assert ok(api.get("/mailboxes"))["mailboxes"] == []
    assert ok(api.get("/tasks"))["tasks"] == []
    assert ok(mailbox(api, "").messages().send(api))["messages"] == []


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
