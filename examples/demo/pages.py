"""The queue that the demo's workers and producers share: one definition, imported by both sides."""

import os
import time
from typing import Any

from telling import LEASE_S, NAME, tell

import runstate

ATTEMPTS = 3


@runstate.queue("pages", attempts=ATTEMPTS, lease=LEASE_S, concurrency=2)
def fetch(page: dict[str, Any]) -> dict[str, Any]:
    """Pretend to fetch a page; the one named `broken` cannot be fetched."""
    attempt = runstate.context().attempt
    tell("starts", page=page["name"], attempt=attempt)
    time.sleep(page["work_s"])
    if page["name"] == "broken":
        raise RuntimeError("no such page")
    tell("worked", page=page["name"], attempt=attempt)
    return {"page": page["name"], "by": NAME, "text": os.urandom(4).hex()}
