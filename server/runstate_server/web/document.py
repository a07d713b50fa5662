"""The OpenAPI document and its page, which needs nothing from outside: a distribution brings its assets."""

import dataclasses
import importlib.util
import json
import re
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from runstate_server.foundation import bounds
from runstate_server.web import fields
from runstate_server.web.bodies import UserJson
from runstate_server.web.schemas import Error

_ASSETS: Final = "/docs/assets"
_METHODS: Final = ("get", "put", "post", "patch", "delete")
# Of a path: what it is, its most characters, its pattern.
_ID: Final = ("An id that this server gave out.", bounds.key_chars_max, fields.NO_NUL)
_PARAMETERS: Final[dict[str, tuple[str, int, str]]] = {
    "space_id": ("The space: 1 to 64 of A-Z a-z 0-9 . _ -", bounds.space_id_chars_max, fields.SPACE_ID),
    "key": ("The key, percent-encoded; it may contain `/`.", bounds.key_chars_max, fields.NO_NUL),
    "name": ("The name, percent-encoded; it may contain `/`.", bounds.name_chars_max, fields.NO_NUL),
}
_DESCRIPTION: Final = """Coordination for programs that run in many places.

Every call below `/v1` carries `Authorization: Bearer <API key>`. Every non-GET call of a space may carry
`Idempotency-Key`, and is then safe to repeat. Every refusal has one shape, the schema `Error`."""
_ABSENT: Final = dataclasses.asdict(UserJson())  # as pydantic shows user JSON that was left out: it is null
_MODULE: Final = re.compile(r"runstate_server__primitives__(\w+?)__schemas__")


def add_document(app: FastAPI) -> None:
    """Give the app /openapi.json and /docs. Call it after all routes are added."""
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    app.mount(_ASSETS, StaticFiles(directory=_assets()), name="docs-assets")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title=f"{app.title} API",
            swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{_ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{_ASSETS}/favicon.png",
        )


def _assets() -> Path:
    """Where Swagger UI's files lie; the package that carries them is not imported."""
    spec = importlib.util.find_spec("fastapi_offline")
    if spec is None or spec.origin is None:
        raise RuntimeError("the distribution fastapi-offline is not installed")
    return Path(spec.origin).parent / "static"


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=_DESCRIPTION,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        error = Error.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
        schemas |= error.pop("$defs")
        schemas["Error"] = error
        for schema in schemas.values():
            for field in schema.get("properties", {}).values():
                if field.get("default") == _ABSENT:
                    field["default"] = None
        components["securitySchemes"] = {"apiKey": {"type": "http", "scheme": "bearer"}}
        for path, item in document["paths"].items():
            for method in _METHODS:
                if method in item:
                    _complete(path, method, item[method], schemas)
        app.openapi_schema = json.loads(_MODULE.sub(_room_word, json.dumps(document)))
    return app.openapi_schema


def _room_word(found: re.Match[str]) -> str:
    """Rooms name their schemas alike (AcquireIn): the document puts the room's word before the name."""
    return "".join(part.capitalize() for part in found[1].split("_"))


def operation_id(route: APIRoute) -> str:
    """Room and verb, such as once_acquire."""
    return f"{route.tags[0] if route.tags else 'probes'}_{route.name}"


def _complete(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """What FastAPI cannot know: our own 400 instead of its 422, the two keys, raw path parameters."""
    operation.get("responses", {}).pop("422", None)
    if not path.startswith("/v1/"):
        return
    operation["security"] = [{"apiKey": []}]
    if "requestBody" in operation:
        reference: str = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        required = schemas[reference.rpartition("/")[2]].get("required")
        operation["requestBody"]["required"] = bool(required)  # an empty body is {} where nothing is required
    parameters = [p for p in operation.get("parameters", ()) if p["in"] != "path"]
    for part in path.split("/"):
        if part.startswith("{"):
            name = part[1:-1]
            text, chars_max, pattern = _PARAMETERS.get(name, _ID)
            schema = {"type": "string", "minLength": 1, "maxLength": chars_max, "pattern": pattern}
            parameters.append(
                {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
            )
    if method != "get" and not path.startswith("/v1/admin/"):
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "The first outcome under a key that changed something is told again for 24 h.",
                "schema": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": bounds.idempotency_key_chars_max,
                },
            }
        )
    operation["parameters"] = parameters
