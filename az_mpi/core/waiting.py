"""Waiting without holding the core that works."""

import time

SPIN_S, FIRST_SLEEP_S = 0.0002, 2e-5


def poll(done, longest_s, tick=lambda: None):
    """Call `done` until it returns true: busily for a moment, then with sleeps that grow to `longest_s`, always less
    than half of what was waited for. `tick` is called before each."""
    start, pause = time.perf_counter(), FIRST_SLEEP_S
    while not done():
        tick()
        if time.perf_counter() - start > SPIN_S:
            time.sleep(pause)
            pause = min(pause * 1.5, longest_s)
