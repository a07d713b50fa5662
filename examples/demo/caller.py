"""One caller of the demo, a program of its own: it asks for work that is done once, and tells what it sees.

`research` and `main` are what a program of yours would have; the rest reports to the demo over pipes.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import runstate

NAME = sys.argv[1]
LEASE_S = float(sys.argv[2])


@runstate.once(lease=LEASE_S, key=lambda company, _work_s: company)
def research(company: str, work_s: float) -> dict[str, str]:
    """Pretend to work for a while. Real work of some length would look at `signal` and stop early."""
    context = runstate.context()
    tell("runs", attempt=context.attempt)
    for _ in range(round(work_s / 0.05)):
        time.sleep(0.05)
    report = {"company": company, "by": NAME, "page": os.urandom(4).hex()}
    tell("worked", report=report, signal=context.signal.is_set())
    return report


def main() -> None:
    for company, work_s in orders():
        tell("asks")
        try:
            tell("got", report=research(company, work_s))
        except runstate.RunstateError as error:
            tell("refused", error=type(error).__name__, message=str(error))


def tell(what: str, **facts: object) -> None:
    print(json.dumps({"at": time.time(), "who": NAME, "what": what, **facts}), flush=True)


def orders() -> Iterator[tuple[str, float]]:
    """What the demo asks for, line by line. When the demo ends, however it ends, so does this process."""
    lines: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    tell("ready")
    while True:
        yield lines.get()


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
