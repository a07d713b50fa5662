"""One producer of the demo: it submits pages, then collects what came of each."""

from pages import fetch
from telling import NAME, orders, tell

import runstate


def main() -> None:
    for names, work_s in orders():
        jobs = {name: fetch.send({"name": name, "work_s": work_s}) for name in names}
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
