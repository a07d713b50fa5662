"""What published clients put on the wire is accepted: every row of the conformance file."""

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.promises import rows_messages
from tests.support.allowances import allowance
from tests.support.barriers import barrier
from tests.support.budgets import budget, reserved
from tests.support.builders import Call, Once, held, ok
from tests.support.document import routes
from tests.support.events import end_of
from tests.support.groups import done, group
from tests.support.limits import limit
from tests.support.permits import pool
from tests.support.queues import Claim, sent, submitted, taken
from tests.support.timers import Timers

ROWS = json.loads((Path(__file__).parents[1] / "conformance/wire-requests.json").read_text())["requests"]
ROUTES = {re.sub(r"{\w+}", "{}", str(route)): route for route in routes()}


def place_of(row):
    """Its method and path, without the names of what stands in it."""
    return re.sub(r"{\w+}", "{}", f"{row['method']} {row['path']}")


def room_of(path):
    """The first word of a path."""
    return path.split("/")[1]


PLAIN = {
    "afterSeconds": 60,
    "at": "2001-01-01T00:00:00.000Z",
    "maxOutstanding": 10,
    "error": "Error: boom",
    "reason": "enough",
    "retry": True,
    "waitMs": 0,
    "waitSeconds": 0,
    "allowOverrun": True,
    "amountMinor": "250",
    "currency": "USD",
    "limitMinor": "10000",
    "scale": 2,
    "seconds": 60,
    "ttlSeconds": 60,
    "units": 1,
    "unitsLimit": 1,
    "windowSeconds": 60,
    "settleBy": "2999-01-01T00:00:00.000Z",
}


@pytest.fixture
def things(api):
    """A value for every field and parameter that these rows name."""
    box = rows_messages.box(api)
    claim = Claim(box.scope, "company:acme/1")
    sent(api, box, {"first": True})
    task = submitted(api, box, "first")
    limit(api, box.scope, 10, "outstanding")
    money = budget(api, box.scope, 10_000, "nightly")
    return PLAIN | {
        "backlogLimit": 1_000,
        "arrivalKey": "worker-1",
        "target": 3,
        "barriers": barrier(api, box.scope).id,
        "aggregate": f"task:{task}",
        "childLimit": 10,
        "cursor": end_of(api),
        "deadline": "2999-01-01T00:00:00.000Z",
        "holder": "worker-1",
        "holderSession": "s-1",
        "includeDescendants": True,
        "input": {"company": "acme"},
        "key": claim.key,
        "leaseSeconds": 30,
        "limit": 10,
        "mailboxId": box.id,
        "maxAttempts": 3,
        "mode": "INBOX",
        "name": "of the night",
        "observation": {"step": 3},
        "parentId": box.scope,
        "payload": {"company": "acme"},
        "requirements": {"pools": [{"name": pool(api, box.scope, 1, "needed").name, "units": 1}]},
        "result": {"payload": {"report": [1, 2.5, None]}},
        "reservationId": reserved(api, money, 250),
        "scopeId": box.scope,
        "subscriberId": "run-1",
        "taskKey": "research:acme",
        "token": "none",
        "types": "task.succeeded,scope.cancelled",
        "workKey": "w-1",
        "workLimit": "outstanding",
        "{k}": quote(claim.key, safe=""),
        "{n}": "nightly",
        "scopes": box.scope,
        "mailboxes": box.id,
        "budgets": money.id,
        "tasks": task,
        "ops": box.scope,
        "box": box,
    }


def with_lease(api, row, things):
    """The same things, with the token that this row needs."""
    box = things["box"]
    if room_of(row["path"]) in {"grants", "permits", "permit-waiters"} and row["path"] != "/permits":
        things = things | with_pool(api, row, box.scope)
    if room_of(row["path"]).startswith("allowance") and row["path"] != "/allowances":
        things = things | with_allowance(api, row, box.scope)
    if room_of(row["path"]) == "timers":
        return things | with_timer(api, row, box.scope)
    if room_of(row["path"]) == "task-groups":
        return things | with_group(api, row, box)
    if "token" not in row["body"] or row["path"].startswith("/grants/"):
        return things
    if row["path"].startswith("/once/"):
        return things | {"token": held(api, Once(box.scope, things["key"]))}
    if row["path"].startswith("/claims/"):
        claim = Claim(box.scope, things["key"])
        return things | {"token": ok(claim.acquire().send(api), 201)["token"]}
    delivery = taken(api, box.recv())
    return things | {"token": delivery.token, "messages": delivery.id}


