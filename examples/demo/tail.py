"""The live tail of the demo: every event of its space, as it comes, in one quiet line each."""

import threading
import time
from typing import Self

from runstate import Runstate, RunstateError
from tests.support import database
from tests.support.site import LOOK_S, Site

CATCH_UP_S = 10.0
HEAD = "SELECT num FROM runstate.journal_heads WHERE space_id = $1"
SHOWN = {
    "once.acquired": "{holder} has {id}",
    "once.lapsed": "the lease of {holder} on {id} has lapsed",
    "once.completed": "{id} is done",
    "once.failed": "{id} failed",
    "task.started": "{holder} works on {id}, attempt {attempt}",
    "task.succeeded": "{id} is done",
    "task.failed": "{id} has failed for good",
    "task.retried": "{id} waits for its next attempt",
    "task.cancelled": "{id} is cancelled",
    "group.created": "a group of {expectedMembers}, of which {threshold} have to be accepted",
    "group.accepted": "the result of {taskId} is accepted",
    "group.rejected": "the result of {taskId} is rejected",
    "group.finalized": "{outcome}: {cancelled} that are not over are cancelled",
    "timer.created": "{name} is set, to {fireAt}",
    "timer.fired": "{name} fires",
    "message.lapsed": "the lease of {holder} on {id} has lapsed",
}


class Tail:
    """A context manager that prints what the journal tells meanwhile, and counts it. Seconds are since
    `began_at`."""

    def __init__(self, site: Site, began_at: float) -> None:
        self._client = Runstate(
            base_url=site.url, space_id=site.space.id, api_key=site.space.key, holder="tail"
        )
        self._site = site
        self._began_at = began_at
        self._stop = self._client.new_event()
        self._names: dict[str, str] = {}
        self._thread = threading.Thread(target=self._follow, name="tail", daemon=True)
        self.cursors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._client.close()

    def all_told(self) -> int:
        """How many events the space's journal has, once the tail has told as many; 0 when it does not within
        ten seconds, or has told one twice."""
        self._site.until_numbered()
        ends_at = time.monotonic() + CATCH_UP_S
        while True:
            count = int(database.fetchval(self._site.postgres.url, HEAD, self._site.space.id))
            if len(self.cursors) >= count or time.monotonic() > ends_at:
                return count if len(set(self.cursors)) == len(self.cursors) == count else 0
            time.sleep(LOOK_S)

    def _follow(self) -> None:
        try:
            for event in self._client.watch(stop_event=self._stop):
                self.cursors.append(event["cursor"])
                self._print(event)
        except RunstateError as error:
            print(f"     | the tail ended: {error}", flush=True)

    def _print(self, event: dict[str, object]) -> None:
        facts = dict(event["payload"]) if isinstance(event["payload"], dict) else {}
        aggregate = event["aggregate"]
        assert isinstance(aggregate, dict)
        name = str(facts.get("key") or self._names.get(aggregate["id"], aggregate["id"]))
        self._names[aggregate["id"]] = name
        if "taskId" in facts:
            facts["taskId"] = self._names.get(str(facts["taskId"]), facts["taskId"])
        shape = SHOWN.get(str(event["type"]))
        if shape is not None:
            at_s = time.time() - self._began_at
            said = shape.format_map({"holder": "?", "attempt": "?", **facts, "id": name})
            print(f"     | {at_s:6.2f}  {event['type']:<15} {said}", flush=True)
