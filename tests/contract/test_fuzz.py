"""Whatever the document allows is not refused for its shape, whatever it forbids is refused, and every answer
is one that it describes: by schemathesis, always the same examples.
"""

import copy

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import GenerationConfig, SchemathesisConfig
from schemathesis.specs.openapi import checks

from tests.promises.everyone import Everyone
from tests.promises.things import everything, kind_of
from tests.support import spaces
from tests.support.document import DOCUMENT, routes

EXAMPLES = 12
FUZZ = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.positive_data_acceptance,
    checks.unsupported_method,
    checks.allow_header_conformance,
]
ENDLESS = {"GET /events/stream"}
ROUTES = [route for route in routes() if str(route) not in ENDLESS]


@pytest.fixture(scope="module")
def fuzzed(server, database_url):
    """The document about one space, and who calls there."""
    space = spaces.create(database_url)
    document = copy.deepcopy(DOCUMENT)
    for path in [p for p in document["paths"] if "{space_id}" in p]:
        item = document["paths"].pop(path)
        for operation in item.values():
            operation["parameters"] = [p for p in operation["parameters"] if p["name"] != "space_id"]
        document["paths"][path.replace("{space_id}", space.id)] = item
    config = SchemathesisConfig.from_dict({"generation": {"deterministic": True}})
    schema = schemathesis.openapi.from_dict(document, config=config)
    with (
        space.client(server.url) as api,
        httpx.Client(base_url=server.url, timeout=20, trust_env=False) as door,
    ):
        everyone = Everyone(space, api, door)
        yield schema, everyone, everything(api, space, door).ids


def whole(value):
    """JSON Schema takes 5.0 for an integer; the wire does not."""
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def settled(route, case, ids):
    """A case that the document allows, about things that exist: it cannot say which cursors and ids those
    are, how many units they have, and how far ahead a time is."""
    case.query.pop("cursor", None)
    if isinstance(case.body, dict):
        case.body = whole(case.body)
        settle_numbers(route, case.body)
    for place in route.places:
        if place.name in {"waitMs", "waitSeconds"}:
            {"query": case.query, "body": case.body}[place.where][place.name] = 0
    for place in route.ids:
        container = {"path": case.path_parameters, "query": case.query, "body": case.body}[place.where]
        for part in place.at[:-1]:
            container = container.get(part) if isinstance(container, dict) else container and container[part]
        if isinstance(container, dict) and container.get(place.at[-1]) is not None:
            container[place.at[-1]] = ids[kind_of(place.name)]
    return case


def settle_numbers(route, body):
    """Units that there are, and times that can be."""
    if route.path.endswith(("/acquire", "/wait", "/consume")) and "units" in body:
        body["units"] = 1
    if route.path.endswith("/task-groups"):  # which conditions have a threshold
        body["threshold"] = 1 if body.get("condition") == "N_ACCEPTED" else None
    if isinstance(body.get("at"), str):
        body["at"] = "2001-01-01T00:00:00Z"
    for task in body.get("tasks", [body]):
        named_once(task.get("requirements") or {})


def named_once(requirements):
    """Each name once in its list, and no more units than there may be: neither of which a schema can say."""
    for kind, needs in requirements.items():
        if isinstance(needs, list):
            requirements[kind] = list({need["name"]: need for need in needs}.values())
            for need in requirements[kind]:
                need.update({"units": 1} if "units" in need else {})


def cases(operation, schema):
    """Of the document's bounds, one by one."""
    return schema.iter_coverage_cases(
        operation,
        generation_modes=list(GenerationMode),
        generation_config=GenerationConfig(deterministic=True),
    )


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_an_answer_is_as_the_document_says_whatever_is_sent(fuzzed, server, route):
    schema, everyone, ids = fuzzed
    operation = schema[route.path.replace("{space_id}", everyone.space.id)][route.method.lower()]
    headers = everyone.rights(route)

    def send(case):
        if case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE:
            case = settled(route, case, ids)
        case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS, timeout=20)

    for case in cases(operation, schema):
        send(case)
    for mode in GenerationMode:
        try:
            FUZZ(given(operation.as_strategy(generation_mode=mode))(send))()
        except Unsatisfiable:
            assert not route.places, "nothing of it could be wrong"
