"""Wake-ups: topics, the sleepers of this process, the coalesced NOTIFY to other replicas, the listener, the
slow tick.

Subscribe, look, sleep; after any wake look again. A wake-up may be lost (a replica dies, a connection hangs):
the slow tick finds in the journal what was missed, one statement for all sleepers of the replica.
"""

import asyncio
import contextlib
import logging
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from runstate_server.foundation import bounds, db

CHANNEL = "runstate"
# Before topics joined by |: one of their sleepers suffices, for there is one thing to be had. One that was
# woken and leaves without looking passes it on, and so does one that took something: there may be more.
ONE = "+"
log = logging.getLogger("runstate.wakeups")

# (spaces, numbers last seen) → rows (space_id, num, topics or None)
Tick = Callable[[list[str], list[int], int], Awaitable[list[Any]]]


class Sleeper:
    """One long poll: set when any of its topics was woken since the last look."""

    __slots__ = ("_looking", "event", "space_id", "topics")

    def __init__(self, space_id: str, topics: tuple[str, ...]) -> None:
        self.space_id = space_id
        self.topics = topics
        self.event = asyncio.Event()
        self._looking = False

    def looks(self) -> None:
        """It answers the wake, if there was one, by looking."""
        self._looking = self.event.is_set()
        self.event.clear()

    def saw_nothing(self) -> None:
        """There was nothing to be had."""
        self._looking = False

    @property
    def owes(self) -> bool:
        """Whether it was woken and has not found that there is nothing: another may have what there is."""
        return self._looking or self.event.is_set()


