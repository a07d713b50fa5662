"""Idempotency keys: the first outcome that changed something is told again for 24 h, and nothing else is.

Held over every route that changes something; a new room joins by its rows in table.py.
"""

import pytest

from tests.promises.table import MUTATIONS
from tests.support import spaces
from tests.support.builders import Call, at_once, end, ok, refused, scope
from tests.support.journal import events
from tests.support.proxy import RoundRobin

EVERY = pytest.mark.parametrize("row", MUTATIONS, ids=str)
DAY_S = 86_400
# What is unknown is not found first, and what has no second value is not valid.
NOT_CHANGED = {"scopeId", "parentId", "mailboxId", "tasks", "result"}


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
        if call.path == "/once/acquire":
            works = Call("POST", "/once/renew", renewal(call, retry.json()["token"]))
            ok(works.send(api))


def renewal(call, token):
    return {name: call.body[name] for name in ("scopeId", "key")} | {"token": token}


@EVERY
def test_the_key_of_another_call_is_a_conflict_and_changes_nothing(api, row, space, database_url):
    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    other_path = end(scope(api))
    told = len(events(database_url, space.id))
    assert "Idempotency-Key" in refused(other_path.send(api, "k"), "IDEMPOTENCY_CONFLICT")
    other_method = Call("PUT", "/runs/other", {})
    refused(other_method.send(api, "k"), "IDEMPOTENCY_CONFLICT")
    for name in (call.body or {}).keys() - NOT_CHANGED:
        changed = call.body | {name: changed_value(name, call.body[name])}
        refused(Call(call.method, call.path, changed).send(api, "k"), "IDEMPOTENCY_CONFLICT")
    assert len(events(database_url, space.id)) == told
    assert call.send(api, "k").content == first.content


def changed_value(name, value):
    if name == "deadline":
        return "2999-01-01T00:00:01Z"
    if value is None or isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "x"
    return value + 1 if isinstance(value, int | float) else [value]


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
        assert response.status_code == 409
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


@pytest.mark.parametrize("row", [r for r in MUTATIONS if r.scope_of], ids=str)
def test_a_replay_is_told_even_when_the_scope_has_ended_since(api, row):
    call = row.changes(api)
    first = succeeded(call.send(api, "k"))
    ok(end(row.scope_of(call)).send(api))
    again = call.send(api, "k")
    assert replayed(again)
    assert again.content == first.content
    refused(call.send(api, "fresh"), "SCOPE_CANCELLED")


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
