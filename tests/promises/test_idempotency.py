"""Idempotency keys: the first outcome that changed something is told again for 24 h, and nothing else is.

Held over every route that changes something; a new room joins by its rows, see table.py.
"""

import pytest

from tests.promises.rows_messages import box
from tests.promises.table import MUTATIONS
from tests.support import spaces
from tests.support.builders import Call, at_once, end, ok, refused, scope
from tests.support.document import routes
from tests.support.journal import events
from tests.support.proxy import RoundRobin
from tests.support.queues import sent, submitted, taken

EVERY = pytest.mark.parametrize("row", MUTATIONS, ids=str)
DAY_S = 86_400
ASKED_BY_POST = {"POST /timers/poll"}  # reads: they change nothing, and no answer of theirs is kept


def replayed(response):
    """Whether it is a replay; the header is there only then."""
    flag = response.headers.get("idempotent-replayed")
    assert flag in {None, "true"}
    return flag is not None


def succeeded(response):
    assert response.is_success, response.text
    return response


@EVERY
def test_a_repeated_call_is_answered_as_the_first_time_in_status_and_body(api, row):
    call = row.changes(api)
    first, again = (succeeded(call.send(api, "k")) for _ in range(2))
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert [replayed(first), replayed(again)] == [False, True]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


@EVERY
def test_a_repeated_call_has_one_effect(api, row, space, database_url):
    succeeded(row.changes(api).send(api, "first"))
    one = [e.type for e in events(database_url, space.id)]
    call = row.changes(api)
    for _ in range(3):
        succeeded(call.send(api, "k"))
    two = [e.type for e in events(database_url, space.id)]
    assert two == one + one[1:]  # the first of all is the space's own key


@EVERY
async def test_thirty_duplicates_at_once_over_two_replicas_have_one_effect(api, both_apis, row):
    call = row.changes(api)
    answers = [succeeded(r) for r in await at_once(both_apis, [call] * 30, "k")]
    assert len({(a.status_code, a.content) for a in answers}) == 1
    assert [replayed(a) for a in answers].count(False) == 1


@EVERY
async def test_twenty_at_once_of_two_requests_under_one_key_have_the_effect_of_one(api, both_apis, row):
    """Whichever comes first: its duplicates get its answer, the other request a conflict."""
    call = row.changes(api)
    other = Call("POST", "/scopes", {"name": "other"})
    answers = await at_once(both_apis, [call, other] * 10, "k")
    groups = [answers[0::2], answers[1::2]]
    winners, losers = groups if answers[0].is_success else groups[::-1]
    assert len({(a.status_code, a.content) for a in map(succeeded, winners)}) == 1
    assert [replayed(a) for a in winners].count(False) == 1
    for answer in losers:
        refused(answer, "IDEMPOTENCY_CONFLICT")
    listed = ok(api.get("/scopes", params={"name": "other"}))["scopes"]
    assert len(listed) == (0 if answers[0].is_success else 1)


def test_every_route_that_changes_something_has_its_row():
    """What has none is held to nothing here."""
    changing = {str(route) for route in routes() if route.inside and not route.reads} - ASKED_BY_POST
    assert {" ".join(row.name.split()[:2]) for row in MUTATIONS} == changing


@EVERY
def test_a_reply_lost_after_the_commit_is_told_to_the_retry_by_any_replica(
    api, row, server, second_server, space
):
    with RoundRobin([server.port]) as proxy, space.client(proxy.url) as cut:
        call = row.changes(api)
        proxy.drop_reply(b"lost-reply-key")
        with pytest.raises(Exception, match="disconnect"):
            call.send(cut, "lost-reply-key")
        assert proxy.dropped.is_set()
        with space.client(second_server.url) as elsewhere:
            retry = succeeded(call.send(elsewhere, "lost-reply-key"))
        assert replayed(retry)
        if row.renewal is not None:
            ok(row.renewal(call, retry.json()).send(api))


@pytest.mark.parametrize("row", [r for r in MUTATIONS if r.renewal], ids=str)
def test_what_was_taken_is_the_same_however_often_it_is_told(api, row):
    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    ok(row.renewal(call, first.json()).send(api))
    again = succeeded(call.send(api, "k"))
    assert (replayed(again), again.content) == (True, first.content)  # the end of the lease as it was then
    ok(row.renewal(call, again.json()).send(api))


@pytest.mark.parametrize("path", ["recv", "admit"])
def test_a_replay_brings_the_payload_as_it_was_written(api, path):
    payload = '{"b":1.50,"a":[ "\\u0041\\u0000",12345678901234567890123 ],"$payload":0}'
    it = box(api)
    given = f'"scopeId":"{it.scope}"'
    if path == "recv":
        content, take = f'{{{given},"payload":{payload}}}', it.recv()
        ok(api.post(f"/mailboxes/{it.id}/messages", content=content), 201)
    else:
        content = f'{{{given},"mailboxId":"{it.id}","taskKey":"k","input":{payload}}}'
        take = it.admit()
        ok(api.post("/tasks", content=content), 201)
    first, again = (succeeded(take.send(api, "k")) for _ in range(2))
    assert replayed(again)
    assert again.content == first.content
    assert payload.replace(" ", "") in again.text


@pytest.mark.parametrize("verb", ["recv", "admit"])
def test_a_take_that_found_nothing_may_be_repeated_under_its_key(api, verb):
    it = box(api)
    take = getattr(it, verb)()
    for _ in range(2):
        assert take.send(api, "k").status_code == 204
    task = submitted(api, it)
    answer = take.send(api, "k")
    assert not replayed(answer)
    assert task in answer.text
    assert replayed(take.send(api, "k"))


