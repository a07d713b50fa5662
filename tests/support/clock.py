"""The kernel's clock in tests: shifted, never waited for."""

from datetime import datetime

from tests.support import database


class Clock:
    """The clock of one database of the test build."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._table = f"{database.kernel_schema()}.test_clock"

    def shift(self, seconds: float) -> None:
        """Move the clock on (or, negative, back) from where it stands.
        The next call of any server sees it; a sleeping long poll when it is woken or at the slow tick."""
        database.execute(
            self._url, f"UPDATE {self._table} SET shift = shift + make_interval(secs => $1)", float(seconds)
        )

    def to_the_next(self, window_s: int) -> None:
        """Move it on to a second after the next window of so many seconds begins: a test that goes on from
        there meets no other turn of the window, whatever time of the day it is."""
        self.shift(window_s - self.now().timestamp() % window_s + 1)

    def now(self) -> datetime:
        """What it shows."""
        return database.fetchval(self._url, f"SELECT {database.kernel_schema()}.kernel_now()")

    def reset(self) -> None:
        """Back to the database's own time."""
        database.execute(self._url, f"UPDATE {self._table} SET shift = '0'")
