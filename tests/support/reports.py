"""What reports tell, and callers that wait meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.support import races
from tests.support.builders import Call, ok
from tests.support.permits import Pool

WAIT_MS = 25_000


def told(client: httpx.Client) -> list[dict[str, Any]]:
    """All waits of the space."""
    return list(ok(client.get("/ops/waits"))["waits"])


def in_run(client: httpx.Client, run: str) -> dict[str, Any]:
    """The report on a run."""
    return dict(ok(client.get(f"/ops/runs/{run}")))


def blockers(wait: dict[str, Any]) -> list[tuple[str, str]]:
    """Holder and session of those who hold what is waited for."""
    return [(b["holder"], b["session"]) for b in wait["blockedBy"]]


def lent(client: httpx.Client, browsers: Pool, units: int = 1, **how: Any) -> dict[str, Any]:
    """A grant."""
    return dict(ok(browsers.acquire(units, **how).send(client)))


@contextlib.asynccontextmanager
async def asleep(client: httpx.AsyncClient, call: Call) -> AsyncIterator[None]:
    """Somebody waits while the block runs."""
    asking = asyncio.create_task(call.send(client))
    yield
    assert not asking.done(), "it was to wait"
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def until_told(client: httpx.Client, count: int) -> list[dict[str, Any]]:
    """All waits of the space, once there are that many."""
    found: list[dict[str, Any]] = []

    async def seen() -> bool:
        found[:] = await asyncio.to_thread(told, client)
        return len(found) == count

    await races.until(seen, what=f"{count} waits")
    return found
