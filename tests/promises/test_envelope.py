"""Every response has a request id, every refusal the one envelope, in the promised order of checks."""

import http.client
import json
import re

import httpx
import pytest

from tests.promises.everyone import OPERATOR
from tests.promises.kinds import post
from tests.promises.table import SHAPES
from tests.support import spaces
from tests.support.builders import Call, ok, refused, scope
from tests.support.document import routes


@pytest.fixture
def stranger(server):
    """A client that sends no key; its paths are the server's."""
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_response_has_a_request_id_of_its_own(api, shape):
    call = shape.call(api)
    seen = {call.send(api).headers["x-request-id"] for _ in range(2)}
    seen.add(post(api, call, b"nonsense").headers["x-request-id"])
    assert len(seen) == 3


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/", "/nowhere", "/v1"]
)
def test_responses_outside_any_space_have_one_too(stranger, path):
    assert stranger.get(path).headers["x-request-id"]
    assert stranger.post(path).headers["x-request-id"]


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/scopes/",
        "/once/",
        "/once/acquire/",
        "/scopes/x/y",
        "//scopes",
        "/",
        "/claims/x/y",
        "/mailboxes/by-name/x/y",
        "/mailboxes/x/y",
        "/messages/x",
        "/messages/",
        "/tasks/x/y",
        "/tasks/batch/",
        "/ops",
        "/ops/",
        "/ops/runs",
        "/ops/runs/x/y",
    ],
)
def test_an_unknown_path_is_not_found_in_the_envelope(api, path):
    for method in ("GET", "POST", "PUT", "DELETE"):
        refused(api.request(method, path), "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/once/acquire"),
        ("PUT", "/scopes"),
        ("DELETE", "/scopes/x"),
        ("GET", "/scopes/x/cancel"),
        ("POST", "/runs/x"),
        ("PATCH", "/once"),
        ("OPTIONS", "/once"),
        ("TRACE", "/scopes"),
        ("GET", "/claims"),
        ("PUT", "/claims/x"),
        ("GET", "/claims/x/renew"),
        ("DELETE", "/mailboxes/x"),
        ("GET", "/mailboxes/by-name/x"),
        ("GET", "/mailboxes/x/recv"),
        ("GET", "/messages/x/complete"),
        ("PATCH", "/tasks/x"),
        ("GET", "/tasks/x/cancel"),
        ("POST", "/ops/waits"),
        ("DELETE", "/ops/runs/x"),
    ],
)
def test_a_wrong_method_is_405_in_the_envelope_and_says_what_is_allowed(api, method, path):
    response = api.request(method, path)
    assert method in refused(response, "VALIDATION_FAILED", status=405)
    assert response.headers["allow"]


METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}


@pytest.mark.parametrize("path", sorted({route.path for route in routes()}))
def test_a_method_that_a_path_lacks_is_refused_with_all_that_it_has(stranger, space, path):
    here = re.sub(r"{\w+}", "x", path.replace("{space_id}", space.id))
    taken = {r.method for r in routes() if re.fullmatch(re.sub(r"{\w+}", "[^/]+", r.path), here)}
    for method in METHODS - taken:
        rights = OPERATOR if "/admin/" in here else space.headers
        response = stranger.request(method, here, headers=rights)
        assert method in refused(response, "VALIDATION_FAILED", status=405)
        allowed = {name.strip() for name in response.headers["allow"].split(",")}
        assert allowed == {route.method for route in routes() if route.path == path}


def test_a_head_request_has_a_request_id_and_no_body(api):
    response = api.head("/scopes")
    assert response.status_code == 405
    assert response.headers["x-request-id"]
    assert response.content == b""


