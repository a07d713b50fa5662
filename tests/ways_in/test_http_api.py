"""docs/http-api.md: every route is there with a curl that works, and every answer is as shown.

After a change that is meant, and for a new section whose answers are still empty:
SNAPSHOT=write .venv/bin/python -m pytest tests/ways_in/test_http_api.py
"""

import json
import re

import pytest

from tests.support import pages, sources
from tests.support.metrics import Metrics
from tests.support.processes import Replica

NAME = "docs/http-api.md"
PAGE = pages.page(NAME)
INSIDE = "/v1/spaces/{space_id}"
ADMIN = "/v1/admin/"
DOCUMENT = json.loads((sources.ROOT / "tests/contract/openapi.json").read_text())
HEADING = re.compile(r"^### `([A-Z]+) (\S+)`(.*)$", re.MULTILINE)
VARIABLES = {
    "RUNSTATE_SPACE_ID": "main",
    "RUNSTATE_API_KEY": "rs_of_the_page_itself",
    "RUNSTATE_ADMIN_TOKEN": "an-admin-token-of-the-page",
}


def camel(path):
    return re.sub(r"_(\w)", lambda found: found[1].upper(), path)


OPERATIONS = {
    (method.upper(), camel(path.removeprefix(INSIDE)) or "/"): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
SECTIONS = {
    (head[1], head[2]): (head[3].strip(" ·"), re.split(r"(?m)^##", PAGE[head.end() :])[0])
    for head in HEADING.finditer(PAGE)
}


@pytest.fixture(scope="module")
def server(template):
    """A server on a database of its own: the page shows all that there is."""
    with (
        template.clone() as url,
        Replica(
            url,
            BOOTSTRAP_SPACE_ID=VARIABLES["RUNSTATE_SPACE_ID"],
            BOOTSTRAP_API_KEY=VARIABLES["RUNSTATE_API_KEY"],
            ADMIN_TOKEN=VARIABLES["RUNSTATE_ADMIN_TOKEN"],
        ) as replica,
    ):
        yield replica


@pytest.fixture(scope="module")
def walk(server, tmp_path_factory):
    """The blocks of the page with what they printed, run in order in one shell."""
    pairs = pages.shown(pages.blocks(PAGE))
    variables = VARIABLES | {"RUNSTATE_BASE_URL": server.url}
    return pairs, pages.run_blocks([sh.text for sh, _ in pairs], tmp_path_factory.mktemp("walk"), variables)


def test_every_route_has_its_section_and_every_section_its_route():
    assert SECTIONS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("route", SECTIONS, ids=" ".join)
def test_a_section_names_every_field_and_parameter_and_the_permission(route):
    operation = OPERATIONS[route]
    permission, text = SECTIONS[route]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    named = set(re.findall(r"`(\w+)`", prose))
    parameters = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"}
    assert parameters | fields(operation) <= named
    needed = operation.get("x-permissions") or operation.get("x-administrator", "runtime").split(" or ")
    assert re.findall(r"\w+", permission.replace("the admin token", "operator").replace(" or ", " ")) == (
        [] if needed == ["runtime"] else needed
    )


def fields(operation):
    """The names of the body's members, and of members of its members that have names."""
    body = operation.get("requestBody")
    return set(members(body["content"]["application/json"]["schema"])) if body else set()


def members(schema):
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name, member in schema.get("properties", {}).items():
        yield name
        yield from members(member)
    for part in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from members(part)


@pytest.mark.processes
def test_every_call_prints_what_the_page_shows(walk):
    pages.check_shown(NAME, *walk)


@pytest.mark.processes
def test_every_route_was_called_and_answered_with_success(walk, server):
    assert walk
    counted = [
        dict(labels) for name, labels in Metrics.of(server).samples if name == "runstate_requests_total"
    ]
    called = {
        (labels["method"], camel(labels["route"].removeprefix(INSIDE)))
        for labels in counted
        if labels["status"].startswith("2")
    }
    assert OPERATIONS.keys() - called <= {("GET", "/metrics")}, "it counts itself when it has answered"
