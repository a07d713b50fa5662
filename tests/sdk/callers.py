"""Callers of decorated functions, in threads, and what becomes of them."""

import contextlib
import dataclasses
import threading

from tests.support.proxy import RoundRobin


@dataclasses.dataclass
class Company:
    name: str


class Ran(list):
    """A function under test that remembers its calls."""

    def __call__(self, *args):
        self.append(args)
        return {"args": list(args)}


def together(count, call):
    """Results or errors of that many calls from as many threads."""
    threads = [in_thread(call) for _ in range(count)]
    for thread in threads:
        thread.join(60)
    return [thread.outcome for thread in threads]


def in_thread(call):
    """Starts `call` in a thread; what it returns ends in .outcome."""
    thread = threading.Thread(target=lambda: setattr(thread, "outcome", outcome(call)), daemon=True)
    thread.start()
    return thread


def outcome(call):
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - that is the outcome
        return error


@contextlib.contextmanager
def cut_off_owner(here, function, name="work"):
    """A caller behind a wire that can be cut: yields the wire and the caller's thread."""
    port = int(here.url.rpartition(":")[2])
    with RoundRobin([port]) as wire:
        thread = in_thread(here.run(base_url=wire.url).once(name=name, lease=1)(function))
        try:
            yield wire, thread
        finally:
            wire.blackhole(False)
            thread.join(60)
