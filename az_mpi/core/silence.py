"""How long nothing has been heard of somebody: measured by one's own clock, so that clocks need not agree."""

import math
import time


class SilenceTimer:
    """Measures for how many seconds somebody has given no sign of life.

    A sign of life is a call of `hear`, or a value that differs from the one seen before. Time in which this process
    could not have noticed a sign does not count: of the time between two looks at most `gap_s` seconds do, since this
    process may have been stopped, or may have waited for a file system; none do after `rest`. Only one thread may
    change a timer; `seconds` is for any thread.
    """

    def __init__(self, gap_s: float = math.inf, clock=time.monotonic):
        """clock: returns seconds that never go back."""
        self.value = None
        self._gap_s, self._clock = gap_s, clock
        self._state = 0.0, clock()  # seconds of silence until the newest look, and when that was

    def look(self, value=None) -> float:
        """Look again, and return the seconds of silence: 0.0 if `value` has changed since the look before."""
        if value != self.value:
            self.value = value
            self.hear()
        else:
            self._state = self.seconds(), self._clock()
        return self._state[0]

    def hear(self) -> None:
        """Take note of a sign of life."""
        self._state = 0.0, self._clock()

    def rest(self) -> None:
        """Leave out the time since the newest look."""
        self._state = self._state[0], self._clock()

    def seconds(self) -> float:
        """Return the seconds of silence up to now."""
        silent_s, looked = self._state
        return silent_s + min(self._clock() - looked, self._gap_s)
