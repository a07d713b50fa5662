"""Diagnostics: who holds what, who waits for what and why. Needs a key with the permission `observe`."""

from typing import Any

from runstate._transport import Space


class DiagnosticsAPI:
    """What goes on in a space. Refuses: AuthenticationError (FORBIDDEN) for a key without `observe`."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def run(self, scope_id: str) -> dict[str, Any]:
        """A scope and all below it: `{"rootScopeId", "scope", "workers", "waiting", "queues", "tasks",
        "timers", "barriers", "groups"}`. Refuses: NotFoundError."""
        return dict(await self._space.call("GET", "ops", "runs", scope_id))

    async def waits(self) -> dict[str, Any]:
        """Who waits for what in the space, `{"waits": [...]}`, each with "blockedBy", who holds it now;
        "cycle", the holders that wait for each other in a circle; and "why", a sentence for people."""
        return dict(await self._space.call("GET", "ops", "waits"))

    async def workers(self, scope_id: str) -> list[dict[str, Any]]:
        """Who holds something in a scope or below it: `{"holder", "session", "keys", "grants", "messages",
        "earliestLeaseExpiry"}` each. Refuses: NotFoundError."""
        return list((await self.run(scope_id))["workers"])

    async def summary(self) -> dict[str, Any]:
        """The space in numbers, for dashboards."""
        return dict(await self._space.call("GET", "ops", "summary"))
