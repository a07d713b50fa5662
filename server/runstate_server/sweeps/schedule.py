"""The one list of sweeps: which function, how often, how much at a time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sweep:
    """`function(batch, *args)` is repeated while it fills its batch; it returns a count, and topics to wake
    where it ends leases or scopes. It runs every `every` rounds of the sweep interval, or, without, in each
    round in which sweeps_due (due.sql) names it; `at_once`: also between two rounds, to the moment."""

    function: str
    batch: int
    every: int | None = None
    args: tuple[int, ...] = ()
    at_once: bool = False


def sweeps() -> tuple[Sweep, ...]:
    """All sweeps of this build."""
    return (
        Sweep("once_sweep", 200),
        Sweep("claim_sweep", 200),
        Sweep("message_sweep", 200),
        Sweep("group_sweep", 200),
        Sweep("permit_sweep", 100),
        Sweep("budget_sweep", 200),
        Sweep("allowance_sweep", 100),
        Sweep("timer_sweep", 200, at_once=True),
        Sweep("scope_sweep", 100),
        Sweep("scope_tidy_sweep", 500),
        Sweep("waits_sweep", 500, every=60),
        Sweep("places_sweep", 500, every=60),
        Sweep("idempotency_sweep", 1, every=600),
    )
