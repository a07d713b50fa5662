"""One process of four workers that share browsers, searches and money with all the others."""

import threading
import time
from typing import Any

from telling import LEASE_S, NAME, orders, tell

import runstate


@runstate.queue(
    "render",
    lease=LEASE_S,
    concurrency=4,
    slots="browser",
    limit="search-api",
    budget={"name": "model-usd", "reserve": 0.40, "cost": lambda result: result["usd"]},
)
def render(page: dict[str, Any]) -> dict[str, Any]:
    """Pretend to render a page in a browser, for 17 cents."""
    context = runstate.context()
    tell("opens", page=page["name"], attempt=context.attempt if context else 0)
    time.sleep(page["work_s"])
    tell("closes", page=page["name"])
    return {"page": page["name"], "by": NAME, "usd": 0.17}


def main() -> None:
    threading.Thread(target=lambda: next(orders()), daemon=True).start()  # to end when the demo does
    runstate.serve()


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
