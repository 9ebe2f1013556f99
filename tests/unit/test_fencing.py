"""Self-fencing: what counts as asleep, in a real process; and who leaves, by a clock of the test's."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from az_mpi import fencing
from az_mpi.fencing import Fence, Reach

ROOT = Path(__file__).parents[2]
# A main thread that does something for two seconds, while another one prints for how long it is taken for asleep.
PROGRAM = """
import hashlib, os, subprocess, sys, threading, time
from az_mpi import watchdog
from az_mpi.fencing import Sleep

def look():
    sleep, seen = Sleep(), []
    for _ in range(12):
        seen.append(sleep.seconds())
        time.sleep(0.1)
    print(max(seen), flush=True)
    os._exit(0)

def work():
    while True:
        hashlib.sha256(bytes(1 << 20))

def waiting():
    with watchdog.waiting():
        time.sleep(1000)

def tick():
    while True:
        time.sleep(0.05)

def beside():
    threading.Thread(target=work, daemon=True).start()
    time.sleep(1000)

acts = {"sleep": lambda: time.sleep(1000), "read": lambda: os.read(os.pipe()[0], 1), "work": work, "waiting": waiting,
        "tick": tick, "beside": beside, "lock": lambda: threading.Lock().acquire() or threading.Event().wait()}
threading.Thread(target=look).start()
acts[sys.argv[1]]()
"""


@pytest.mark.parametrize("act, asleep", [
    ("sleep", True), ("read", True), ("lock", True),
    ("work", False), ("tick", False), ("waiting", False), ("beside", False),
])  # fmt: skip
def test_asleep_is_who_waits_in_one_place_while_nobody_works(act, asleep):
    said = subprocess.run([sys.executable, "-c", PROGRAM, act], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds = float(said.stdout)
    assert seconds > 0.6 if asleep else seconds < 0.4


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Rank:
    """A rank's fence of which the test sets everything that it sees; hang_s is 40."""

    def __init__(self, folder, slept_s=0.0, writing_s=0.0, answers=True):
        self.slept_s, self.answers, self.told = slept_s, answers, None
        self.fence = Fence(folder, 40.0, lambda: writing_s)
        self.fence.sleep.seconds = lambda: self.slept_s
        self.fence.reach._thread = "none"  # `beat` does what it would

    def beat(self):
        """Return what it tells root."""
        content, reach = self.fence.content(), self.fence.reach
        if self.answers and reach._wanted.is_set():
            reach._reached = fencing.time.monotonic()
        return content


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(fencing, "time", clock)
    return clock


def live(clock, ranks, seconds):
    """Let ranks beat each second; return (seconds, rank, why) of each that leaves, in order. Where one does, the others
    begin a recovery."""
    left, begun = [], clock.now
    for second in range(1, seconds + 1):
        clock.now = begun + second
        told = Fence.sum_up([(rank, one.beat()) for rank, one in ranks.items()])
        for rank, one in list(ranks.items()):
            one.slept_s += one.slept_s > 0
            if why := one.fence.settle() if left else one.fence.hear(told):
                left.append((clock.now - begun, rank, why))
                del ranks[rank]
    return left


def test_nobody_leaves_and_nothing_is_tried_while_all_get_on(clock, tmp_path):
    ranks = {rank: Rank(tmp_path) for rank in range(3)}
    assert live(clock, ranks, 500) == [] and not any(one.fence.reach._wanted.is_set() for one in ranks.values())


def test_who_does_not_get_at_its_files_leaves_where_another_does(clock, tmp_path):
    """Rank 0 hangs, and so do the files of its host's other rank, which has noticed nothing yet."""
    ranks = {0: Rank(tmp_path, slept_s=0.1, answers=False), 1: Rank(tmp_path, answers=False), 2: Rank(tmp_path)}
    left = live(clock, ranks, 200)
    assert [rank for _, rank, _ in left] == [0, 1] and all(40 <= second <= 42 for second, _, _ in left)
    assert left[0][2].endswith("but rank 2's has")


