"""The operator's verbs behind `runstate space` and `runstate key`: the same kernel calls as the admin API,
made straight on the database."""

import argparse
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from runstate_server.foundation import bounds, db, ids
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.kernel import install
from runstate_server.kernel.call import Kernel, Reply
from runstate_server.primitives.spaces import kernel as spaces
from runstate_server.primitives.spaces import reads
from runstate_server.settings import Settings
from runstate_server.web import replies
from runstate_server.web.caller import Permission
from runstate_server.web.fields import is_space_id, parse_instant


async def operate(settings: Settings, options: argparse.Namespace) -> list[str]:
    """Carry out one verb. Returns: lines to print. Raises Refusal with a message for people."""
    verb: str = options.verb
    async with _opened(settings) as (kernel, engine):
        if verb == "epoch_raise":
            row = await kernel.step("epoch_raise")
            return [f"the epoch is {row[0]}: cursors and generations of before are behind it"]
        if verb == "space_create":
            reply = await spaces.create_space(
                kernel,
                space_id=_space(options.id),
                name=options.id if options.name is None else _name("--name", options.name),
                limits=None,
            )
            return [f"space {_facts(reply)['id']} is created"]
        if verb == "space_list":
            return [_space_line(s) async for s in _all(reads.spaces, "spaces", engine, kernel.schema)]
        if verb in ("space_suspend", "space_resume"):
            suspend = verb == "space_suspend"
            space_id = _space(options.id)
            reply = await spaces.change_space(kernel, space_id=space_id, suspended=suspend, limits=None)
            return [f"space {_facts(reply)['id']} is {'suspended' if suspend else 'served again'}"]
        return await _keys(kernel, engine, options)


async def _keys(kernel: Kernel, engine: AsyncEngine, options: argparse.Namespace) -> list[str]:
    """The verbs of `runstate key`."""
    if options.verb == "key_create":
        return await _create_key(kernel, options)
    if options.verb == "key_list":
        space_id = _space(options.space)
        return [_key_line(k) async for k in _all(reads.keys, "keys", engine, kernel.schema, space_id)]
    key_id = ids.parse_id(options.id)
    if key_id is None:
        raise Refusal(Code.NOT_FOUND, f"{options.id!r} is no id of a key; `runstate key list` shows them")
    _facts(await spaces.revoke_key(kernel, space_id=_space(options.space), key_id=key_id))
    return [f"key {key_id} is revoked"]


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Kernel, AsyncEngine]]:
    pool = await db.open_pool(settings.database_dsn, size=2, named_statements=settings.named_statements)
    engine = db.open_engine(settings.database_dsn, named_statements=settings.named_statements)
    schema = install.schema_name(test_clock=settings.test_clock)
    try:
        try:
            async with pool.acquire(timeout=bounds.connect_timeout_s) as connection:
                installed = await install.is_installed(connection, schema)
        except db.CONNECT_ERRORS as error:
            raise Refusal(Code.UNAVAILABLE, db.unreachable(error)) from error
        if not installed:
            raise Refusal(Code.UNAVAILABLE, "the database lacks this build; run `runstate migrate`")
        yield Kernel(pool, schema=schema, outage_wait_s=settings.outage_wait_s, committed=_nobody), engine
    finally:
        await engine.dispose()
        pool.terminate()


def _nobody(_topics: Sequence[str]) -> None:
    """No long poll sleeps in a command."""


async def _create_key(kernel: Kernel, options: argparse.Namespace) -> list[str]:
    api_key = ids.new_api_key()
    out: Path | None = options.out
    permissions = sorted({p.strip() for p in options.permissions.split(",")})
    unknown = [p for p in permissions if p not in list(Permission)]
    if unknown:
        raise Refusal(
            Code.VALIDATION_FAILED, f"unknown permission {unknown[0]!r}; there are {_permissions()}"
        )
    # The file first: a key that cannot be kept is not made.
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600) if out is not None else None
    try:
        facts = _facts(
            await spaces.create_key(
                kernel,
                space_id=_space(options.space),
                api_key=api_key,
                label=_name("--label", options.label),
                permissions=permissions,
                expires_at=_expiry(options.expires),
                also_spaces=[_space(s.strip()) for s in options.also.split(",") if s.strip()],
            )
        )
    except BaseException:
        _unmake(out)
        raise
    if file is None:
        return [f"key {facts['id']} is created; it is shown this once:", api_key]
    with os.fdopen(file, "w") as stream:
        stream.write(api_key + "\n")
    return [f"key {facts['id']} is created and written to {out}"]


def _unmake(out: Path | None) -> None:
    if out is not None:
        out.unlink(missing_ok=True)


def _permissions() -> str:
    return ", ".join(p.value for p in Permission)


def _expiry(text: str | None) -> datetime | None:
    try:
        return parse_instant(text) if text is not None else None
    except ValueError as error:
        raise Refusal(Code.VALIDATION_FAILED, f"--expires {error}") from None


def _space(text: str) -> str:
    if not is_space_id(text):
        raise Refusal(Code.VALIDATION_FAILED, f"{text!r} is no id of a space: 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def _name(option: str, text: str) -> str:
    if not 1 <= len(text) <= bounds.name_chars_max:
        raise Refusal(
            Code.VALIDATION_FAILED,
            f"{option} must have 1 to {bounds.name_chars_max} characters, not {len(text)}",
        )
    if not text.isprintable():
        raise Refusal(Code.VALIDATION_FAILED, f"{option} must be printable text")
    return text


def _facts(reply: Reply) -> dict[str, Any]:
    if reply.code is not None:
        raise replies.refusal_of(reply)
    return reply.facts


async def _all(read: Any, name: str, *args: Any) -> AsyncIterator[dict[str, Any]]:
    """Every row of a paged listing."""
    cursor: str | None = None
    while True:
        page = await read(*args, cursor=cursor, limit=bounds.page_max)
        for row in page[name]:
            yield row
        cursor = page["nextCursor"]
        if cursor is None:
            return


def _space_line(space: dict[str, Any]) -> str:
    state = "suspended" if space["suspended"] else "active"
    return f"{space['id']}  {state}  {space['createdAt']}  {space['name']}"


def _key_line(key: dict[str, Any]) -> str:
    state = "revoked" if key["revokedAt"] else "active"
    ends = f"expires {key['expiresAt']}" if key["expiresAt"] else "never expires"
    used = f"used {key['lastUsedAt']}" if key["lastUsedAt"] else "never used"
    return f"{key['id']}  {state}  {ends}  {used}  {','.join(key['permissions'])}  {key['label']}"
