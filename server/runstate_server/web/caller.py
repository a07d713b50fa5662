"""Who calls: the key of the request, the spaces it covers, its permissions; remembered for a few seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runstate_server.foundation import bounds, ids
from runstate_server.foundation.errors import Code, Refusal


class Permission(StrEnum):
    """What a key may do; http-api.md, section 1, says which calls each one opens."""

    RUNTIME = "runtime"
    OBSERVE = "observe"
    RESOURCE_CONFIG = "resource_config"
    SPACE_ADMIN = "space_admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """One key in one space."""

    key_id: str
    label: str
    space_id: str
    permissions: frozenset[str]

    def may(self, permission: Permission) -> bool:
        """Whether the key has this permission."""
        return permission.value in self.permissions

    def need(self, *permissions: Permission) -> None:
        """Refuses: FORBIDDEN, naming what is missing, when the key has none of these permissions."""
        if not any(self.may(p) for p in permissions):
            named = " or ".join(repr(p.value) for p in permissions)
            raise Refusal(Code.FORBIDDEN, f"this key lacks the permission {named}")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key as the database has it: the spaces it covers, each with whether it is suspended."""

    key_id: str
    label: str
    permissions: frozenset[str]
    spaces: dict[str, bool]
    expires_in_s: float | None


# hash of a key → the key, or the refusal that it gets
FindKey = Callable[[bytes], Awaitable[KnownKey]]


class KeyRing:
    """Finds callers. What was read of a key is trusted for `key_trust_s`, so a revocation is effective within
    5 s.

    Only keys that exist are remembered: unknown ones cannot fill the memory. While the database is away a
    request waits `patience_s` for its key, also one that joins a look which is about to give up.
    """

    def __init__(self, find: FindKey, *, patience_s: float) -> None:
        self._find = find
        self._patience_s = patience_s
        self._known: dict[bytes, tuple[float, KnownKey]] = {}
        self._finding: dict[bytes, asyncio.Task[KnownKey]] = {}

    async def caller(self, authorization: str | None, space_id: str) -> Caller:
        """The caller behind an Authorization header in a space.
        Refuses: UNAUTHENTICATED; FORBIDDEN, alike for a space not covered and one that does not exist;
        SPACE_SUSPENDED."""
        key = await self._key(authorization)
        suspended = key.spaces.get(space_id)
        if suspended is None:
            raise Refusal(
                Code.FORBIDDEN, "this key does not cover the space of the path, or there is no such space"
            )
        if suspended:
            raise Refusal(Code.SPACE_SUSPENDED, f"space {space_id} is suspended")
        return Caller(key.key_id, key.label, space_id, key.permissions)

    async def known(self, authorization: str | None) -> KnownKey:
        """The key alone, for paths outside any space. Refuses: UNAUTHENTICATED."""
        return await self._key(authorization)

    async def _key(self, authorization: str | None) -> KnownKey:
        digest = ids.key_hash(bearer(authorization))
        found = self._known.get(digest)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        until = time.monotonic() + self._patience_s
        refused: Refusal | None = None
        while True:
            task = self._finding.get(digest)
            ours = task is None
            if task is None:
                task = asyncio.create_task(self._look(digest))
                self._finding[digest] = task
                task.add_done_callback(lambda _: self._finding.pop(digest, None))
            try:
                async with asyncio.timeout(None if refused is None else until - time.monotonic()):
                    return await asyncio.shield(task)
            except TimeoutError:
                assert refused is not None  # noqa: S101  the first wait has no bound but the look's own
                raise refused from None
            except Refusal as refusal:
                # The look of another request began before this one came, and so gave up before it has to.
                if ours or refusal.code is not Code.UNAVAILABLE or time.monotonic() > until:
                    raise
                refused = refusal

    async def _look(self, digest: bytes) -> KnownKey:
        asked_at = time.monotonic()
        try:
            key = await self._find(digest)
        except Refusal:
            self._known.pop(digest, None)
            raise
        trust_s = bounds.key_trust_s
        if key.expires_in_s is not None:
            trust_s = min(trust_s, key.expires_in_s)
        if len(self._known) >= bounds.keys_remembered_max:
            self._known.clear()
        self._known[digest] = (asked_at + trust_s, key)
        return key


def bearer(authorization: str | None) -> str:
    """The secret of an Authorization header. Refuses: UNAUTHENTICATED."""
    scheme, _, secret = (authorization or "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Refusal(Code.UNAUTHENTICATED, "send the key as: Authorization: Bearer <key>")
    return secret


def known_key(facts: dict[str, Any]) -> KnownKey:
    """The key from the facts of kernel function key_find."""
    return KnownKey(
        facts["id"],
        facts["label"],
        frozenset(facts["permissions"]),
        {s["id"]: s["suspended"] for s in facts["spaces"]},
        facts["expiresInSeconds"],
    )
