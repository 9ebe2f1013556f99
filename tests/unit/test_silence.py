"""The silence timer, by a clock of the test's."""

import pytest

from az_mpi.core.silence import SilenceTimer


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_silence_is_the_time_since_the_value_changed(clock):
    timer = SilenceTimer(clock=clock)
    for value, passed_s, expected in (("a", 3, 0), ("a", 2, 2), ("a", 5, 7), ("b", 1, 0), ("a", 4, 0), ("a", 6, 6)):
        clock.now += passed_s
        assert timer.look(value) == expected
    clock.now += 10
    assert timer.seconds() == 16 and timer.seconds() == 16, "asking is not looking"
    assert timer.look("a") == 16


def test_a_process_without_any_sign_is_silent_since_the_timer_began(clock):
    timer = SilenceTimer(clock=clock)
    clock.now += 4
    assert timer.seconds() == timer.look(None) == 4


def test_a_beat_without_a_value_is_a_sign(clock):
    timer = SilenceTimer(clock=clock)
    clock.now += 4
    timer.hear()
    assert timer.seconds() == 0
    clock.now += 3
    assert timer.seconds() == timer.look() == 3


def test_time_without_a_look_counts_up_to_the_gap(clock):
    """The watching process was stopped, for an hour for example, and the watched one was not."""
    timer = SilenceTimer(2.0, clock)
    for passed_s, expected in ((1, 1), (2, 3), (3600, 5), (1.5, 6.5)):
        clock.now += passed_s
        assert timer.seconds() == expected
        assert timer.look() == expected
    clock.now += 3600
    timer.hear()
    assert timer.seconds() == 0


def test_rest_leaves_out_the_time_since_the_last_look(clock):
    timer = SilenceTimer(clock=clock)
    clock.now += 5
    assert timer.look() == 5
    clock.now += 30
    timer.rest()
    assert timer.seconds() == 5
    clock.now += 1
    assert timer.look() == 6


def test_pauses_that_each_end_in_a_sign_do_not_add_up(clock):
    timer = SilenceTimer(clock=clock)
    for beat in range(10):
        clock.now += 9
        assert timer.look(beat) == 0
