"""What was seen in one scene, what that proves, and how it is told. Nothing here starts or asks anything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.crowd import Telling
from tests.support.site import Event


@dataclass(frozen=True)
class Claim:
    """A sentence, and whether the recorded facts bear it out."""

    sentence: str
    holds: bool


@dataclass(frozen=True)
class Scene:
    """The recorded facts of one key. Times are seconds since the epoch."""

    key: str
    askers: tuple[str, ...]
    told: tuple[Telling, ...]
    journal: tuple[Event, ...]
    view: dict[str, Any]  # the server's GET /once, read last
    acts: tuple[tuple[float, str, str], ...] = ()  # what the demo did or saw: when, to whom, what
    killed: frozenset[str] = frozenset()
    lease_ends_at: float | None = None  # of the owner that was killed or stopped, as last seen

    def tellings(self, what: str) -> list[Telling]:
        return [t for t in self.told if t.what == what]

    @property
    def runners(self) -> list[str]:
        """Who ran the function, in order, by their own word."""
        return [t.who for t in self.tellings("runs")]

    @property
    def results(self) -> dict[str, Any]:
        """What each caller got back."""
        return {t.who: t.facts["report"] for t in self.tellings("got")}

    @property
    def refused(self) -> dict[str, str]:
        """Who got an error instead, and which."""
        return {t.who: t.facts["error"] for t in self.tellings("refused")}

    @property
    def history(self) -> list[tuple[str, str | None]]:
        """The journal without its times."""
        return [(event.type.removeprefix("once."), event.holder) for event in self.journal]

    @property
    def asked_at(self) -> dict[str, float]:
        return {t.who: t.at for t in self.tellings("asks")}


# -- claims ----------------------------------------------------------------------------------------------


def one_result(scene: Scene) -> Claim:
    """From the server alone: the state, and exactly one completion in the journal."""
    completed = [who for what, who in scene.history if what == "completed"]
    return Claim(
        "the server has recorded exactly one result",
        scene.view["state"] == "DONE" and "result" in scene.view and len(completed) == 1,
    )


def everybody_got_it(scene: Scene) -> Claim:
    """Every caller that was neither killed nor refused got what the server has."""
    living = set(scene.askers) - scene.killed - set(scene.refused)
    got = scene.results
    agree = bool(living) and all(got.get(who) == scene.view.get("result") for who in living)
    return Claim(
        f"all {len(living)} callers that could get a result got that one", agree and set(got) == living
    )


def ran_by(scene: Scene, *owners: str) -> Claim:
    """The callers' word and the journal's word on who had the key, in order."""
    acquired = [who for what, who in scene.history if what == "acquired"]
    wanted = list(owners)
    who = " and then ".join(owners)
    return Claim(f"the function was run by {who}, by nobody else", scene.runners == wanted == acquired)


def history_is(scene: Scene, *wanted: tuple[str, str]) -> Claim:
    told = ", ".join(f"{what} {who}" for what, who in wanted)
    return Claim(f"the server's journal: {told}", scene.history == list(wanted))


def cut_off(scene: Scene, who: str) -> Claim:
    ran = who in scene.runners and who in scene.killed
    finished = any(t.who == who for t in scene.tellings("worked"))
    return Claim(f"{who} was killed between the start and the end of its work", ran and not finished)


def no_early_takeover(scene: Scene) -> Claim:
    """The second `acquired` of the journal against the lease as last seen, both on the database's clock."""
    taken = [event.at for event in scene.journal if event.type == "once.acquired"]
    waited = scene.lease_ends_at is not None and len(taken) > 1 and taken[1] >= scene.lease_ends_at
    return Claim("nobody took the work over before the lease had run out", waited)


def no_failures(scene: Scene) -> Claim:
    return Claim("no failure was counted: a lapsed lease is none", scene.view["attempts"] == 0)


def was_refused(scene: Scene, who: str) -> Claim:
    """It had finished its work, was told so by `signal`, and what it made is not what stands."""
    late = [t for t in scene.tellings("worked") if t.who == who]
    holds = (
        scene.refused.get(who) == "LeaseLostError"
        and len(late) == 1
        and bool(late[0].facts["signal"])
        and late[0].facts["report"] != scene.view.get("result")
    )
    return Claim(f"{who} came too late: signal set, LeaseLostError, and its result is not what stands", holds)


# -- telling ---------------------------------------------------------------------------------------------


@dataclass
class Teller:
    """Prints scenes with times since the start, and counts the claims that do not hold."""

    began_at: float
    false: int = field(default=0, init=False)
    told: int = field(default=0, init=False)
    _scenes: int = field(default=0, init=False)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def title(self, title: str, text: str) -> None:
        self._scenes += 1
        self.say(f"\n{self._scenes}. {title}\n   {text}\n")

    def scene(self, scene: Scene) -> None:
        """The timeline, then what each caller got."""
        for at, who, what in sorted(_timeline(scene)):
            self.say(f"   {at - self.began_at:6.1f} s  {who:<10} {what}")
        self.say("")
        for who in scene.askers:
            self.say(f"             {who:<10} {_outcome(scene, who)}")
        self.say("")

    def claims(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.told += 1
            self.false += not claim.holds
            self.say(f"   {'true ' if claim.holds else 'FALSE'}  {claim.sentence}")


def _timeline(scene: Scene) -> Iterable[tuple[float, str, str]]:
    yield from scene.acts
    for number, telling in enumerate(scene.tellings("runs")):
        how = f"runs the function, attempt {telling.facts['attempt']}"
        yield telling.at, telling.who, f"gets the key and {how}" if number == 0 else f"takes over and {how}"
    for event in scene.journal:
        if event.type == "once.lapsed":
            yield event.at, "server", f"the lease of {event.holder} has lapsed"
        if event.type == "once.completed":
            yield event.at, str(event.holder), "is done: its result is recorded"
    for telling in scene.tellings("refused"):
        yield telling.at, telling.who, f"is refused: {telling.facts['error']}"


def _outcome(scene: Scene, who: str) -> str:
    ran = who in scene.runners
    if who in scene.killed:
        return "ran it, was killed, got nothing" if ran else "was killed"
    if who in scene.refused:
        return f"ran it, got {scene.refused[who]}"
    ends = [t for t in scene.tellings("got") if t.who == who]
    if not ends:
        return "got nothing"
    took_s = ends[0].at - scene.asked_at[who]
    report = ends[0].facts["report"]
    came = f"the report of {report['by']}, page {report['page']}"
    return f"ran it, got {came}" if ran and report["by"] == who else f"waited {took_s:.1f} s, got {came}"


def others(names: Sequence[str], *but: str) -> list[str]:
    """The names without these."""
    return [name for name in names if name not in but]
