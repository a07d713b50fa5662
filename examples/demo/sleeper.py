"""One sleeper of the demo: it sleeps under a name that all sleepers share, and tells when it is awake."""

import threading
import time

from telling import NAME, orders, tell

import runstate

SLEEP_S = 12.0


def main() -> None:
    threading.Thread(target=lambda: next(orders()), daemon=True).start()  # to end when the demo does
    began = time.monotonic()
    tell("sleeps")
    runstate.sleep("cool down", SLEEP_S)
    tell("awake", slept_s=time.monotonic() - began)


if __name__ == "__main__":
    runstate.configure(worker=NAME)
    main()
