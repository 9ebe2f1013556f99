"""The watchdog: its rule for hangs, and real processes that it kills or does not kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from az_mpi.liveness import watchdog
from az_mpi.liveness.watchdog import LONGER, PATIENCE_S, HangRule

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
LOOK_S = watchdog.LOOK_EVERY_S


class Rank:
    """A rank as the watchdog sees it, look by look."""

    def __init__(self, hang_s=10.0):
        self.now, self.hang_s, self.count, self.steps = 0.0, hang_s, 0, 0
        self.rule = HangRule(lambda: self.now)

    def stay(self, seconds, stopped=False):
        """Return after how many seconds without a sign of life it is killed, None if it is not."""
        for look in range(1, round(seconds / LOOK_S) + 1):
            self.now += LOOK_S
            if self.rule.look(self.count, self.steps, self.hang_s, stopped):
                return look * LOOK_S
        return None

    def step(self, seconds):
        """Take one step of self-play of so many seconds."""
        killed = self.stay(seconds - LOOK_S)
        self.count, self.steps = self.count + 1, self.steps + 1
        return killed or self.stay(LOOK_S)


@pytest.mark.parametrize("steps", [0, 5])
def test_a_stopped_rank_is_killed_after_hang_s_whatever_it_was_doing(steps):
    rank = Rank(15.0)
    rank.steps = steps
    for _ in range(3):  # shorter pauses do not add up
        assert rank.stay(9, stopped=True) is None and rank.step(0.5) is None
    assert 15 < rank.stay(100, stopped=True) <= 15 + 2 * LOOK_S


def test_a_long_wait_and_a_short_pause_in_it_are_not_a_hang():
    """An example is a trainer that waits for another one."""
    rank = Rank(10.0)
    assert rank.stay(100) is None and rank.stay(1, stopped=True) is None and rank.stay(100) is None


def test_in_self_play_silence_is_a_hang_and_elsewhere_only_after_long():
    rank = Rank(10.0)
    assert rank.step(200) is None and rank.step(0.5) is None  # the first may compile, and is no measure of the others
    assert 10 < rank.stay(100) <= 10 + 2 * LOOK_S
    assert PATIENCE_S < Rank(10.0).stay(2 * PATIENCE_S) <= PATIENCE_S + 2 * LOOK_S


def test_waiting_for_others_is_no_hang_and_no_measure():
    """An example is a trainer that computes 0.5 s of a step and waits 30 s for the others."""
    rank = Rank(10.0)
    for _ in range(5):
        assert rank.step(0.5) is None
        done, rank.steps, rank.count = rank.steps, 0, rank.count + 1  # what `waiting` does
        assert rank.stay(30) is None
        rank.steps, rank.count = done, rank.count + 1
        rank.stay(LOOK_S)
    assert 10 < rank.stay(100) <= 10 + 2 * LOOK_S


def test_a_step_is_no_hang_before_one_was_measured():
    rank = Rank(10.0)
    assert rank.step(70.0) is None and rank.step(70.0) is None and rank.step(300.0) is None


def test_a_slow_rank_is_given_a_multiple_of_its_longest_step():
    rank = Rank(10.0)
    for seconds in (0.5, 4.0, 0.5):
        assert rank.step(seconds) is None
    assert LONGER * 4.0 - 2 * LOOK_S <= rank.stay(1000) <= LONGER * 4.0 + 2 * LOOK_S


def test_hang_s_0_leaves_only_the_longest_limit():
    rank = Rank(0.0)
    rank.step(0.5)
    assert rank.stay(PATIENCE_S / 2, stopped=True) is None
    assert rank.stay(PATIENCE_S / 2) is None


PROGRAM = """
import sys, time
from az_mpi.liveness import watchdog
watchdog.start(7)
watchdog.expect(1.0, 3)
print("ready", flush=True)
with watchdog.steps():
    for _ in range(10**9 if sys.argv[1] == "steps" else 10):
        time.sleep(0.1)
        watchdog.step()
    if sys.argv[1] != "brief":
        time.sleep(1000)
with watchdog.brief():
    while True:  # as who waits for a GPU does
        pass
"""


@pytest.fixture
def ranks():
    """Return start(what) -> a process that steps, and hangs after 1 s: in a step ("hangs"), in a block that is "brief",
    or never ("steps")."""
    processes = []

    def start(what):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, what], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def dog_of(process):
    """Return the process number of its watchdog."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


@pytest.mark.parametrize("what", ["hangs", "brief"])
def test_a_process_that_hangs_is_killed_and_the_reason_is_printed(ranks, what):
    process = ranks(what)
    assert process.wait(30) == -signal.SIGKILL
    text = process.stderr.read()
    assert text.startswith("rank 3 on ") and "in a step: killed (fault.hang_s)" in text and text.count("\n") == 1


def test_a_process_that_is_stopped_is_killed_and_one_that_pauses_is_not(ranks):
    process, other = ranks("steps"), ranks("steps")
    begun = time.monotonic()
    process.send_signal(signal.SIGSTOP)
    other.send_signal(signal.SIGSTOP)
    time.sleep(0.4)
    other.send_signal(signal.SIGCONT)
    assert process.wait(30) == -signal.SIGKILL and time.monotonic() - begun >= 1.0 - 2 * LOOK_S
    assert "stopped by a signal" in process.stderr.read()
    assert other.poll() is None


def test_the_watchdog_ends_with_its_rank(ranks):
    process = ranks("steps")
    dog = dog_of(process)
    assert os.getsid(dog) == dog != os.getsid(process.pid)  # what the job is sent does not reach it
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until and Path(f"/proc/{dog}").exists() and dog_lives(dog):
        time.sleep(0.05)
    assert not dog_lives(dog)


def dog_lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_signs_of_life_before_the_watchdog_is_started_do_nothing():
    with watchdog.steps():
        watchdog.step()
    watchdog.tick()
    assert watchdog._words[watchdog._STEPS] == 0
