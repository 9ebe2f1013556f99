"""Waiting without taking a core from threads that work."""

import time
from collections.abc import Callable

SPIN_S, FIRST_SLEEP_S = 0.0002, 2e-5


def poll(done: Callable[[], object], longest_s: float, tick: Callable[[], object] = lambda: None) -> None:
    """Call `done` until it returns true: without pauses for SPIN_S, then with sleeps that grow to `longest_s` and stay
    below half of the time waited. `tick` is called before each sleep."""
    start = time.perf_counter()
    pause = FIRST_SLEEP_S
    while not done():
        tick()
        if time.perf_counter() - start > SPIN_S:
            time.sleep(pause)
            pause = min(pause * 1.5, longest_s)
