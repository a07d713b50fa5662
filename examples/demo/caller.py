"""One caller of the demo, a program of its own: it asks for work that is done once, and tells what it sees.

`research` and `main` are what a program of yours would have; the rest reports to the demo over pipes.
"""

import os
import time

from telling import LEASE_S, NAME, orders, tell

import runstate


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


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
