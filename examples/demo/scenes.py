"""The four scenes. Each arranges an accident, collects what everybody involved says, and judges it."""

import signal
import time

import httpx

from examples.demo import account
from examples.demo.account import Claim, Scene, Teller, others
from examples.demo.stage import LEASE_S, Stage, instant
from tests.support.crowd import Telling


def killed_owner(on: Stage, teller: Teller) -> None:
    names = list(on.callers)
    key = "research:acme"
    teller.title(
        "The process that does the work is killed",
        f'{len(names)} processes call research("acme") at once; 2 s of work, a lease of {LEASE_S} s.',
    )
    on.ask(names, "acme", work_s=2)
    owner = on.until(None, "runs").who
    on.until_all(names, "asks")
    polls = on.until_asleep(len(names) - 1)
    acts = [(time.time(), "the others", f"wait, asleep at the servers: {_asleep(polls)}")]
    on.gone.add(owner)
    killed_at = on.callers[owner].send(signal.SIGKILL)
    lease_ends_at = _until_taken_over(on, key, owner)
    acts.append((killed_at, owner, f"SIGKILL, in the middle of its work; {_lease(teller, lease_ends_at)}"))
    on.until_all(others(names, owner), "got", "refused")
    scene = _collected(on, key, names, acts, killed={owner}, lease_ends_at=lease_ends_at)
    heir = scene.runners[-1]
    teller.scene(scene)
    teller.claims(
        [
            account.cut_off(scene, owner),
            account.one_result(scene),
            account.everybody_got_it(scene),
            account.ran_by(scene, owner, heir),
            account.no_early_takeover(scene),
            account.history_is(
                scene, ("acquired", owner), ("lapsed", owner), ("acquired", heir), ("completed", heir)
            ),
            account.no_failures(scene),
        ]
    )


def killed_replica(on: Stage, teller: Teller) -> None:
    names = others(list(on.callers), *on.gone)
    key = "research:globex"
    teller.title(
        "A server is killed while callers wait at it",
        f'The {len(names)} that are left call research("globex"), 3 s of work, through both servers.',
    )
    on.ask(names, "globex", work_s=3)
    owner = on.until(None, "runs").who
    on.until_all(names, "asks")
    polls = on.until_asleep(len(names) - 1)
    acts = [(time.time(), "the others", f"wait, asleep at the servers: {_asleep(polls)}")]
    victim = max(range(2), key=polls.__getitem__)
    killed_at = time.time()
    on.site.replicas[victim].kill()
    acts.append((killed_at, f"replica-{victim + 1}", f"SIGKILL, with {polls[victim]} callers asleep at it"))
    moved = on.until_asleep(len(names) - 1)
    if sum(moved) >= len(names) - 1:
        acts.append((time.time(), "the others", f"wait again: {_asleep(moved)}"))
    on.until_all(names, "got", "refused")
    scene = _collected(on, key, names, acts)
    teller.scene(scene)
    teller.claims(
        [
            Claim("callers were asleep at the server that was killed", polls[victim] > 0),
            account.one_result(scene),
            account.everybody_got_it(scene),
            account.ran_by(scene, owner),
            account.history_is(scene, ("acquired", owner), ("completed", owner)),
        ]
    )
    on.site.replicas[victim].start()


def slow_owner(on: Stage, teller: Teller) -> None:
    names = others(list(on.callers), *on.gone)[:4]
    key = "research:initech"
    teller.title(
        "A slow owner comes back too late",
        f'{len(names)} processes call research("initech"). The owner is stopped for longer than its lease.',
    )
    on.ask(names, "initech", work_s=1)
    owner = on.until(None, "runs").who
    on.until_all(names, "asks")
    stopped_at = on.callers[owner].send(signal.SIGSTOP)
    lease_ends_at = _until_taken_over(on, key, owner)
    acts = [(stopped_at, owner, f"SIGSTOP, in the middle of its work; {_lease(teller, lease_ends_at)}")]
    on.until_all(others(names, owner), "got", "refused")
    acts.append((on.callers[owner].send(signal.SIGCONT), owner, "SIGCONT: goes on as if nothing had been"))
    on.until_all([owner], "got", "refused")
    scene = _collected(on, key, names, acts, lease_ends_at=lease_ends_at)
    heir = scene.runners[-1]
    teller.scene(scene)
    teller.claims(
        [
            account.one_result(scene),
            account.everybody_got_it(scene),
            account.ran_by(scene, owner, heir),
            account.no_early_takeover(scene),
            account.was_refused(scene, owner),
            account.history_is(
                scene, ("acquired", owner), ("lapsed", owner), ("acquired", heir), ("completed", heir)
            ),
        ]
    )


