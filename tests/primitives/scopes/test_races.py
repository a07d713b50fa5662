"""Many callers at one run, one parent, one end."""

import asyncio

from tests.support import races
from tests.support.builders import Call, Once, contents, end, held, ok, refused, scope
from tests.support.journal import events


async def test_thirty_callers_over_two_replicas_get_one_run(storm, space, database_url):
    answers = [ok(r) for r in await storm([Call("PUT", "/runs/nightly", {})] * 30)]
    assert len({a["id"] for a in answers}) == 1
    assert [e.aggregate for e in events(database_url, space.id, "scope.created")] == [answers[0]["id"]]


async def test_thirty_callers_after_an_expiry_get_one_fresh_run(api, storm, space, database_url):
    old = ok(api.put("/runs/nightly", json={"deadline": "2001-01-01T00:00:00Z"}))
    answers = [ok(r) for r in await storm([Call("PUT", "/runs/nightly", {})] * 30)]
    assert len({a["id"] for a in answers}) == 1
    assert answers[0]["id"] != old["id"]
    assert len(events(database_url, space.id, "scope.expired")) == 1
    assert len(events(database_url, space.id, "scope.created")) == 2


async def test_a_child_limit_holds_against_many_at_once(api, storm):
    root = scope(api, childLimit=7)
    answers = await storm([Call("POST", "/scopes", {"parentId": root})] * 30)
    made = [ok(a, 201)["id"] for a in answers if a.status_code == 201]
    assert len(set(made)) == 7
    for answer in answers:
        if answer.status_code != 201:
            refused(answer, "CONFLICT")
    assert len(ok(api.get("/scopes", params={"parentId": root}))["scopes"]) == 7


async def test_many_cancels_at_once_are_one_end(api, storm, space, database_url):
    root = scope(api)
    answers = [ok(r) for r in await storm([end(root)] * 20)]
    assert answers == [{"id": root, "state": "CANCELLED", "version": 2, "ended": contents()}] * 20
    assert len(events(database_url, space.id, "scope.cancelled")) == 1


async def test_a_cancel_and_a_completion_at_once_are_one_of_both(api, storm, space, database_url):
    root = scope(api)
    answers = await storm([end(root, "cancel"), end(root, "complete")] * 10)
    states = {ok(a)["state"] for a in answers if a.status_code == 200}
    assert len(states) == 1
    for answer in answers:
        if answer.status_code != 200:
            refused(answer, "CONFLICT")
    assert len(events(database_url, space.id, "scope.cancelled", "scope.completed")) == 1


async def test_no_child_is_born_after_the_end_of_its_parent(api, storm, database_url, space):
    root = scope(api)
    calls = [Call("POST", "/scopes", {"parentId": root})] * 30
    calls.insert(10, end(root))
    answers = await storm(calls)
    ok(answers.pop(10))
    for answer in answers:
        if answer.status_code == 201:
            child = ok(answer, 201)
            assert ok(api.get(f"/scopes/{child['id']}"))["effective"] == "CANCELLED"
        else:
            refused(answer, "SCOPE_CANCELLED")
    types = [e.type for e in events(database_url, space.id)]
    assert types.index("scope.cancelled") == len(types) - 1


async def test_ends_of_siblings_and_their_run_at_once_all_come_through(api, storm):
    root = scope(api)
    children = [scope(api, parentId=root) for _ in range(10)]
    keys = [Once(child, f"k{i}") for i, child in enumerate(children)]
    for key in keys:
        held(api, key)
    answers = await storm([*(end(child) for child in children), end(root)])
    assert {ok(a)["state"] for a in answers} == {"CANCELLED"}
    assert {ok(key.view().send(api))["state"] for key in keys} == {"OPEN"}


async def test_a_cancel_does_not_wait_for_other_runs(patient, kernel_schema):
    """The gate of one run is no other's."""
    async with patient.client() as (space, client):
        one, other = [ok(await client.post("/scopes", json={}), 201)["id"] for _ in range(2)]
        gate = f"SELECT {kernel_schema}.gate_alone($1, $2::text::uuid)"
        async with races.holding(patient.database_url, gate, space.id, one) as holder:
            stuck = asyncio.create_task(end(one).send(client))
            await races.until_waiting(patient.database_url, behind=await races.backend_pid(holder))
            assert ok(await end(other).send(client))["state"] == "CANCELLED"
            assert ok(await client.get(f"/scopes/{one}"))["effective"] == "ACTIVE"  # reads take no lock
            assert not stuck.done()
        assert ok(await stuck)["state"] == "CANCELLED"
