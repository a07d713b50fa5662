"""One reviewer of the demo: it serves the queue of reviews until the demo ends."""

import threading

import reviews  # noqa: F401  defines the queue
from telling import NAME, orders

import runstate


def main() -> None:
    threading.Thread(target=lambda: next(orders()), daemon=True).start()  # to end when the demo does
    runstate.serve()


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
