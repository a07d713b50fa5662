"""The OpenAPI document lists every route, and a change of it is a visible diff.

After a change that is meant: SNAPSHOT=write .venv/bin/python -m pytest tests/contract/test_openapi.py
"""

import json
import os
import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from runstate_server import app
from runstate_server.settings import load
from tests.promises.table import SHAPES

ENDLESS = {"GET /events/stream"}  # what it refuses: tests/primitives/events/test_stream.py
SNAPSHOT = Path(__file__).with_name("openapi.json")
INSIDE = "/v1/spaces/{space_id}"
ADMIN = "/v1/admin/"


@pytest.fixture(scope="module")
def built():
    """The app, which is built without a database."""
    return app.build(app.Service(load(database_url="postgresql://nobody@127.0.0.1:1/nothing"))).app


@pytest.fixture(scope="module")
def document(built):
    return built.openapi()


def operations(document):
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_is_in_the_document(built, document):
    routes = {
        (method, route.path)
        for router in app.ROOMS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    documented = operations(document).keys()
    assert routes
    assert routes <= documented
    assert documented - routes == {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics")}


def test_every_route_is_in_the_table_of_the_promise_suites(document):
    """What is not in tests/promises/table.py is held to no promise."""
    inside = {
        f"{m} {path.removeprefix(INSIDE)}" for m, path in operations(document) if path.startswith(INSIDE)
    }
    assert {str(shape) for shape in SHAPES} == inside - ENDLESS


def test_the_table_knows_every_field_and_parameter(document):
    found = operations(document)
    for shape in SHAPES:
        method, path = str(shape).split()
        operation = found[method, INSIDE + path]
        query = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
        assert query == shape.query.keys(), shape
        required = {
            p["name"] for p in operation.get("parameters", []) if p["in"] == "query" and p["required"]
        }
        assert required == shape.required_query
        body = operation.get("requestBody")
        if body is not None:
            reference = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            schema = document["components"]["schemas"][reference]
            assert schema.get("properties", {}).keys() == shape.fields.keys(), shape
            assert set(schema.get("required", [])) == shape.required, shape
            assert body["required"] == bool(shape.required), shape
            assert schema["additionalProperties"] is False


def test_every_operation_says_what_it_does_and_how_it_refuses(document):
    for (method, path), operation in operations(document).items():
        assert operation.get("description") or operation.get("summary"), path
        if path.startswith(INSIDE):
            assert set(operation["x-permissions"]) <= {"runtime", "observe", "resource_config"}
        if path.startswith(ADMIN):
            assert operation["x-administrator"] in {"operator", "operator or space_admin"}
        if path.startswith("/v1/"):
            assert operation["responses"].keys() >= {"400", "401", "403", "503"}, (method, path)
            assert "422" not in operation["responses"], (method, path)  # FastAPI's own; never sent
            assert operation["security"] == [{"apiKey": []}]


def test_who_may_call_and_how_much_may_be_sent_is_as_the_table_says(document):
    found = operations(document)
    for shape in SHAPES:
        method, path = str(shape).split()
        operation = found[method, INSIDE + path]
        assert operation["x-permissions"] == list(shape.needs), shape
        assert operation["x-body-bytes-max"] == shape.body_bytes_max, shape


def test_every_part_of_the_document_that_is_referred_to_is_there(document):
    text = json.dumps(document)
    for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert reference in document["components"]["schemas"]
        assert "__" not in reference, "a name that a person can read"
    assert not re.search(r'"(ge|le|gt|lt)":', text), "bounds by the names that JSON Schema has for them"
    error = document["components"]["schemas"]["Error"]["properties"]["error"]
    assert error["$ref"].endswith("/ErrorBody")
    body = document["components"]["schemas"]["ErrorBody"]["properties"]
    assert body.keys() == {"code", "message", "requestId"}


def test_every_parameter_of_a_path_is_declared(document):
    for (method, path), operation in operations(document).items():
        declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path)), (method, path)


def test_every_change_inside_a_space_takes_an_idempotency_key_and_administration_none(document):
    for (method, path), operation in operations(document).items():
        takes = any(p["name"] == "Idempotency-Key" for p in operation.get("parameters", []))
        assert takes == (method != "GET" and path.startswith(INSIDE)), (method, path)


def test_the_document_is_the_one_that_was_agreed(document):
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("SNAPSHOT") == "write":
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text(), "the contract has changed; see the head of this file"
