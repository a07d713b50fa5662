import asyncio
import threading
import time
from pathlib import Path

import pytest

from runstate import LeaseLostError, ScopeCancelledError, UnavailableError
from runstate._background import shared
from runstate._clock import now
from runstate._heartbeat import Heartbeat, interval_s, trusted_s

LEASE_S = 0.6


class Lease:
    """A lease whose renewals answer as `script` says; everything it sees is kept."""

    def __init__(self, script, lease_s=LEASE_S):
        self.renewals = 0
        self.losses = []
        self.lost = threading.Event()
        self.renewed = threading.Condition()
        self.script = script
        self.heartbeat = Heartbeat(
            self._renew, what="the lease", lease_s=lease_s, sent_at=now(), on_lost=self._on_lost
        )

    async def _renew(self, attempt_s):
        assert attempt_s > 0
        with self.renewed:
            self.renewals += 1
            self.renewed.notify_all()
        await self.script(self.renewals)

    def _on_lost(self, reason):
        self.losses.append(reason)
        self.lost.set()

    def __enter__(self):
        async def start():
            self.heartbeat.start()

        shared.run(start())
        return self

    def __exit__(self, *_):
        self.heartbeat.stop()

    def until_renewed(self, count):
        with self.renewed:
            assert self.renewed.wait_for(lambda: self.renewals >= count, 30)


async def granted(_):
    pass


def refused_with(error):
    async def script(_):
        raise error

    return script


@pytest.mark.parametrize(
    ("lease_s", "about_s"), [(30, 10), (60, 20), (3600, 1200), (3, 1), (2, 1), (1, 0.5), (1.5, 0.75)]
)
def test_renewals_are_due_a_third_into_the_lease_and_in_time_for_the_shortest(lease_s, about_s):
    for _ in range(100):
        assert about_s * 0.9 <= interval_s(lease_s) <= about_s * 1.1
        assert interval_s(lease_s) < trusted_s(lease_s) * 0.7


@pytest.mark.parametrize("lease_s", [1, 3, 30, 3600])
def test_a_lease_is_distrusted_before_the_server_would(lease_s):
    assert lease_s * 0.9 < trusted_s(lease_s) < lease_s


def test_leases_are_measured_on_a_clock_that_goes_on_while_the_machine_sleeps():
    """A computer that wakes up must not trust a lease that the server has given to others."""
    uptime = Path("/proc/uptime")  # sleep included
    if uptime.exists():
        assert abs(now() - float(uptime.read_text().split()[0])) < 5


def test_a_lease_does_not_heed_the_time_of_day(monkeypatch):
    """Somebody sets the clock of the machine, or a daemon corrects it."""
    with Lease(granted) as lease:
        for count, shown in enumerate((0.0, 4e9, -86_400.0), 1):
            monkeypatch.setattr(time, "time", lambda shown=shown: shown)
            lease.until_renewed(2 * count)
        assert lease.heartbeat.lost is None
    assert lease.losses == []


def test_a_lease_lives_on_for_as_long_as_it_is_renewed():
    with Lease(granted) as lease:
        lease.until_renewed(6)  # three lease times
        assert lease.heartbeat.lost is None
    assert lease.losses == []


def test_a_user_thread_that_holds_the_cpu_does_not_lose_the_lease():
    with Lease(granted, lease_s=1) as lease:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            sum(range(1000))
        assert lease.heartbeat.lost is None
        assert lease.renewals >= 3


def test_a_transient_failure_is_retried_while_the_lease_has_time():
    async def away_for_a_while(renewals):
        if renewals % 3:
            raise UnavailableError("away")

    with Lease(away_for_a_while, lease_s=1.5) as lease:
        lease.until_renewed(7)
        assert lease.heartbeat.lost is None


def test_a_refusal_loses_the_lease_at_once_and_for_all():
    refusal = ScopeCancelledError("cancelled")
    with Lease(refused_with(refusal)) as lease:
        assert lease.lost.wait(30)
        assert lease.heartbeat.lost is refusal
        assert not lease.heartbeat.beating
    assert (lease.losses, lease.renewals) == ([refusal], 1)


def test_time_running_out_loses_the_lease():
    with Lease(refused_with(UnavailableError("away"))) as lease:
        started = time.monotonic()
        assert lease.lost.wait(30)
        assert time.monotonic() - started < LEASE_S
        assert isinstance(lease.heartbeat.lost, LeaseLostError)
        assert lease.renewals > 1
    assert len(lease.losses) == 1


def test_an_attempt_into_the_void_does_not_hide_that_time_is_up():
    async def never(_):
        await asyncio.Event().wait()

    with Lease(never) as lease:
        until = time.monotonic() + 30
        while lease.heartbeat.lost is None:
            assert time.monotonic() < until
        assert isinstance(lease.losses[0], LeaseLostError)


def test_a_late_renewal_never_revives_a_lease_that_was_given_up():
    late = threading.Event()

    async def late_answer(_):
        await asyncio.get_running_loop().run_in_executor(None, late.wait, 30)

    with Lease(late_answer) as lease:
        until = time.monotonic() + 30
        while lease.heartbeat.lost is None:
            assert time.monotonic() < until
        late.set()
        lease.until_renewed(1)
        shared.run(asyncio.sleep(0.05))
        assert isinstance(lease.heartbeat.lost, LeaseLostError)
        assert len(lease.losses) == 1


def test_beat_now_renews_before_it_is_due():
    with Lease(granted, lease_s=3600) as lease:
        shared.soon(lease.heartbeat.beat_now)
        lease.until_renewed(1)


def test_after_stop_nothing_is_renewed_or_lost():
    with Lease(refused_with(UnavailableError("away"))) as lease:
        lease.until_renewed(1)
        lease.heartbeat.stop()
        seen = lease.renewals
        assert not lease.lost.wait(2 * LEASE_S)
        assert lease.renewals <= seen + 1
        assert lease.heartbeat.lost is None
