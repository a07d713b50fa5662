"""Gauges read at each scrape: pool, long polls, wake-ups, sweeps, sequencer. Labels never hold a user's
names."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runstate_server.kernel.call import Kernel
from runstate_server.wakeups.bus import Bus
from runstate_server.web.longpoll import LongPolls


class Sweeping(Protocol):
    """What is read of the sweeper."""

    lag_s: dict[str, float]
    swept: dict[str, int]


class Sequencing(Protocol):
    """What is read of the sequencer."""

    moved: int


class Gauges(Collector):
    """The state of one process."""

    def __init__(
        self, kernel: Kernel, polls: LongPolls, bus: Bus, sweeper: Sweeping, sequencer: Sequencing
    ) -> None:
        self._kernel = kernel
        self._polls = polls
        self._bus = bus
        self._sweeper = sweeper
        self._sequencer = sequencer

    def collect(self) -> Iterator[Metric]:
        """Read all of them."""
        pool = self._kernel.pool
        yield GaugeMetricFamily("runstate_pool_connections", "Open database connections.", pool.get_size())
        yield GaugeMetricFamily("runstate_pool_idle", "Idle database connections.", pool.get_idle_size())
        yield GaugeMetricFamily("runstate_pool_max", "Most connections of the pool.", pool.get_max_size())
        yield GaugeMetricFamily(
            "runstate_calls_waiting", "Calls that wait for a database connection.", self._kernel.waiting
        )
        yield GaugeMetricFamily("runstate_open_polls", "Long polls open.", self._polls.open)
        yield GaugeMetricFamily("runstate_replicas", "Replicas alive on this database.", self._bus.replicas)
        yield GaugeMetricFamily(
            "runstate_listening", "1 while the listener is connected.", int(self._bus.listening)
        )
        woken = CounterMetricFamily("runstate_wakeups", "Long polls woken.", labels=["by"])
        for why, count in self._bus.woken_by.items():
            woken.add_metric([why], count)
        yield woken
        swept = CounterMetricFamily("runstate_swept", "Rows finished by sweeps.", labels=["sweep"])
        lag = GaugeMetricFamily("runstate_sweep_lag_seconds", "How late a sweep started.", labels=["sweep"])
        for name, count in self._sweeper.swept.items():
            swept.add_metric([name], count)
            lag.add_metric([name], self._sweeper.lag_s.get(name, 0.0))
        yield swept
        yield lag
        yield CounterMetricFamily(
            "runstate_journal_moved", "Events this process numbered.", self._sequencer.moved
        )
