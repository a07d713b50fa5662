"""`make chaos`: once under kills. Two servers, 20 caller processes, an owner or a server killed every 5 s.

Ends 0 when every key that anybody asked for has exactly one recorded result, by the server's word, and every
caller of a key got that one. The same --seed gives the same order of accidents and lengths of work.
"""

import argparse
import contextlib
import queue
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass

from bench.verdict import Counts, Verdict, judge, read
from tests.support.crowd import Caller, Ear, Telling
from tests.support.site import Site, leave_on_signals

CALLERS = 20
LANES = 5  # callers of one lane ask for the same keys, one after another
LEASE_S = 2.0
WORK_S = (0.05, 1.5)
KILL_EVERY_S = 5.0
LAST_ANSWERS_S_MAX = 60.0


@dataclass
class Member:
    """One of the crowd: where it is in its lane, and the process that is it at present."""

    number: int
    caller: Caller
    lane: int
    step: int = 0
    lives: int = 1
    running: bool = False  # inside the function, by its own word
    waiting: bool = False  # has been asked and has not answered


class Storm:
    """Drives the crowd and kills among it. One thread; what callers tell arrives through the ear."""

    def __init__(
        self,
        site: Site,
        exits: contextlib.ExitStack,
        *,
        seed: int,
        began_at: float,
        callers: int = CALLERS,
        lease_s: float = LEASE_S,
    ) -> None:
        self.site = site
        self.counts = Counts()
        self._exits = exits
        self._lease_s = lease_s
        self._seed = seed
        self._chance = random.Random(seed)
        self._began_at = began_at
        self._ear: Ear = queue.SimpleQueue()
        self._gone: set[str] = set()
        self._asking = True
        self.members = {}
        for number in range(callers):
            self._join(Member(number, self._start(f"caller-{number}.1"), number % LANES))

    def _start(self, name: str) -> Caller:
        caller = Caller(name, lease_s=self._lease_s, variables=self.site.variables, ear=self._ear)
        self._exits.callback(caller.end)
        return caller

    def _join(self, member: Member) -> None:
        self.members[member.caller.name] = member

    def say(self, text: str) -> None:
        print(f"{time.time() - self._began_at:6.1f} s  {text}", flush=True)

    # -- the crowd ---------------------------------------------------------------------------------------

    def listen(self, seconds: float) -> None:
        """Take in what is told for so long, and give everybody who is free the next key."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._heard(self._ear.get(timeout=left_s))

    def _heard(self, told: Telling) -> None:
        if told.who in self._gone:
            self.counts.executions += told.what == "runs"
            return
        member = self.members[told.who]
        match told.what:
            case "ready":
                self._ask(member)
            case "runs":
                self.counts.executions += 1
                member.running = True
            case "worked":
                member.running = False
            case "got":
                self.counts.answers.append((self._key(member), told.facts["report"]))
                member.step += 1
                self._ask(member)
            case "refused":
                self.counts.errors[told.facts["error"]] += 1
                self._ask(member)  # the same key again: its result is still wanted
            case "ended":
                raise SystemExit(f"{told.who} ended by itself; its errors stand above")

    def _ask(self, member: Member) -> None:
        member.running = False
        member.waiting = self._asking
        if self._asking:
            thing = f"{member.lane}-{member.step}"
            self.counts.keys.add(self._key(member))
            work_s = random.Random(f"{self._seed} {thing}").uniform(*WORK_S)
            member.caller.ask(thing, work_s)

    def _key(self, member: Member) -> str:
        return f"research:{member.lane}-{member.step}"

    def finish(self) -> bool:
        """No new keys; wait for every answer that is still due. Returns: whether all came."""
        self._asking = False
        ends_at = time.monotonic() + LAST_ANSWERS_S_MAX
        while any(m.waiting for m in self.members.values()) and time.monotonic() < ends_at:
            self.listen(0.1)
        return not any(m.waiting for m in self.members.values())

    # -- accidents ---------------------------------------------------------------------------------------

    def _some_owner(self) -> Member | None:
        """Somebody who is inside the function; None when nobody has been for two seconds."""
        for _ in range(40):
            owners = sorted((m for m in self.members.values() if m.running), key=lambda m: m.number)
            if owners:
                return self._chance.choice(owners)
            self.listen(0.05)
        return None

    def kill_owner(self) -> None:
        """SIGKILL in the middle of the work; a new process takes the place in the crowd, at the same key."""
        member = self._some_owner()
        if member is None:
            return
        old = member.caller
        self._gone.add(old.name)
        old.end()
        self.counts.owners_killed += 1
        self.say(f"SIGKILL {old.name}, owner of {self._key(member)}")
        del self.members[old.name]
        member.lives += 1
        member.running = False
        member.caller = self._start(f"caller-{member.number}.{member.lives}")
        self._join(member)

    def kill_server(self) -> None:
        """SIGKILL, and a new start on the same port; callers find the other one meanwhile."""
        number = self._chance.randrange(len(self.site.replicas))
        polls = self.site.open_polls()[number]
        self.site.replicas[number].kill()
        self.counts.servers_killed += 1
        self.say(f"SIGKILL replica-{number + 1}, with {polls} long polls open")
        self.site.replicas[number].start(wait=False)

    def pause_owner(self) -> None:
        """SIGSTOP for longer than its lease, so that it comes back after a takeover."""
        member = self._some_owner()
        if member is None:
            return
        caller = member.caller
        caller.send(signal.SIGSTOP)
        self.counts.owners_paused += 1
        pause_s = LEASE_S + self._chance.uniform(0.5, 1.5)
        self.say(f"SIGSTOP {caller.name}, owner of {self._key(member)}, for {pause_s:.1f} s")
        threading.Timer(pause_s, _resume, [caller]).start()


def _resume(caller: Caller) -> None:
    if caller.process.poll() is None:
        caller.send(signal.SIGCONT)


def main() -> int:
    options = _parser().parse_args()
    leave_on_signals()
    try:
        with Site() as site, contextlib.ExitStack() as exits:
            verdict = _rage(site, exits, options.seconds, options.seed)
    except KeyboardInterrupt:
        print("\ninterrupted; everything it had started is gone", file=sys.stderr)
        return 130
    print("\n" + verdict.text())
    return 0 if verdict.good else 1


def _rage(site: Site, exits: contextlib.ExitStack, seconds: float, seed: int) -> Verdict:
    print(
        f"seed {seed}: 2 servers, {CALLERS} callers in {LANES} lanes, leases of {LEASE_S:g} s.\n"
        f"For {seconds:g} s an owner or a server is killed every {KILL_EVERY_S:g} s, and half way between "
        "an owner is paused."
    )
    run_id = site.run_id()
    storm = Storm(site, exits, seed=seed, began_at=time.time())
    ends_at = time.monotonic() + seconds
    kills = _kills(random.Random(seed), round(seconds / KILL_EVERY_S))
    for kill in kills:
        storm.listen(KILL_EVERY_S / 2)
        storm.pause_owner()
        storm.listen(KILL_EVERY_S / 2)
        storm.kill_owner() if kill == "owner" else storm.kill_server()
    storm.listen(ends_at - time.monotonic())
    storm.say("no new keys; waiting for the answers that are due")
    answered = storm.finish()
    for replica in site.replicas:
        replica.wait_ready()
    return judge(read(site, run_id, storm.counts.keys), storm.counts, all_answered=answered)


def _kills(chance: random.Random, count: int) -> list[str]:
    """Owners and servers in equal numbers, in a random order."""
    kills = [("owner", "server")[number % 2] for number in range(count)]
    chance.shuffle(kills)
    return kills


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the storm (default 60)")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="default: any")
    return parser


if __name__ == "__main__":
    sys.exit(main())
