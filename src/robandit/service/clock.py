"""The service's time, which flows evenly whatever is done to the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 0.1
"""Share by which the service's time may run faster or slower than real time, to come back to the machine's clock."""
GRACE = 3600.0
"""Seconds that open windows stay open after a start, unless they are shorter themselves."""


def ticks() -> float:
    """Seconds since the machine was started, which nobody can set; sleep counts where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ServiceClock:
    """Seconds since 1970. It goes on by real time, never jumps or stops, and drifts to ``wall`` by at most `SLEW`.

    >>> wall, real = [1000.0], [0.0]
    >>> clock = ServiceClock(lambda: wall[0], lambda: real[0])
    >>> wall[0] += 86_400.0                       # somebody sets the machine's clock a day ahead
    >>> real[0] += 10.0
    >>> clock() - 1000.0
    11.0
    >>> clock.at_least(2000.0), clock()           # the log is ahead: time goes on from there
    (2000.0, 2000.0)
    """

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = ticks) -> None:
        self._wall, self._ticks = wall, ticks
        self._at, self._tick = wall(), ticks()

    def __call__(self) -> float:
        tick = self._ticks()
        passed, self._tick = max(0.0, tick - self._tick), tick
        behind = self._wall() - (self._at + passed)
        self._at += passed + min(max(behind, -SLEW * passed), SLEW * passed)
        return self._at

    def at_least(self, at: float) -> float:
        """The time, which is from now on at least this: no event is before the one that it follows."""
        self._at = max(self(), at)
        return self._at
