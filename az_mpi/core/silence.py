"""A timer of silence: how long ago a rank, a job or a host gave its last sign of life, by this process's own clock."""

import math
import time
from collections.abc import Callable
from typing import Any


class SilenceTimer:
    """Measures the seconds without a sign of life: a call of `hear`, or a new value in `look`.

    Time in which this process could not have noticed a sign does not count. So at most `gap_s` seconds count between
    two looks, since this process may have been stopped, or may have waited for a file system; and none after `rest`.
    Only one thread may change a timer; any thread may call `seconds`.
    """

    def __init__(self, gap_s: float = math.inf, clock: Callable[[], float] = time.monotonic):
        """clock: seconds that never decrease."""
        self.value: Any = None
        self._gap_s = gap_s
        self._clock = clock
        self._state = 0.0, clock()  # seconds of silence until the newest look, and when that was

    def look(self, value: Any = None) -> float:
        """Look again, and return the seconds of silence: 0.0 if `value` has changed since the look before."""
        if value != self.value:
            self.value = value
            self.hear()
        else:
            self._state = self.seconds(), self._clock()
        return self._state[0]

    def hear(self) -> None:
        """Record a sign of life."""
        self._state = 0.0, self._clock()

    def rest(self) -> None:
        """Leave out the time since the newest look."""
        self._state = self._state[0], self._clock()

    def seconds(self) -> float:
        """Return the seconds of silence up to now."""
        silent_s, looked = self._state
        return silent_s + min(self._clock() - looked, self._gap_s)