class Bus:
    """The bus of one process. `wake` is called after a commit and returns at once."""

    def __init__(self, dsn: str | None, *, tick: Tick, tick_s: float) -> None:
        self._dsn = dsn
        self._tick = tick
        self._tick_s = tick_s
        self._origin = uuid.uuid4().hex[:12]
        self._sleepers: defaultdict[str, dict[Sleeper, None]] = defaultdict(dict)  # longest asleep first
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._spaces: dict[str, int] = {}  # sleepers per space
        self._seen: dict[str, int] = {}  # journal number per space at the last tick
        self._outgoing: set[str] = set()
        self._outgoing_set = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.replicas = 1
        self.listening = False
        self.woken_by = {"commit": 0, "notify": 0, "tick": 0, "alarm": 0, "reconnect": 0}

    @contextlib.contextmanager
    def subscribe(self, space_id: str, topics: Iterable[str]) -> Iterator[Sleeper]:
        """Register before looking, so that nothing falls between the look and the sleep. Whoever leaves owing
        passes its wake on, once it is no sleeper itself."""
        names = tuple(topics)
        sleeper = Sleeper(space_id, tuple(name.removeprefix(ONE) for name in names))
        for name in sleeper.topics:
            self._sleepers[name][sleeper] = None
        self._spaces[space_id] = self._spaces.get(space_id, 0) + 1
        try:
            yield sleeper
        finally:
            for name in sleeper.topics:
                self._sleepers[name].pop(sleeper, None)
                if not self._sleepers[name]:
                    del self._sleepers[name]
            self._spaces[space_id] -= 1
            if not self._spaces[space_id]:
                del self._spaces[space_id]
                self._seen.pop(space_id, None)
            if sleeper.owes:
                self.wake([name for name in names if name.startswith(ONE)])

    @property
    def sleeping(self) -> int:
        """How many long polls sleep in this process."""
        return sum(self._spaces.values())

    def wake(self, topics: Sequence[str]) -> None:
        """Wake this process's sleepers now and the other replicas' within a few milliseconds. What one
        sleeper suffices for (ONE) goes to others only when nobody sleeps here."""
        for name in topics:
            woken = self._wake_here(name, "commit")
            if not (woken and name.startswith(ONE)):
                self._tell(name)

    def alarm(self, name: str, in_s: float) -> None:
        """Wake one sleeper of a topic after in_s seconds, of another replica when nobody sleeps here; the
        earliest alarm of a topic stands for all."""
        loop = asyncio.get_running_loop()
        known = self._alarms.get(name)
        if known is not None:
            if known.when() <= loop.time() + in_s:
                return
            known.cancel()
        self._alarms[name] = loop.call_later(in_s, self._ring, name)

    def _ring(self, name: str) -> None:
        self._alarms.pop(name, None)
        if not self._wake_here(ONE + name, "alarm"):
            self._tell(ONE + name)

    def _tell(self, name: str) -> None:
        """Let the other replicas know."""
        if self._dsn is not None:
            self._outgoing.add(name)
            self._outgoing_set.set()

    def wake_everybody(self, why: str) -> None:
        """Let every sleeper look again: after a reconnect, and at a drain."""
        for name in list(self._sleepers):
            self._wake_here(name, why)

    def start(self) -> None:
        """Begin ticking, notifying and listening, on the running loop."""
        self._tasks.append(asyncio.create_task(self._tick_loop(), name="wakeups-tick"))
        if self._dsn is not None:
            self._tasks.append(asyncio.create_task(self._notify_loop(self._dsn), name="wakeups-notify"))
            self._tasks.append(asyncio.create_task(self._listen_loop(self._dsn), name="wakeups-listen"))

    async def stop(self) -> None:
        """End all three; sleepers are left to their own bounds."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wake_here(self, name: str, why: str) -> bool:
        """Wake the sleepers of a topic, or the one that slept longest of several; whether anybody was
        woken."""
        one = name.startswith(ONE)
        woken = False
        for topic in name.removeprefix(ONE).split("|"):
            for sleeper in self._sleepers.get(topic, ()):
                if not sleeper.event.is_set():
                    self.woken_by[why] += 1
                    sleeper.event.set()
                    woken = True
                    if one:
                        return True
        return woken

    # -- to other replicas -------------------------------------------------------------------------------

    @property
    def _pace_s(self) -> float:
        """NOTIFY costs every listener a delivery, replicas² times the rate: fewer the more replicas there
        are."""
        return 0.005 if self.replicas <= 4 else 0.001 * self.replicas  # noqa: PLR2004  measured in kernel.md, 12

    async def _notify_loop(self, dsn: str) -> None:
        """Send distinct topics on a connection of its own: NOTIFY in the hot transactions halves their
        rate."""
        connection: Any = None
        try:
            while True:
                await self._outgoing_set.wait()
                await asyncio.sleep(self._pace_s)
                self._outgoing_set.clear()
                topics, self._outgoing = self._outgoing, set()
                try:
                    if connection is None or connection.is_closed():
                        connection = await db.connect(dsn)
                    for payload in _payloads(self._origin, topics):
                        await connection.execute(
                            "SELECT pg_notify($1, $2)", CHANNEL, payload, timeout=bounds.listener_timeout_s
                        )
                except Exception as error:  # whatever it is: without this loop no other replica wakes
                    log.warning(
                        "notify lost %d topics (%s); the tick repairs it",
                        len(topics),
                        db.named(error),
                        exc_info=db.trouble(error) is None,
                    )
                    await _close(connection)
                    connection = None
                    await asyncio.sleep(0.2)
        finally:
            await _close(connection)

    async def _listen_loop(self, dsn: str) -> None:
        """Listen, with a heartbeat, since a black-holed connection looks healthy; reconnect for ever."""
        connection: Any = None
        pause = 0.1
        while True:
            try:
                connection = await db.connect(dsn)
                await connection.add_listener(CHANNEL, self._heard)
                self.listening = True
                pause = 0.1
                self.wake_everybody("reconnect")
                while True:
                    await asyncio.sleep(bounds.listener_heartbeat_s)
                    await connection.fetchval("SELECT 1", timeout=bounds.listener_timeout_s)
            except asyncio.CancelledError:
                await _close(connection)
                raise
            except Exception as error:
                log.warning(
                    "the listener lost its connection (%s)",
                    db.named(error),
                    exc_info=db.trouble(error) is None,
                )
            self.listening = False
            await _close(connection)
            connection = None
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        origin, _, topics = payload.partition(" ")
        if origin != self._origin:
            for name in topics.split(" "):
                self._wake_here(name, "notify")

    # -- the slow tick -----------------------------------------------------------------------------------

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            spaces = list(self._spaces)
            if not spaces:
                continue
            try:
                rows = await self._tick(
                    spaces, [self._seen.get(s, -1) for s in spaces], bounds.tick_events_max
                )
            except Exception as error:
                if db.trouble(error) is None:
                    log.exception("the tick failed")
                continue
            self._ticked(rows)

    def _ticked(self, rows: list[Any]) -> None:
        for row in rows:
            space_id, topics = row["space_id"], row["topics"]
            first = space_id not in self._seen
            if space_id in self._spaces:
                self._seen[space_id] = row["num"]
            if first or topics is None:
                # Nothing is known of what this space's sleepers may have missed: all look again.
                topics = [t for t, who in self._sleepers.items() if any(s.space_id == space_id for s in who)]
            for name in topics:
                self._wake_here(name, "tick")


def _payloads(origin: str, topics: Iterable[str]) -> Iterator[str]:
    """Topics packed into as few NOTIFY payloads as their limit allows."""
    payload = origin
    for name in topics:
        if len(payload) + 1 + len(name) > bounds.notify_payload_bytes_max:
            yield payload
            payload = origin
        payload += " " + name
    if payload != origin:
        yield payload


async def _close(connection: Any) -> None:
    if connection is not None:
        with contextlib.suppress(Exception):
            await connection.close(timeout=bounds.listener_timeout_s)
