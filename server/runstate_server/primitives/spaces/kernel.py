"""Finding keys, the bootstrap of a first space and key, and the verbs of their administrator.

An administrator's call carries no idempotency key of its own; one made here keeps the server's own repetition
harmless.
"""

import secrets
import uuid
from collections.abc import Sequence
from datetime import datetime

from runstate_server.foundation import ids
from runstate_server.kernel.call import Idempotency, Kernel, Reply

_BOOTSTRAP_LABEL = "bootstrap"


async def find_key(kernel: Kernel, key_hash: bytes) -> Reply:
    """The key with this hash. Refuses: UNAUTHENTICATED. Returns: what kernel.sql says of key_find."""
    return await kernel.call("key_find", key_hash, repeatable=True)


async def bootstrap(kernel: Kernel, *, space_id: str, api_key: str) -> Reply:
    """Create the space and the key, all permissions, if they are missing. Returns: {createdSpace,
    createdKey}."""
    return await kernel.call(
        "space_bootstrap",
        space_id,
        ids.new_id(),
        ids.key_hash(api_key),
        _BOOTSTRAP_LABEL,
        repeatable=True,
    )


def _once() -> Idempotency:
    return Idempotency("server-" + secrets.token_hex(16), b"")


async def create_space(kernel: Kernel, *, space_id: str, name: str, limits: str | None) -> Reply:
    """A new space; limits as JSON text. Refuses: CONFLICT. Returns: the view."""
    return await kernel.call("space_create", space_id, name, limits, idempotency=_once())


async def change_space(kernel: Kernel, *, space_id: str, suspended: bool | None, limits: str | None) -> Reply:
    """Suspend, resume, change limits; None leaves a thing as it is. Refuses: NOT_FOUND. Returns: the view."""
    return await kernel.call("space_change", space_id, suspended, limits, idempotency=_once())


async def create_key(
    kernel: Kernel,
    *,
    space_id: str,
    api_key: str,
    label: str,
    permissions: Sequence[str],
    expires_at: datetime | None,
    also_spaces: Sequence[str],
) -> Reply:
    """A new key of a space, covering others too. Refuses: NOT_FOUND (a space). Returns: the view, without the
    key."""
    return await kernel.call(
        "key_create",
        space_id,
        ids.new_id(),
        ids.key_hash(api_key),
        label,
        list(permissions),
        expires_at,
        list(also_spaces),
        idempotency=_once(),
    )


async def revoke_key(kernel: Kernel, *, space_id: str, key_id: uuid.UUID) -> Reply:
    """Revoke a key; repeating is a no-op. Refuses: NOT_FOUND. Returns: the view."""
    return await kernel.call("key_revoke", space_id, key_id, idempotency=_once())
