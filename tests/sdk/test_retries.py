"""`retries=0`: a plain call is tried once; a wait is a wait all the same, until its own bound."""

import pytest

from runstate import AsyncRunstate, Runstate, UnavailableError, WaitTimeoutError
from runstate.decorators import defaults
from runstate.run import Account
from tests.sdk.peer import DROP, Answer, Peer, refusal

SETTINGS = {"api_key": "k", "space_id": "s", "retries": 0}
LATER = "2999-01-01T00:00:00.000Z"
RUN = {"id": "run-1", "name": "default", "effective": "ACTIVE"}
ANSWERS = {
    "PUT /runs/default": Answer(200, RUN),
    "POST /once/acquire": Answer(
        200, {"state": "ACQUIRED", "attempts": 0, "token": "t", "leaseExpiresAt": LATER}
    ),
    "POST /once/complete": Answer(200, {"state": "DONE"}),
    "PUT /mailboxes/by-name/jobs": Answer(200, {"id": "box-1", "name": "jobs"}),
    "POST /tasks": Answer(201, {"taskId": "task-1", "replay": False, "state": "QUEUED"}),
    "GET /tasks/task-1": Answer(
        200, {"id": "task-1", "scopeId": "run-1", "state": "SUCCEEDED", "outcome": 7, "outcomeReason": None}
    ),
    "POST /claims": Answer(201, {"key": "c", "generation": "1", "token": "t", "leaseExpiresAt": LATER}),
    "POST /claims/c/release": Answer(200, {"released": True}),
}
FAULTS = {
    "a lost answer": DROP,
    "a proxy that finds no server": Answer(502, b"<html>"),
    "a server without its database": refusal(503, "UNAVAILABLE", retry_after="0.01"),
}


@pytest.fixture(params=FAULTS.values(), ids=FAULTS)
def unlucky(request):
    """Everything goes wrong the first time, and well from then on."""
    seen = set()

    def script(asked):
        call = f"{asked.method} {asked.path.partition('?')[0].removeprefix('/v1/spaces/s')}"
        first = call not in seen
        seen.add(call)
        return request.param if first else ANSWERS[call]

    with Peer(script) as peer:
        yield peer


def test_a_plain_call_is_tried_once_and_what_it_may_have_been_given_is_given_back(unlucky):
    """A claim whose answer was lost is asked for again under the same key, only to release it."""
    with Runstate(**SETTINGS, base_url=unlucky.url) as client:
        scope = client.scope("run-1")
        for call in (client.scopes.create, scope.status, lambda: scope.claim("c").acquire()):
            with pytest.raises(UnavailableError):
                call()
    asked = [f"{r.method} {r.path.removeprefix('/v1/spaces/s')}" for r in unlucky.requests]
    taking = ["POST /claims"] * 2 + ["POST /claims/c/release"] * 2
    assert asked == ["POST /scopes", "GET /scopes/run-1", *taking]
    assert len({r.headers["idempotency-key"] for r in unlucky.requests[2:4]}) == 1


def test_once_and_a_job_wait_on(unlucky):
    run = defaults.Run(Account(**SETTINGS, base_url=unlucky.url))
    assert run.once(name="work")(lambda: 7)() == 7
    assert run.queue("jobs")(lambda given: given)("input") == 7
    asked = [f"{r.method} {r.path.partition('?')[0]}" for r in unlucky.requests]
    assert {asked.count(call) for call in asked} <= {2, 3}  # the run is named twice
    for call in ("/once/complete", "/tasks"):
        keys = {r.headers["idempotency-key"] for r in unlucky.requests if r.path.endswith(call)}
        assert len(keys) == 1, call


async def test_a_claim_and_a_task_wait_on(unlucky):
    async with AsyncRunstate(**SETTINGS, base_url=unlucky.url) as client:
        scope = client.scope("run-1")
        lease = await scope.claim("c").acquire(wait=True)
        assert lease.generation == "1"
        await lease.aclose()
        assert (await scope.task("task-1").result())["outcome"] == 7


async def test_a_wait_ends_at_its_own_bound():
    with Peer(lambda _: DROP) as peer:
        async with AsyncRunstate(**SETTINGS, base_url=peer.url) as client:
            scope = client.scope("run-1")
            with pytest.raises(WaitTimeoutError):
                await scope.claim("c").acquire(wait=True, timeout_ms=300)
            with pytest.raises(WaitTimeoutError):
                await scope.task("task-1").result(timeout_ms=300)
