"""Hang detection: what counts as asleep, in a real process; and which rank leaves, by a clock of the test's."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from az_mpi.liveness import hang_detection
from az_mpi.liveness.hang_detection import FolderProbe, HangDetector
from az_mpi.liveness.watchdog import PATIENCE_S

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
# A main thread that does something for two seconds, while another one prints for how long it is taken for asleep.
PROGRAM = """
import hashlib, os, subprocess, sys, threading, time
from az_mpi.liveness import watchdog
from az_mpi.liveness.hang_detection import MainThread

def look():
    main, seen = MainThread(), []
    for _ in range(20):
        seen.append(main.asleep_s())
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
        "tick": tick, "beside": beside, "lock": threading.Event().wait}
threading.Thread(target=look).start()
acts[sys.argv[1]]()
"""


@pytest.mark.parametrize(
    "act, asleep",
    [
        ("sleep", True),
        ("read", True),
        ("lock", True),
        ("work", False),
        ("tick", False),
        ("waiting", False),
        ("beside", False),
    ],
)
def test_a_process_whose_main_thread_waits_in_one_place_while_no_thread_works_is_asleep(act, asleep):
    said = subprocess.run([sys.executable, "-c", PROGRAM, act], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds = float(said.stdout)
    assert seconds > 1.2 if asleep else seconds < 1.2


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Rank:
    """A rank's detector of which the test sets everything that it sees; hang_s is 40."""

    def __init__(self, folder, rank, clock, slept_s=0.0, writing_s=0.0, answers=True):
        self.slept_s, self.answers = slept_s, answers
        self.detector = HangDetector(folder, rank, 40.0, lambda: writing_s, clock, clock.sleep)
        self.detector.main.asleep_s = lambda: self.slept_s

    def beat(self):
        """Return what it tells root, and do what `FolderProbe` does in its thread."""
        facts = self.detector.facts()
        if self.answers and is_asked(self):
            self.detector.folder.try_once()
        return facts


def is_asked(rank):
    return rank.detector.folder._wanted.is_set()


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(FolderProbe, "_run", lambda self: None)
    monkeypatch.setattr(HangDetector, "spared_until", 0.0)
    return Clock()


@pytest.fixture
def make(clock, tmp_path):
    """Return make(of rank 0, of rank 1, …) -> {rank: Rank}."""
    return lambda *each: {rank: Rank(tmp_path, rank, clock, **what) for rank, what in enumerate(each)}


def live(clock, ranks, seconds):
    """Let ranks beat each second; return (seconds, rank, why) of each that leaves, in order. Where one does, the others
    begin a recovery."""
    left, begun = [], clock.now
    for second in range(1, seconds + 1):
        clock.now = max(clock.now, begun + second)
        told = HangDetector.sum_up({rank: one.beat() for rank, one in ranks.items()})
        for one in ranks.values():
            one.slept_s += one.slept_s > 0
        for losses in (False, True):
            for rank, one in list(ranks.items()):
                if why := (left and one.detector.settle()) if losses else one.detector.hear(told):
                    left.append((clock.now - begun, rank, why))
                    del ranks[rank]
    return left


FINE, SLEEPS, HANGS = {}, {"slept_s": 0.1}, {"slept_s": 0.1, "answers": False}


def test_while_no_rank_is_held_up_none_leaves_and_no_file_is_tried(clock, make):
    ranks = make(FINE, FINE, FINE)
    assert live(clock, ranks, 500) == [] and not any(map(is_asked, ranks.values()))


def test_a_rank_that_the_folder_does_not_answer_leaves_if_it_answers_another(clock, make):
    """Rank 0 hangs, and so do the files of its host's other rank, which has noticed nothing yet."""
    left = live(clock, make(HANGS, {"answers": False}, FINE), 200)
    assert [rank for _, rank, _ in left] == [0, 1] and all(40 <= second <= 42 for second, _, _ in left)
    assert all(why.endswith("but answers rank 2") for _, _, why in left)


def test_where_the_folder_answers_no_rank_none_leaves(clock, make):
    assert live(clock, make(HANGS, {"answers": False}), 300) == []


def test_a_file_system_may_answer_one_rank_later_than_another(clock, make):
    """The difference may be as long as it was away for all, and half of hang_s at least."""
    ranks = make(HANGS, HANGS)
    assert live(clock, ranks, 300) == []
    ranks[1].answers, ranks[1].slept_s = True, 0.0
    assert live(clock, ranks, 270) == []
    ranks[0].answers, ranks[0].slept_s = True, 0.0
    assert live(clock, ranks, 100) == [] and not any(map(is_asked, ranks.values()))


