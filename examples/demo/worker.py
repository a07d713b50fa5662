"""One worker of the demo: it serves the queue until it is told to stop, and hands back what it cannot
finish."""

import threading

import pages  # noqa: F401  defines the queue
from telling import NAME, orders, tell

import runstate


def main() -> None:
    threading.Thread(target=lambda: next(orders()), daemon=True).start()  # to end when the demo does
    runstate.serve()
    tell("left")


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
