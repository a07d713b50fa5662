"""The scene of the reviews: ten are asked for, three good ones are enough, and a reviewer is killed."""

import contextlib
import signal
from dataclasses import dataclass
from typing import Any

from examples.demo.account import Claim, Teller
from examples.demo.jobs import Crew
from examples.demo.stage import Stage, instant
from tests.support.crowd import Telling

REVIEWERS = 4
SCORES = (9, 8, 4, 8, 3, 9, 2, 8, 5, 9)
THOROUGH_S, WORK_S = 60.0, 1.0  # the first review takes longer than anybody will wait
NEED, GOOD = 3, 7
PROMPT_S = 5.0  # on a machine that is busy with all of this; as a rule it is milliseconds
AFTER = 12


@dataclass(frozen=True)
class Seen:
    """What the scene has recorded: the processes' word, and the server's."""

    crew: Crew
    got: list[dict[str, Any]]
    after: list[dict[str, Any]]
    group: dict[str, Any]
    tasks: list[dict[str, Any]]
    killed: str
    killed_at: float

    @property
    def finalized_at(self) -> float:
        return instant(self.group["finalizedAt"])

    @property
    def dropped(self) -> list[Telling]:
        """Who was told to stop."""
        return self.crew.all("drops")

    @property
    def lost(self) -> set[int]:
        """What the killed reviewer had begun."""
        wrote = {t.facts["draft"] for t in self.crew.all("wrote") if t.who == self.killed}
        return {t.facts["draft"] for t in self.crew.all("reads") if t.who == self.killed} - wrote


def first_good_answers(on: Stage, teller: Teller) -> None:
    teller.title(
        "Ten reviewers, stop at the first three good answers",
        f"{len(SCORES)} reviews, {REVIEWERS} processes, one of which is killed; good is {GOOD} of 10, and one"
        f" review would take {THOROUGH_S:.0f} s.",
    )
    with contextlib.ExitStack() as exits:
        crew = Crew(on, exits)
        reviewers = {name: crew.start(name, "reviewer") for name in _names()}
        editor = crew.start("editor", "editor")
        crew.until(lambda told: sum(t.what == "ready" for t in told) == REVIEWERS + 1)
        drafts = [
            {"n": n, "score": score, "work_s": WORK_S if n > 1 else THOROUGH_S}
            for n, score in enumerate(SCORES, 1)
        ]
        editor.ask({"drafts": drafts, "need": NEED, "good": GOOD}, 0)
        crew.until(lambda told: any(t.what == "reads" and t.facts["draft"] == 1 for t in told))
        crew.until(lambda _: _under_way(crew))
        killed = _under_way(crew)[0]
        killed_at = reviewers[killed].send(signal.SIGKILL)
        crew.until(lambda told: any(t.what in {"got", "refused"} for t in told))
        crew.until(lambda told: any(t.what == "drops" for t in told))
        group = _group(on)
        tasks = on.site.answer("GET", "/tasks", {"scopeId": group["scopeId"], "limit": 500})["tasks"]
        more = [{"n": 100 + n, "score": GOOD, "work_s": 0.2} for n in range(AFTER)]
        editor.ask({"drafts": more, "need": "all", "good": GOOD}, 0)
        crew.until(lambda told: sum(t.what in {"got", "refused"} for t in told) == 2)
    got, after = ([*t.facts.get("reviews", [])] for t in crew.told if t.what in {"got", "refused"})
    seen = Seen(crew, got, after, group, tasks, killed, killed_at)
    _tell(teller, seen)
    teller.claims(_claims(seen))


def _names() -> list[str]:
    return [f"reviewer-{n}" for n in range(1, REVIEWERS + 1)]


def _under_way(crew: Crew) -> list[str]:
    """Who is in the middle of a review, but for the thorough one."""
    reading = {t.who: t.facts["draft"] for t in crew.all("reads")}
    wrote = {t.facts["draft"] for t in crew.all("wrote")}
    return [who for who, draft in reading.items() if draft not in {1, *wrote}]


def _group(on: Stage) -> dict[str, Any]:
    on.site.until_numbered()
    [created] = on.site.answer("GET", "/events", {"types": "group.created"})["events"]
    return dict(on.site.answer("GET", f"/task-groups/{created['aggregate']['id']}"))


def _tell(teller: Teller, seen: Seen) -> None:
    acts = [
        (seen.killed_at, seen.killed, "SIGKILL, in the middle of its review"),
        (seen.finalized_at, "the server", f"{NEED} are accepted: cancels what is not over"),
    ]
    acts += [
        (t.at, "editor", f"reads review {t.facts['draft']}: {t.facts['score']} of 10")
        for t in seen.crew.all("judges")
        if t.facts["draft"] <= len(SCORES)
    ]
    acts += [
        (t.at, t.who, f"drops review {t.facts['draft']}: its signal is set, {t.facts['why']}")
        for t in seen.dropped
    ]
    for at, who, what in sorted(acts):
        teller.say(f"   {at - teller.began_at:6.1f} s  {who:<10} {what}")
    teller.say("")


def _claims(seen: Seen) -> list[Claim]:
    group, crew = seen.group, seen.crew
    states = {task["taskKey"]: task["state"] for task in seen.tasks}
    cancelled = [task for task in seen.tasks if task["state"] == "CANCELLED"]
    accepted = {m["taskId"] for m in group["members"] if m["verdict"] == "ACCEPTED"}
    results = [task["outcome"] for task in seen.tasks if task["id"] in accepted]
    drafts = [one["draft"] for one in seen.got]
    losers = {t.who for t in seen.dropped}
    served_on = {t.who for t in crew.all("wrote") if t.facts["draft"] > len(SCORES)}
    return [
        Claim(
            f"the editor got {NEED} reviews, all good, in the order of the drafts",
            len(drafts) == NEED
            and drafts == sorted(drafts)
            and all(one["score"] >= GOOD for one in seen.got),
        ),
        Claim(
            "the server has accepted exactly those, and has one outcome, SUCCESS",
            (group["state"], group["outcome"], group["accepted"]) == ("FINALIZED", "SUCCESS", NEED)
            and sorted(results, key=lambda one: one["draft"]) == seen.got,
        ),
        Claim(
            f"{len(cancelled)} reviews were not needed any more and are cancelled; none goes on",
            len(states) == len(SCORES)
            and set(states.values()) == {"SUCCEEDED", "CANCELLED"}
            and {task["outcomeReason"] for task in cancelled} == {"group_finalized"},
        ),
        Claim(
            f"{seen.killed} was killed in the middle of a review, which held nobody up",
            bool(seen.lost) and seen.finalized_at - seen.killed_at < THOROUGH_S / 2,
        ),
        Claim(
            f"whoever worked on one that had lost saw its signal: {', '.join(sorted(losers))}",
            1 in {t.facts["draft"] for t in seen.dropped}
            and {t.facts["why"] for t in seen.dropped} == {"LeaseLostError"}
            and all(t.at <= seen.finalized_at + PROMPT_S for t in seen.dropped),
        ),
        Claim(
            f"and serves on: {AFTER} more reviews, by all who are left",
            len(seen.after) == AFTER and losers <= served_on == set(_names()) - {seen.killed},
        ),
    ]
