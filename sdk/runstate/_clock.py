"""The clock that leases are measured on. It does not jump, whatever is done to the time of day, and goes on
while the machine sleeps, as the server's does: a computer that wakes up must not trust a lease that others
have taken meanwhile. (Where there is no such clock, the next renewal finds that out.)"""

import sys
import time

if sys.platform == "linux":

    def now() -> float:
        """Seconds since some moment, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds since some moment."""
        return time.monotonic()