def test_a_rank_that_the_folder_answers_now_and_then_stays(clock, make):
    """Its files are slow, and another one's are not: it has an answer every 15 s."""
    ranks = make(HANGS, FINE)
    for _ in range(20):
        ranks[0].answers = False
        assert live(clock, ranks, 14) == []
        ranks[0].answers, ranks[0].slept_s = True, 0.1
        assert live(clock, ranks, 1) == []


def test_a_rank_that_sleeps_though_the_folder_answers_it_leaves(clock, make):
    [(second, rank, why)] = live(clock, make(FINE, SLEEPS), 200)
    assert rank == 1 and 40 <= second <= 42 and why.startswith("asleep for ")


def test_of_several_ranks_that_sleep_the_first_one_leaves_and_no_other_for_long(clock, make):
    """Such as a file that hangs, which root and then the next root read."""
    ranks = make(FINE, SLEEPS, SLEEPS)
    ranks[2].slept_s = 1.5
    [(second, rank, _)] = live(clock, ranks, 200)
    assert rank == 2 and 38 <= second <= 41
    [(second, rank, _)] = live(clock, ranks, 2000)
    assert rank == 1 and PATIENCE_S - 200 <= second <= PATIENCE_S


def test_a_rank_that_sleeps_less_than_the_limit_stays(clock, make):
    ranks = make(FINE, SLEEPS)
    assert live(clock, ranks, 38) == []
    ranks[1].slept_s = 0.0
    assert live(clock, ranks, 100) == [] and not any(map(is_asked, ranks.values()))


def test_a_rank_whose_writer_is_slow_stays_where_the_folder_answers(clock, make):
    assert live(clock, make({"writing_s": 1000.0}, FINE), 200) == []


def test_a_rank_whose_writer_waits_for_a_folder_that_does_not_answer_leaves(clock, make):
    [(_, rank, _)] = live(clock, make({"writing_s": 1000.0, "answers": False}, FINE), 200)
    assert rank == 0


def test_hang_s_of_0_turns_hang_detection_off(tmp_path):
    detector = HangDetector(tmp_path, 0, 0.0, lambda: 1e6)
    told = HangDetector.sum_up({0: detector.facts(), 1: {"slept_s": 0.0, "held_up_s": 0.0, "answered": True}})
    assert detector.hear(told) is None and not detector.facts()["answered"]
    assert detector.folder.silent_s() == 0.0 and list(tmp_path.iterdir()) == []
    detector.close()


@pytest.mark.parametrize("answers", [True, False])
def test_in_a_recovery_a_rank_waits_until_it_knows_whether_the_folder_answers(clock, make, answers):
    """Rank 0 has left: its neighbour, which was asked a moment ago, must not become root unless its files answer."""
    ranks = make({"slept_s": 20.0, "answers": False}, {"answers": False}, FINE)
    live(clock, ranks, 15)
    ranks[1].answers = answers
    ranks[1].beat()
    begun = clock.now
    assert bool(ranks[1].detector.settle()) is not answers
    assert clock.now - begun == pytest.approx(0 if answers else 20 - 12, abs=0.1)  # asked for 12 s


def test_a_recovery_does_not_wait_where_no_rank_was_held_up(clock, make):
    [rank] = make(FINE).values()
    rank.beat()
    begun = clock.now
    assert rank.detector.settle() is None and clock.now == begun


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_probe_of_a_folder_makes_and_removes_a_file(tmp_path, monkeypatch):
    made, create = [], hang_detection.files.create
    monkeypatch.setattr(hang_detection.files, "create", lambda path, body: made.append(path.name) or create(path, body))
    probe = FolderProbe(tmp_path / ".probe.tmp", 0.01)
    assert probe.silent_s() == 0.0 and not probe.answered_within(1e9)
    probe.want(True)
    wait_until(lambda: len(made) > 2 and probe.answered_within(1.0))
    probe.want(False)
    time.sleep(0.1)
    count = len(made)
    time.sleep(0.1)
    assert len(made) == count and set(made) == {".probe.tmp"} and os.listdir(tmp_path) == []
    assert probe.silent_s() == 0.0
    probe.close()


def test_an_error_of_a_file_system_that_is_gone_is_no_answer(tmp_path, clock, monkeypatch):
    """Such as ESTALE; that it is full is one."""
    said = [errno.ESTALE]

    def create(path, body):
        raise OSError(said[0], os.strerror(said[0]))

    monkeypatch.setattr(hang_detection.files, "create", create)
    probe = FolderProbe(tmp_path / ".probe.tmp", 0.01, clock)
    probe.want(True)
    clock.now += 3
    probe.try_once()
    assert probe.silent_s() == 3 and not probe.answered_within(1e9)
    said[0] = errno.ENOSPC
    probe.try_once()
    assert probe.silent_s() == 0 and probe.answered_within(1.0)