def with_pool(api, row, run):
    """A pool of one unit, and a grant of it or a waiter for it where the row needs one."""
    browsers = pool(api, run, 1, "nightly")
    things = {"permits": browsers.id}
    if "waiterId" in row["body"]:
        return things | {"waiterId": ok(browsers.wait().send(api))["waiterId"]}
    if room_of(row["path"]) == "permits":
        return things
    grant = ok(browsers.acquire().send(api))
    waiter = ok(browsers.wait().send(api))["waiterId"]
    return things | {"grants": grant["grantId"], "token": grant["token"], "permit-waiters": waiter}


def with_allowance(api, row, run):
    """An allowance of one unit a minute, and a waiter where the row needs one."""
    searches = allowance(api, run, 1, 60, "nightly")
    if room_of(row["path"]) == "allowances":
        return {"allowances": searches.id}
    return {"allowance-waiters": ok(searches.wait().send(api))["waiterId"]}


def with_group(api, row, box):
    """A group, and a member that has succeeded or a task that may join; or what one is made of."""
    jury = group(api, box)
    task = submitted(api, box, "outside") if "taskId" in row["body"] else done(api, jury, "review:1")[0]
    condition = "N_ACCEPTED" if "threshold" in row["body"] else "FIRST_ACCEPTED"
    wanted = {"condition": condition, "threshold": 3, "expectedMembers": 10, "parentScopeId": box.scope}
    return wanted | {"task-groups": jury.id, "taskId": task, "{t}": task}


def with_timer(api, row, run):
    """A timer that has fired, and its token, to acknowledge; else one that is pending."""
    timer = ok(Timers(run).create(0 if "token" in row["body"] else 60).send(api))
    return {"timers": timer["id"], "token": timer.get("token")}


def test_every_row_has_its_route():
    assert len(ROWS) == 124
    assert {place_of(row) for row in ROWS} - ROUTES.keys() == set()


def test_every_field_is_one_of_its_route():
    early = {
        name
        for row in ROWS
        for name in [*row["body"], *row["query"]]
        if name not in {place.at[0] for place in ROUTES[place_of(row)].places if place.where != "path"}
    }
    assert not early


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['method']} {row['path']} {'+'.join(row['body'])}"
)
@pytest.mark.parametrize("bodyless", [False, True])
def test_what_published_clients_send_is_accepted(api, things, row, bodyless):
    things = with_lease(api, row, things)
    path = row["path"].replace("{id}", things.get(row["path"].split("/")[1], ""))
    path = path.replace("{n}", things["{n}"]).replace("{k}", things["{k}"])
    path = path.replace("{t}", things.get("{t}", ""))
    if row["query"]:
        path += "?" + "&".join(f"{name}={things[name]}" for name in row["query"])
    body = {name: things[name] for name in row["body"]} or (None if bodyless else {})
    key = None if row["method"] == "GET" else "a-key-of-the-client"

    def send(body):
        return Call(row["method"], path, body if row["method"] != "GET" else None).send(api, key)

    response = send(body)
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


def test_a_whole_task_of_a_published_client(api):
    """The calls of 0.3 for one handler and one submit, in their order, as they are on the wire."""
    box = ok(Call("PUT", "/mailboxes/by-name/research", {"maxAttempts": 3}).send(api, "1"))
    run = ok(Call("PUT", "/runs/default", {}).send(api, "2"))
    asked = {"scopeId": run["id"], "mailboxId": box["id"], "taskKey": "acme", "input": {"company": "acme"}}
    task = ok(Call("POST", "/tasks", asked).send(api, "3"), 201)
    assert task == {"taskId": task["taskId"], "replay": False, "state": "QUEUED"}
    taking = {"scopeId": run["id"], "mailboxId": box["id"], "holder": "host:1", "holderSession": "s"}
    given = Call("POST", "/tasks/admit", taking | {"leaseSeconds": 30, "waitMs": 25_000}).send(api, "4")
    lease = ok(given)
    assert lease["payload"] == {"company": "acme"}
    assert (lease["grants"], lease["consumptions"], lease["reservations"]) == ([], [], [])
    message = f"/messages/{lease['messageId']}"
    ok(Call("POST", f"{message}/renew", {"token": lease["token"]}).send(api, "5"))
    done = {"token": lease["token"], "result": {"payload": {"n": 1}}}
    assert ok(Call("POST", f"{message}/complete", done).send(api, "6")) == {"state": "ACKED"}
    seen = ok(api.get(f"/tasks/{task['taskId']}", params={"waitMs": 25_000}))
    assert (seen["state"], seen["outcome"], seen["outcomeReason"]) == ("SUCCEEDED", {"n": 1}, None)
