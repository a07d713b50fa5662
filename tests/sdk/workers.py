"""Workers in threads of the test: `with working(run): ...` serves until the block is left."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

import runstate
from runstate import ThreadSafeEvent

JOIN_S_MAX = 60


class Call:
    """A call in a thread; `outcome` is what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def outcome(self) -> Any:
        self._thread.join(JOIN_S_MAX)
        assert not self.alive, "the call has not returned"
        return self._error if self._error is not None else self._result

    @property
    def result(self) -> Any:
        found = self.outcome
        if self._error is not None:
            raise self._error
        return found

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._result = call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome
            self._error = error


class Ran(list):
    """A handler under test that remembers its inputs."""

    def __call__(self, given: Any) -> Any:
        self.append(given)
        return {"got": given}


class Gate:
    """A handler that is inside until it is let go."""

    def __init__(self):
        self.inside = threading.Semaphore(0)
        self.release = threading.Event()
        self.now = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, given):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.inside.release()
        assert self.release.wait(60)
        with self._lock:
            self.now -= 1
        return [given, runstate.context().attempt]

    def entered(self, count=1):
        for _ in range(count):
            assert self.inside.acquire(timeout=30)


@contextlib.contextmanager
def working(run: runstate.Run, **how: Any) -> Iterator[Call]:
    """The run's `serve` in a thread, stopped when the block is left; what it raises fails the test."""
    stop = ThreadSafeEvent()
    call = Call(lambda: run.serve(signal=stop, **how))
    try:
        yield call
    finally:
        stop.set()
        outcome = call.outcome
    assert outcome is None, outcome


def until_true(probe: Callable[[], Any], what: str = "it") -> Any:
    """The probe's first true answer. A condition is watched, no time slept."""
    ends_at = time.monotonic() + JOIN_S_MAX
    while not (answer := probe()):
        assert time.monotonic() < ends_at, f"{what} did not happen"
        time.sleep(0.02)
    return answer


def told(api: httpx.Client, path: str, **query: Any) -> Any:
    """What a GET answers."""
    return api.get(path, params=query).raise_for_status().json()


def open_polls(url: str) -> int:
    """How many long polls that server has open."""
    found = re.search(
        r"^runstate_open_polls (\d+)",
        httpx.get(f"{url}/metrics", timeout=10, trust_env=False).text,
        re.MULTILINE,
    )
    assert found
    return int(found[1])


def until_polls(url: str, count: int) -> None:
    """Waits until that server has so many long polls open, or more."""
    ends_at = time.monotonic() + JOIN_S_MAX
    while open_polls(url) < count:
        assert time.monotonic() < ends_at, f"never were {count} long polls open"
        time.sleep(0.02)
