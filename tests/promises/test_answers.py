"""Answers are what the OpenAPI document says of them: the kernel makes the bodies, the schemas describe them.

Held over both tables; a new room joins by its rows, see table.py.
"""

import re
from datetime import datetime

import httpx
import pytest

from tests.promises.kinds import code
from tests.promises.table import MUTATIONS, SHAPES

PRIMITIVES = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module")
def document(server):
    return httpx.get(f"{server.url}/openapi.json", timeout=20, trust_env=False).json()


def wrongs(document, schema, value, place="answer"):
    """What of the value is not as the schema says, by place."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        each = [wrongs(document, option, value, place) for option in schema["anyOf"]]
        return [] if [] in each else min(each, key=len)
    wanted = PRIMITIVES.get(schema.get("type"), object)
    if type(value) is not wanted and wanted is not object:
        return [f"{place} is no {schema['type']}: {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place} is none of {schema['enum']}: {value!r}"]
    if isinstance(value, list) and "items" in schema:
        each = enumerate(value)
        return [w for i, item in each for w in wrongs(document, schema["items"], item, f"{place}[{i}]")]
    if "properties" not in schema:
        return []
    names = schema["properties"]
    found = [f"{place} lacks {name}" for name in schema.get("required", []) if name not in value]
    found += [f"{place} has {name}, which is not documented" for name in value.keys() - names.keys()]
    for name in value.keys() & names.keys():
        found += wrongs(document, names[name], value[name], f"{place}.{name}")
    return found


def operation(document, name):
    """Of the first two words of a row's name: method and path."""
    method, path = name.split()[:2]
    return document["paths"]["/v1/spaces/{space_id}" + path][method.lower()]


@pytest.mark.parametrize(
    ("name", "make"),
    [pytest.param(row.name, row.changes, id=f"{row} that changes") for row in MUTATIONS]
    + [pytest.param(row.name, row.idle, id=f"{row} that changes nothing") for row in MUTATIONS if row.idle]
    + [pytest.param(shape.name, shape.call, id=str(shape)) for shape in SHAPES],
)
def test_an_answer_is_as_documented_and_names_no_field_that_is_not(api, document, name, make):
    response = make(api).send(api)
    told = operation(document, name)["responses"][str(response.status_code)]
    if response.status_code == 204:
        assert response.content == b""
        assert "content" not in told
        return
    schema = told["content"]["application/json"]["schema"]
    assert wrongs(document, schema, response.json()) == []
    for at, text in instants(response.json()):
        assert INSTANT.fullmatch(text), at
        datetime.fromisoformat(text)


def instants(value, place="answer"):
    """Every field that is an instant by its name, and the deadlines, with its place; nulls left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str) and re.search(r"(At|deadline)$", name):
                yield f"{place}.{name}", inner
            yield from instants(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from instants(inner, f"{place}[{i}]")


@pytest.mark.parametrize("row", [r for r in MUTATIONS if r.refused], ids=str)
def test_a_refusal_is_documented_with_its_code(api, document, row):
    response = row.refused(api).send(api)
    told = operation(document, row.name)["responses"][str(response.status_code)]
    assert f"`{code(response)}`" in told["description"]
