"""What published clients put on the wire is accepted: every row of the conformance file that is built."""

import json
from pathlib import Path

import pytest

from tests.support.builders import Call, Once, held, ok, scope

ROWS = json.loads((Path(__file__).parents[1] / "conformance/wire-requests.json").read_text())["requests"]
ROOMS = ("/scopes", "/runs", "/once")
HERE = [row for row in ROWS if row["path"].startswith(ROOMS)]


@pytest.fixture
def things(api):
    """A value for every field and parameter that these rows name."""
    root = scope(api)
    once = Once(root, "research:acme")
    return {
        "childLimit": 10,
        "deadline": "2999-01-01T00:00:00.000Z",
        "error": "Error: boom",
        "holder": "worker-1",
        "holderSession": "s-1",
        "key": once.key,
        "leaseSeconds": 30,
        "maxAttempts": 3,
        "name": "nightly",
        "parentId": root,
        "result": {"report": [1, 2.5, None]},
        "scopeId": root,
        "token": "none",
        "waitMs": 0,
        "{id}": root,
        "{n}": "nightly",
    }


def test_every_row_of_the_rooms_that_exist_is_looked_at():
    assert len(HERE) >= 15


@pytest.mark.parametrize(
    "row", HERE, ids=lambda row: f"{row['method']} {row['path']} {'+'.join(row['body'])}"
)
@pytest.mark.parametrize("bodyless", [False, True])
def test_what_published_clients_send_is_accepted(api, things, row, bodyless):
    if row["path"].startswith("/once/") and "token" in row["body"]:
        things["token"] = held(api, Once(things["scopeId"], things["key"]))
    path = row["path"].replace("{id}", things["{id}"]).replace("{n}", things["{n}"])
    if row["query"]:
        path += "?" + "&".join(f"{name}={things[name]}" for name in row["query"])
    body = {name: things[name] for name in row["body"]} or (None if bodyless else {})
    key = None if row["method"] == "GET" else "a-key-of-the-client"
    response = Call(row["method"], path, body if row["method"] != "GET" else None).send(api, key)
    assert response.is_success, response.text


def test_a_whole_visit_of_a_published_client(api):
    """The calls of 0.3 for one decorated function, in their order, as they are on the wire."""
    run = ok(Call("PUT", "/runs/default", {}).send(api, "1"))
    once = Once(run["id"])
    token = held(api, once, holder="host:1", session="s", lease_s=30)
    ok(once.renew(token, 30).send(api, "2"))
    ok(once.complete(token, {"a": 1}).send(api, "3"))
    seen = ok(api.get("/once", params={"scopeId": run["id"], "key": once.key, "waitMs": 25_000}))
    assert seen == {"state": "DONE", "attempts": 0, "result": {"a": 1}}
    ok(Call("POST", f"/scopes/{run['id']}/complete").send(api, "4"))
