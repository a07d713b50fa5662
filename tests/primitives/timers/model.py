"""The rules of timers in pure Python: the oracle of the state machine. Times as in the model of scopes."""

from dataclasses import dataclass, field
from typing import Any

from tests.primitives.scopes.model import ACTIVE, CANCELLED, EXPIRED, Refused, Scope, Scopes

PENDING, FIRED, ACKED = "PENDING", "FIRED", "ACKED"


@dataclass
class Timer:
    """One timer as it is stored; one that is due stays pending until somebody meets it."""

    scope: Scope
    name: str | None
    fire_at: float
    state: str = PENDING
    fired_at: float | None = None
    id: str = ""
    token: str | None = None  # as the server has told it


@dataclass
class Timers:
    """All timers of one space, and the events their changes write: (type, id)."""

    scopes: Scopes = field(init=False)
    all: list[Timer] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scopes = Scopes(end_contents=self._end)

    def set(
        self, now: float, scope: Scope, name: str | None, fire_at: float, told: dict[str, Any]
    ) -> tuple[Timer, dict[str, Any]]:
        """POST /timers, and with a name PUT /timers/by-name; `told`: the server's answer, for its id and
        token."""
        self.scopes.refuse_ended(now, scope)
        timer = None if name is None else self._named(scope, name)
        if timer is None:
            timer = Timer(scope, name, fire_at, id=told["id"])
            self.all.append(timer)
            self.events.append(("timer.created", timer.id))
        self._meet(now, timer)
        return timer, self._facts(now, timer, token=told.get("token"), tells=True)

    def view(self, now: float, timer: Timer) -> dict[str, Any]:
        """GET /timers/{id}."""
        if timer.scope.effective(now) == ACTIVE:
            self._meet(now, timer)
        return self._facts(now, timer)

    def poll(self, now: float, scope: Scope, told: dict[str, Any]) -> dict[str, Any]:
        """POST /timers/poll. What fired at one instant comes in any order."""
        self.scopes.refuse_ended(now, scope)
        mine = [timer for timer in self.all if timer.scope is scope]
        for timer in mine:
            self._meet(now, timer)
        tokens = {each["id"]: each["token"] for each in told["timers"]}
        fired = {timer.id: timer for timer in mine if timer.state == FIRED}
        order = [each["id"] for each in told["timers"] if each["id"] in fired]
        order += sorted(fired.keys() - set(order))
        at = [fired[key].fired_at for key in order]
        assert at == sorted(at)
        return {
            "timers": [
                {"id": key, "name": fired[key].name, "token": self._told(fired[key], tokens.get(key)),
                 "firedAt": fired[key].fired_at}
                for key in order
            ]
        }  # fmt: skip

    def ack(self, timer: Timer, token: str) -> dict[str, Any]:
        """POST /timers/{id}/ack, also in a scope that has ended; a due timer that nobody met has not
        fired."""
        if timer.state not in (FIRED, ACKED) or timer.token != token:
            raise Refused("CONFLICT")
        if timer.state == FIRED:
            timer.state = ACKED
            self.events.append(("timer.acked", timer.id))
        return {"state": ACKED}

    def cancel(self, now: float, timer: Timer) -> dict[str, Any]:
        """POST /timers/{id}/cancel."""
        self._meet(now, timer)
        if timer.state in (FIRED, ACKED):
            raise Refused("CONFLICT")
        if timer.state == PENDING:
            self._over(timer, CANCELLED)
        return self._facts(now, timer)

    def sweep(self, now: float) -> None:
        """The sweep of due timers."""
        for timer in self.all:
            if timer.fire_at <= now:
                self._meet(now, timer)

    def _named(self, scope: Scope, name: str) -> Timer | None:
        return next((t for t in self.all if t.scope is scope and t.name == name), None)

    def _meet(self, now: float, timer: Timer) -> None:
        """Write what time, or the end of the scope, has made of it."""
        if timer.state != PENDING:
            return
        effective = timer.scope.effective(now)
        if effective != ACTIVE:
            self._over(timer, EXPIRED if effective == EXPIRED else CANCELLED)
        elif timer.fire_at <= now:
            timer.state, timer.fired_at = FIRED, now
            self.events.append(("timer.fired", timer.id))

    def _facts(
        self, now: float, timer: Timer, *, token: str | None = None, tells: bool = False
    ) -> dict[str, Any]:
        state = timer.state
        if state == PENDING and timer.scope.effective(now) != ACTIVE:
            state = EXPIRED if timer.scope.effective(now) == EXPIRED else CANCELLED
        facts = {"id": timer.id, "name": timer.name, "scopeId": timer.scope.id, "state": state}
        facts |= {"fireAt": timer.fire_at, "firedAt": timer.fired_at, "now": now}
        return facts | ({"token": self._told(timer, token)} if tells and state == FIRED else {})

    def _told(self, timer: Timer, token: str | None) -> str | None:
        """The token of a timer, the same whenever it is told."""
        timer.token = timer.token or token
        return timer.token

    def _end(self, scopes: list[Scope], reason: str) -> None:
        for timer in self.all:
            if timer.scope in scopes and timer.state == PENDING:
                self._over(timer, EXPIRED if reason == "scope_expired" else CANCELLED)

    def _over(self, timer: Timer, state: str) -> None:
        timer.state = state
        self.events.append(("timer.cancelled", timer.id))