def test_an_unknown_path_outside_any_space_is_not_found(stranger):
    refused(stranger.get("/nowhere"), "NOT_FOUND")
    refused(stranger.post("/healthz"), "VALIDATION_FAILED", status=405)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_key_comes_before_the_space_and_both_before_the_request(api, stranger, space, shape):
    """401, 403, 400, 404: in this order, whatever else is wrong."""
    call = shape.call(api)
    mine, foreign = (f"/v1/spaces/{name}{call.path}" for name in (space.id, "foreign"))

    def send(path, headers, content=b"nonsense"):
        return stranger.request(call.method, path, content=content, headers=headers)

    refused(send(foreign, {}), "UNAUTHENTICATED")
    refused(send(mine, {}), "UNAUTHENTICATED")
    refused(send(foreign, space.headers), "FORBIDDEN")
    if call.method != "GET":
        for name in shape.in_path:
            unknown = shape.with_path(call, name, "unknown")
            refused(post(api, unknown, b"nonsense"), "VALIDATION_FAILED")


def test_an_unknown_path_is_401_without_a_key_and_403_in_a_foreign_space(stranger, space):
    refused(stranger.get(f"/v1/spaces/{space.id}/nowhere"), "UNAUTHENTICATED")
    refused(stranger.get("/v1/spaces/foreign/nowhere", headers=space.headers), "FORBIDDEN")
    refused(stranger.get("/v1/nowhere"), "UNAUTHENTICATED")
    refused(stranger.get("/v1/nowhere", headers=space.headers), "NOT_FOUND")


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer {upper}",
        "Bearer a b",
    ],
)
def test_a_key_that_is_missing_malformed_or_unknown_is_unauthenticated(server, space, authorization):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {}
    if authorization is not None:
        headers["Authorization"] = authorization.format(key=space.key, upper=space.key.upper())
    try:
        connection.request("GET", f"/v1/spaces/{space.id}/scopes", headers=headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        assert (response.status, body["error"]["code"]) == (401, "UNAUTHENTICATED")
        assert space.key not in body["error"]["message"]
    finally:
        connection.close()


def test_the_scheme_of_a_key_is_read_in_any_case(stranger, space):
    for scheme in ("bearer", "BEARER", "Bearer "):
        headers = {"Authorization": f"{scheme} {space.key}"}
        ok(stranger.get(f"/v1/spaces/{space.id}/scopes", headers=headers))


def test_two_authorization_headers_are_none(server, space):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.putrequest("GET", f"/v1/spaces/{space.id}/scopes")
        for _ in range(2):
            connection.putheader("Authorization", f"Bearer {space.key}")
        connection.endheaders()
        assert connection.getresponse().status == 401
    finally:
        connection.close()


def test_what_the_client_calls_a_request_does_not_become_its_id(api):
    response = api.get("/scopes", headers={"X-Request-Id": "mine"})
    assert response.headers["x-request-id"] != "mine"


def test_messages_name_what_is_at_fault(api):
    ended = scope(api)
    ok(Call("POST", f"/scopes/{ended}/cancel").send(api))
    assert ended in refused(api.post("/scopes", json={"parentId": ended}), "SCOPE_CANCELLED")
    unknown = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
    assert unknown in refused(api.get(f"/scopes/{unknown}"), "NOT_FOUND")


def test_a_key_covers_several_spaces_and_no_others(server, database_url, space):
    import hashlib
    import uuid

    from tests.support import database

    other = f"{space.id}-b"
    digest = hashlib.sha256(space.key.encode()).digest()
    sql = spaces.BOOTSTRAP_SQL.format(schema=database.kernel_schema())
    database.fetch(database_url, sql, other, uuid.uuid4(), digest, "test")
    with httpx.Client(base_url=server.url, headers=space.headers, timeout=20, trust_env=False) as client:
        one = ok(client.post(f"/v1/spaces/{space.id}/scopes"), 201)["id"]
        assert ok(client.get(f"/v1/spaces/{other}/scopes"))["scopes"] == []
        refused(client.get(f"/v1/spaces/{other}/scopes/{one}"), "NOT_FOUND")
