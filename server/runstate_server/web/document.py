"""The OpenAPI document: FastAPI's own, put right where this server's wire is not FastAPI's default.

Every refusal is the one envelope (422 never leaves), every /v1 call wants a key, every change takes an
Idempotency-Key, and a body of which nothing is required may be left out.
"""

import json
import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from runstate_server.foundation import bounds
from runstate_server.web.schemas import Error

_INSIDE = "/v1/spaces/{space_id}"
_OF_A_ROOM = re.compile(r"runstate_server__primitives__(\w+?)__schemas__(\w+)")
_REF = "#/components/schemas/"
_SPACE = {
    "name": "space_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": bounds.space_id_chars_max},
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Kept for 24 h with the first outcome that changed something, which is then told again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": bounds.idempotency_key_chars_max},
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of all routes of the app."""
    made = get_openapi(
        title=app.title, version=app.version, routes=app.routes, separate_input_output_schemas=False
    )
    document: dict[str, Any] = json.loads(_OF_A_ROOM.sub(_short, json.dumps(made)))
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    error = Error.model_json_schema(ref_template=_REF + "{model}")
    schemas |= error.pop("$defs") | {"Error": error}
    document["components"]["securitySchemes"] = {"apiKey": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            if path.startswith(_INSIDE):
                _inside(operation, method, schemas)
    return document


def _inside(operation: dict[str, Any], method: str, schemas: dict[str, Any]) -> None:
    """What is common to all calls inside a space."""
    operation["security"] = [{"apiKey": []}]
    parameters = [_SPACE, *operation.get("parameters", [])]
    operation["parameters"] = parameters if method == "get" else [*parameters, _KEY]
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        operation["requestBody"]["required"] = bool(schemas[reference.removeprefix(_REF)].get("required"))


def _short(name: re.Match[str]) -> str:
    """Names that two rooms have in common are told apart by their room: ScopesState, OnceState."""
    return name[1].title().replace("_", "") + name[2]
