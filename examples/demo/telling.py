"""How a program of the demo reports to it: lines of JSON on its output, orders on its input."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

NAME = sys.argv[1]
LEASE_S = float(sys.argv[2])
_one_voice = threading.Lock()


def tell(what: str, **facts: object) -> None:
    """One thing that happened to this process; said by one thread at a time."""
    with _one_voice:
        print(json.dumps({"at": time.time(), "who": NAME, "what": what, **facts}), flush=True)


def orders() -> Iterator[Any]:
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
