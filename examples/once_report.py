"""Many processes ask for the same report; one writes it. Start a few of them at the same time:

python examples/once_report.py acme
"""

import json
import os
import sys
import time

import runstate


@runstate.once(attempts=3, lease="10s")
def write_report(company: str) -> dict:
    signal = runstate.context().signal
    chapters = []
    for chapter in ("people", "money", "news"):
        signal.raise_if_set()  # the lease is lost or the run stopped: go no further
        print(f"process {os.getpid()} writes about {chapter}", file=sys.stderr, flush=True)
        time.sleep(0.5)
        chapters.append(f"{chapter} of {company}")
    return {"company": company, "chapters": chapters}


if __name__ == "__main__":
    try:
        print(json.dumps(write_report(sys.argv[1])))
    except runstate.OnceFailedError as error:
        sys.exit(f"given up after {error.attempts} attempts: {error.message}")
    except runstate.StoppedError as error:
        sys.exit(f"the run is over: {error.message}")