def test_a_full_mailbox_may_be_tried_under_the_same_key_until_it_has_room(api):
    it = box(api, backlogLimit=1)
    sent(api, it)
    call = it.submit("k")
    for _ in range(2):
        refused(call.send(api, "k"), "BACKLOG_FULL")
    taken(api, it.recv())
    assert not replayed(succeeded(call.send(api, "k")))
    assert replayed(succeeded(call.send(api, "k")))


@EVERY
def test_the_key_of_another_call_is_a_conflict_and_changes_nothing(api, row, space, database_url):
    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    other_path = end(scope(api))
    told = len(events(database_url, space.id))
    assert "Idempotency-Key" in refused(other_path.send(api, "k"), "IDEMPOTENCY_CONFLICT")
    other_method = Call("PUT", "/runs/other", {})
    refused(other_method.send(api, "k"), "IDEMPOTENCY_CONFLICT")
    ids = {"scopeId", "parentId", "parentScopeId", "mailboxId", "taskId", "reservationId", "workLimit"}
    for name in (call.body or {}).keys() - ids:  # that they are not found comes first
        changed = call.body | {name: changed_value(name, call.body[name])}
        refused(Call(call.method, call.path, changed).send(api, "k"), "IDEMPOTENCY_CONFLICT")
    assert len(events(database_url, space.id)) == told
    assert call.send(api, "k").content == first.content


def changed_value(name, value):
    match value:
        case str():
            others = {"mode": "WORK", "currency": "EUR", "at": "2001-01-02T00:00:00Z"}
            others |= {"deadline": "2999-01-01T00:00:01Z", "condition": "FIRST_ACCEPTED"}
            return others.get(name, value + ("1" if name.endswith("Minor") else "x"))
        case bool():
            return not value
        case int() | float():
            return value + 1
        case list():
            return value[1:]
    return None


@EVERY
def test_the_same_body_written_with_other_white_space_is_the_same_call(api, row):
    import json

    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    headers = {"Idempotency-Key": "k"}
    spaced = json.dumps(call.body or {}, indent=3)
    again = succeeded(api.request(call.method, call.path, content=f" {spaced}\n", headers=headers))
    assert replayed(again)
    assert again.content == first.content


@pytest.mark.parametrize("row", [r for r in MUTATIONS if r.refused], ids=str)
def test_a_refusal_is_not_kept_its_key_may_be_used_again(api, row):
    for _ in range(2):
        response = row.refused(api).send(api, "k")
        assert response.status_code in {409, 429}
        assert not replayed(response)
    answer = succeeded(row.changes(api).send(api, "k"))
    assert not replayed(answer)


@pytest.mark.parametrize("row", [r for r in MUTATIONS if r.idle], ids=str)
def test_an_answer_that_changed_nothing_is_not_kept(api, row):
    for _ in range(2):
        assert not replayed(succeeded(row.idle(api).send(api, "k")))
    assert not replayed(succeeded(row.changes(api).send(api, "k")))


def test_a_call_refused_for_its_shape_or_its_ids_uses_up_no_key(api):
    for bad in (
        Call("POST", "/scopes", {"nonsense": 1}),
        Call("POST", "/scopes", {"parentId": "nonsense"}),
        Call("POST", "/nowhere", {}),
    ):
        assert bad.send(api, "k").is_client_error
    assert not replayed(succeeded(Call("POST", "/scopes", {}).send(api, "k")))


@EVERY
def test_keys_are_each_space_s_own(api, row, server, database_url):
    mine = succeeded(row.changes(api).send(api, "k"))
    with spaces.create(database_url).client(server.url) as other:
        theirs = succeeded(row.changes(other).send(other, "k"))
    assert not replayed(mine)
    assert not replayed(theirs)


@EVERY
def test_a_key_is_remembered_for_24_hours_and_then_forgotten(api, row, clock):
    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    clock.shift(DAY_S - 60)
    again = call.send(api, "k")
    assert replayed(again)
    assert again.content == first.content
    clock.shift(120)
    assert not replayed(succeeded(row.changes(api).send(api, "k")))


@pytest.mark.parametrize("row", [r for r in MUTATIONS if r.after_end], ids=str)
def test_a_replay_is_told_even_when_the_scope_has_ended_since(api, row):
    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    ok(end(youngest_run(api)).send(api))
    again = call.send(api, "k")
    assert replayed(again)
    assert again.content == first.content
    refused(call.send(api, "fresh"), row.after_end)


def youngest_run(client):
    """The run that a row has just made."""
    return ok(client.get("/scopes", params={"limit": 1}))["scopes"][0]["id"]


def test_a_key_is_1_to_255_characters(api):
    ok(Call("POST", "/scopes").send(api, "x" * 255), 201)
    for key in ("", "x" * 256):
        assert "Idempotency-Key" in refused(Call("POST", "/scopes").send(api, key), "VALIDATION_FAILED")


def test_keys_differ_in_every_byte(api):
    made = [ok(Call("POST", "/scopes").send(api, key), 201)["id"] for key in ("a", "A", "a:b", "a b", "!~")]
    assert len(set(made)) == 5


def test_without_a_key_every_call_is_a_new_one(api):
    assert scope(api) != scope(api)


def test_a_get_takes_no_notice_of_a_key(api):
    root = scope(api)
    ok(Call("POST", "/scopes").send(api, "k"), 201)
    response = Call("GET", f"/scopes/{root}").send(api, "k")
    assert ok(response)["id"] == root
    assert not replayed(response)
