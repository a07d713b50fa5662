"""Kernel reply → response. Every body that leaves the server is made here, error envelopes included."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from runstate_server.foundation.errors import TABLE, Code, Refusal
from runstate_server.kernel.call import Reply

_JSON = "application/json"
_PLACE = re.compile(r'\{"\$payload":(\d+)\}')


def dumps(value: Any) -> str:
    """Compact JSON, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def splice(facts: dict[str, Any], payloads: Sequence[str]) -> str:
    """The body with user payloads, their text untouched, where the facts say {"$payload": n}.
    No user text can look like such a place: inside a JSON string its quotes would be escaped."""
    body = dumps(facts)
    return _PLACE.sub(lambda place: payloads[int(place[1])], body) if payloads else body


def refusal_of(reply: Reply) -> Refusal:
    """The error that a kernel's refusal is."""
    if reply.code is None:
        raise AssertionError("a success is no refusal")
    return Refusal(Code(reply.code), str(reply.facts["message"]), reply.facts.get("retryAfter"))


def answer(reply: Reply) -> Response:
    """The response to a kernel reply. Refusals are raised."""
    if reply.code is not None:
        raise refusal_of(reply)
    if reply.status == HTTPStatus.NO_CONTENT:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    headers = {"Idempotent-Replayed": "true"} if reply.replayed else None
    body = splice(reply.facts, reply.payloads)
    return Response(body.encode(), status_code=reply.status or 200, media_type=_JSON, headers=headers)


def plain(value: Any) -> Response:
    """A response made from Python values."""
    return text(dumps(value))


def text(body: str) -> Response:
    """A response made from JSON text."""
    return Response(body.encode(), media_type=_JSON)


def error(refusal: Refusal, request_id: str) -> Response:
    """The error envelope. `Retry-After` in seconds when a guess better than "soon" is known."""
    headers = dict(refusal.headers)
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = f"{refusal.retry_after_s:.3f}".rstrip("0").rstrip(".")
    code = refusal.code.value
    body = {"error": {"code": code, "message": refusal.message, "requestId": request_id}}
    return Response(dumps(body).encode("utf-8", "replace"), refusal.http_status, headers, _JSON)


def documented(*codes: Code, empty: str | None = None) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for the OpenAPI document: the codes it may refuse with, by status; `empty`
    describes a 204."""
    always = (Code.VALIDATION_FAILED, Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.UNAVAILABLE)
    by_status: dict[int | str, dict[str, Any]] = {}
    if empty is not None:
        by_status[int(HTTPStatus.NO_CONTENT)] = {"description": empty}
    for code in dict.fromkeys((*always, *codes)):
        row = TABLE[code]
        text = by_status.get(row.status, {}).get("description")
        line = f"`{code.value}`: {row.meaning}"
        by_status[row.status] = {
            "description": f"{text}; {line}" if text else line,
            "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return by_status


def has_content(reply: Reply) -> bool:
    """Whether a take brought something, or a refusal: the end of its long poll."""
    return reply.status != HTTPStatus.NO_CONTENT