def stale_token(on: Stage, teller: Teller) -> None:
    """Without the SDK in between: it is the server that refuses."""
    key = "by-hand"
    teller.title(
        "The same by plain HTTP",
        "A program without our SDK takes a key for 1 s, lets the lease lapse, and completes after its heir.",
    )
    place = {"scopeId": on.run_id, "key": key}
    first = _acquire(on, place, holder="first")
    opened = on.site.once(on.run_id, key, wait_ms=10_000)["state"]
    second = _acquire(on, place, holder="second")
    won = _complete(on, place, second, {"by": "second"})
    late = _complete(on, place, first, {"by": "first"})
    error = late.json().get("error", {})
    history = [(event.type.removeprefix("once."), event.holder) for event in on.site.once_events(key)]
    teller.say(f"   the late complete: {late.status_code} {error.get('code')}, {error.get('message')!r}\n")
    teller.claims(
        [
            Claim("a lapsed lease reads as OPEN", opened == "OPEN"),
            Claim(
                "the heir's result was recorded", won.status_code == 200 and won.json() == {"state": "DONE"}
            ),
            Claim(
                "the late result was refused", (late.status_code, error.get("code")) == (409, "STALE_CLAIM")
            ),
            Claim("the heir's result stands", on.site.once(on.run_id, key).get("result") == {"by": "second"}),
            Claim(
                "and the journal agrees",
                history
                == [
                    ("acquired", "first"),
                    ("lapsed", "first"),
                    ("acquired", "second"),
                    ("completed", "second"),
                ],
            ),
        ]
    )


def _acquire(on: Stage, place: dict[str, str], *, holder: str) -> dict[str, str]:
    body = {**place, "holder": holder, "holderSession": holder, "leaseSeconds": 1}
    return dict(on.site.send("POST", "/once/acquire", body).raise_for_status().json())


def _complete(on: Stage, place: dict[str, str], lease: dict[str, str], result: object) -> httpx.Response:
    body = {**place, "token": lease["token"], "result": result}
    return on.site.send("POST", "/once/complete", body)


def _until_taken_over(on: Stage, key: str, owner: str) -> float:
    """Listen until another runs the function. Returns: the end of the owner's lease as last seen."""
    lease_ends_at = 0.0

    def taken_over(told: list[Telling]) -> bool:
        return any(t.what == "runs" and t.who != owner for t in told)

    while not on.hear(taken_over, patience_s=0.1):
        view = on.site.once(on.run_id, key)
        if view.get("holder") == owner:
            lease_ends_at = instant(view["leaseExpiresAt"])
    return lease_ends_at


def _collected(
    on: Stage,
    key: str,
    names: list[str],
    acts: list[tuple[float, str, str]],
    *,
    killed: set[str] | None = None,
    lease_ends_at: float | None = None,
) -> Scene:
    return Scene(
        key,
        tuple(names),
        tuple(on.told),
        tuple(on.site.once_events(key)),
        on.site.once(on.run_id, key),
        tuple(acts),
        frozenset(killed or ()),
        lease_ends_at,
    )


def _asleep(polls: list[int]) -> str:
    return ", ".join(f"{count} at replica-{number}" for number, count in enumerate(polls, 1))


def _lease(teller: Teller, ends_at: float) -> str:
    return f"its lease runs until {ends_at - teller.began_at:.1f} s"


ALL = (killed_owner, killed_replica, slow_owner, stale_token)
