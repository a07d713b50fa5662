"""/v1/admin: spaces and keys, for the person who runs the server; keys also for a space's own
administrator."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.primitives.spaces import kernel, reads, schemas
from runstate_server.web import admin, exchange, replies
from runstate_server.web.fields import PageLimit, is_space_id

router = APIRouter(prefix="/v1/admin/spaces", tags=["admin"], route_class=admin.AdminRoute)


def _space(raw: str) -> str:
    if not is_space_id(raw):
        raise Refusal(Code.NOT_FOUND, f"space {raw[:80]!r} does not exist")
    return raw


def _limits(body: schemas.Limits | None) -> str | None:
    return body.model_dump_json(by_alias=True, exclude_none=True) if body is not None else None


@router.post(
    "",
    status_code=201,
    response_model=schemas.SpaceView,
    openapi_extra=admin.OPERATOR,
    responses=replies.documented(Code.CONFLICT),
)
async def create_space(request: Request, body: schemas.SpaceIn) -> Response:
    """A new space."""
    reply = await kernel.create_space(
        request.app.state.floor.kernel,
        space_id=body.id or "sp-" + secrets.token_hex(8),
        name=body.name,
        limits=_limits(body.limits),
    )
    return replies.answer(reply)


@router.get(
    "", response_model=schemas.SpacePage, openapi_extra=admin.OPERATOR, responses=replies.documented()
)
async def list_spaces(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
) -> Response:
    """Spaces, by id."""
    floor = request.app.state.floor

    async def read() -> dict[str, Any]:
        return await reads.spaces(floor.engine, floor.kernel.schema, cursor=cursor, limit=limit)

    return replies.plain(await floor.kernel.patiently(read))


@router.patch(
    "/{space_id}",
    response_model=schemas.SpaceView,
    openapi_extra=admin.OPERATOR,
    responses=replies.documented(Code.NOT_FOUND),
)
async def change_space(request: Request, space_id: str, body: schemas.SpacePatch) -> Response:
    """Suspend or resume a space, or replace its limits; effective on every replica within 5 s."""
    reply = await kernel.change_space(
        request.app.state.floor.kernel,
        space_id=_space(space_id),
        suspended=body.suspended,
        limits=_limits(body.limits),
    )
    return replies.answer(reply)


@router.post(
    "/{space_id}/keys",
    status_code=201,
    response_model=schemas.NewKeyView,
    openapi_extra=admin.SPACE_ADMIN,
    responses=replies.documented(Code.NOT_FOUND),
)
async def create_key(request: Request, space_id: str, body: schemas.KeyIn) -> Response:
    """A new key; it is shown in this answer and never again."""
    if body.also_spaces is not None:
        admin.administrator(request).need_operator("give a key further spaces (alsoSpaces)")
    api_key = ids.new_api_key()
    reply = await kernel.create_key(
        request.app.state.floor.kernel,
        space_id=_space(space_id),
        api_key=api_key,
        label=body.label,
        permissions=sorted(set(body.permissions)),
        expires_at=body.expires_at,
        also_spaces=body.also_spaces or (),
    )
    if reply.code is None:
        reply.facts["key"] = api_key
    return replies.answer(reply)


@router.get(
    "/{space_id}/keys",
    response_model=schemas.KeyPage,
    openapi_extra=admin.SPACE_ADMIN,
    responses=replies.documented(Code.NOT_FOUND),
)
async def list_keys(
    request: Request,
    space_id: str,
    cursor: Annotated[str | None, Query(max_length=bounds.key_chars_max)] = None,
    limit: Annotated[PageLimit, Query()] = bounds.page_default,
) -> Response:
    """The keys of a space, oldest first, never the keys themselves."""
    floor = request.app.state.floor
    space = _space(space_id)

    async def read() -> dict[str, Any]:
        return await reads.keys(floor.engine, floor.kernel.schema, space, cursor=cursor, limit=limit)

    return replies.plain(await floor.kernel.patiently(read))


@router.delete(
    "/{space_id}/keys/{key_id}",
    response_model=schemas.KeyView,
    openapi_extra=admin.SPACE_ADMIN,
    responses=replies.documented(Code.NOT_FOUND),
)
async def revoke_key(request: Request, space_id: str, key_id: str) -> Response:
    """Revoke a key; effective on every replica within 5 s. Repeating is a no-op."""
    reply = await kernel.revoke_key(
        request.app.state.floor.kernel,
        space_id=_space(space_id),
        key_id=exchange.known_id(key_id, "key"),
    )
    return replies.answer(reply)