def test_nobody_leaves_where_nobody_gets_at_the_files(clock, tmp_path):
    ranks = {0: Rank(tmp_path, slept_s=0.1, answers=False), 1: Rank(tmp_path, answers=False)}
    assert live(clock, ranks, 300) == []


def test_a_file_system_may_come_back_for_one_rank_sooner_than_for_another(clock, tmp_path):
    ranks = {0: Rank(tmp_path, slept_s=0.1, answers=False), 1: Rank(tmp_path, answers=False)}
    assert live(clock, ranks, 300) == []
    ranks[1].answers = True
    assert live(clock, ranks, 19) == []
    ranks[0].answers, ranks[0].slept_s = True, 0.0
    assert live(clock, ranks, 100) == []


def test_who_sleeps_and_gets_at_its_files_leaves(clock, tmp_path):
    ranks = {0: Rank(tmp_path), 1: Rank(tmp_path, slept_s=0.1)}
    [(second, rank, why)] = live(clock, ranks, 200)
    assert rank == 1 and 40 <= second <= 42 and why.startswith("asleep for ")


def test_a_shorter_sleep_is_survived(clock, tmp_path):
    ranks = {0: Rank(tmp_path), 1: Rank(tmp_path, slept_s=0.1)}
    assert live(clock, ranks, 38) == []
    ranks[1].slept_s = 0.0
    assert live(clock, ranks, 100) == [] and not ranks[0].fence.reach._wanted.is_set()


def test_a_writer_that_is_slow_is_no_reason_where_the_folder_answers(clock, tmp_path):
    ranks = {0: Rank(tmp_path, writing_s=1000.0), 1: Rank(tmp_path)}
    assert live(clock, ranks, 200) == []


def test_0_turns_it_off(tmp_path):
    fence = Fence(tmp_path, 0.0, lambda: 1e6)
    told = Fence.sum_up([(0, fence.content()), (1, {"held_up_s": 0.0, "reaches": True})])
    assert fence.hear(told) is None and not fence.content()["reaches"]
    assert fence.reach._thread is None


@pytest.mark.parametrize("answers", [True, False])
def test_in_a_recovery_it_waits_until_it_knows(clock, tmp_path, answers):
    """Rank 0 has left: its neighbour, which was asked a moment ago, must not become root unless its files answer."""
    rank = Rank(tmp_path, answers=False)
    live(clock, {0: Rank(tmp_path, slept_s=20.0, answers=False), 1: rank, 2: Rank(tmp_path)}, 8)
    rank.answers = answers
    rank.beat()
    begun = clock.now
    assert bool(rank.fence.settle()) is not answers
    assert clock.now - begun == pytest.approx(0 if answers else 20 - 5, abs=0.1)  # asked for 5 s


def test_where_nobody_was_asked_a_recovery_waits_for_nothing(clock, tmp_path):
    rank = Rank(tmp_path)
    rank.beat()
    begun = clock.now
    assert rank.fence.settle() is None and clock.now == begun


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_try_is_a_file_that_is_made_and_removed(tmp_path, monkeypatch):
    made, create = [], fencing.files.create
    monkeypatch.setattr(fencing.files, "create", lambda path, body: made.append(path.name) or create(path, body))
    reach = Reach(tmp_path / ".reach.tmp", 0.01)
    assert reach.missing_s() == 0.0 and not reach.reached_within(1e9)
    reach.want(True)
    wait_until(lambda: len(made) > 2 and reach.reached_within(1.0))
    reach.want(False)
    time.sleep(0.1)
    count = len(made)
    time.sleep(0.1)
    assert len(made) == count and set(made) == {".reach.tmp"} and os.listdir(tmp_path) == []
    assert reach.missing_s() == 0.0
    reach.close()


def test_where_no_file_can_be_made_it_is_missed(tmp_path):
    reach = Reach(tmp_path / "absent" / ".reach.tmp", 0.01)
    reach.want(True)
    time.sleep(0.3)
    assert reach.missing_s() >= 0.3 and not reach.reached_within(1e9)
    (tmp_path / "absent").mkdir()
    wait_until(lambda: reach.reached_within(1.0))
    reach.close()
