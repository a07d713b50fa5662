"""The queue that the demo's reviewers and its editor share."""

import time
from typing import Any

from telling import LEASE_S, NAME, tell

import runstate


@runstate.queue("review", lease=LEASE_S, key=lambda draft: str(draft["n"]))
def review(draft: dict[str, Any]) -> dict[str, Any]:
    """Pretend to review a draft for a while, and stop when nobody wants the review any more."""
    context = runstate.context()
    tell("reads", draft=draft["n"], attempt=context.attempt)
    if context.signal.wait(draft["work_s"]):
        tell("drops", draft=draft["n"], why=type(context.signal.reason).__name__)
    tell("wrote", draft=draft["n"])
    return {"draft": draft["n"], "by": NAME, "score": draft["score"], "at": time.time()}
