"""One producer of the demo: it submits pages, then collects what came of each."""

import time

from pages import fetch
from telling import NAME, orders, tell

import runstate


def submit(name: str, work_s: float) -> runstate.Job:
    """A server without its database refuses after a while. The same input is the same job: send it again."""
    while True:
        try:
            return fetch.send({"name": name, "work_s": work_s})
        except runstate.UnavailableError as error:
            tell("refused", error=type(error).__name__, message=str(error))
            time.sleep((error.retry_after_ms or 500) / 1000)


def main() -> None:
    for names, work_s in orders():
        jobs = {name: submit(name, work_s) for name in names}
        tell("submitted", jobs={name: job.id for name, job in jobs.items()})
        for name, job in jobs.items():
            try:
                tell("got", page=name, result=job.result())
            except runstate.TaskFailedError as error:
                tell("failed", page=name, message=str(error))
        tell("collected")


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
