"""`make demo`: what real processes do with a server, while some of them, and servers, are killed.

Ends 0 when every claim that it printed was true."""

import argparse
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from examples.demo import jobs, reviewing, scenes, sharing, sleeping
from examples.demo.account import Claim, Teller
from examples.demo.stage import GaveUp, Stage
from examples.demo.tail import Tail
from runstate_server.embedded import EmbeddedError
from tests.support.site import leave_on_signals

CALLERS = 10


def main() -> int:
    options = _parser().parse_args()
    leave_on_signals()
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(options.seconds)
    teller = Teller(time.time())
    try:
        _play(teller)
    except KeyboardInterrupt:
        print("\ninterrupted; everything it had started is gone", file=sys.stderr)
        return 130
    except (GaveUp, EmbeddedError, AssertionError) as error:
        print(f"\nthe demo gave up: {error}", file=sys.stderr)
        return 1
    took_s = time.time() - teller.began_at
    if teller.false:
        teller.say(f"\n{teller.false} of {teller.told} claims were FALSE ({took_s:.0f} s).")
        return 1
    teller.say(f"\nAll {teller.told} claims are true ({took_s:.0f} s). Nothing is left running.")
    return 0


def _play(teller: Teller) -> None:
    teller.say(f"Starting a PostgreSQL, two Runstate servers behind one address, and {CALLERS} callers ...")
    with Stage(CALLERS) as stage:
        ready_s = time.time() - teller.began_at
        teller.say(f"Ready after {ready_s:.1f} s. Times below are seconds since the start.")
        teller.say("Lines with | are the journal's, told live by one more client, which watches.")
        try:
            with Tail(stage.site, teller.began_at) as tail:
                chapters = (jobs.shared_pages, sharing.scarce_things, reviewing.first_good_answers)
                for scene in (*scenes.ALL, *chapters, sleeping.durable_sleep):
                    scene(stage, teller)
                told = tail.all_told()
            teller.claims([Claim(f"the tail told each of the space's {told} events once", told > 0)])
        finally:
            signal.alarm(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--seconds", type=int, default=150, help="give up after so many seconds (default 150)"
    )
    return parser


def _out_of_time(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise GaveUp("it took too long; ARGS=--seconds=N gives a slow machine more time")


if __name__ == "__main__":
    sys.exit(main())
