"""The segment writer: play goes on while the file system does not, memory is bounded, no error is lost."""

import errno
import fcntl
import os
import struct
import termios
import threading
import time
import traceback

import h5py
import numpy as np
import pytest
from helpers import Hashed, make_config, play_games

from az_mpi import games
from az_mpi.data import segment, writer
from az_mpi.data.segment import SegmentError
from az_mpi.data.writer import QUEUE_MAX, SegmentWriter
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import Record

GAME = games.make("connect4")
SOON_S, LONG_S = 0.3, 30


def play(ids):
    settings = make_config("connect4", search={"simulations": 12}, selfplay={"parallel_games": 16})
    return play_games(Player(settings, GAME, Hashed(GAME), 3), ids, iteration=7)


@pytest.fixture(scope="module")
def records():
    return [play(range(10 * k, 10 * k + k + 1)) for k in range(QUEUE_MAX + 2)]


@pytest.fixture
def segments(tmp_path):
    """Return a writer into tmp_path/games."""
    (tmp_path / "games").mkdir()
    return SegmentWriter(tmp_path / "games", tmp_path / "games.h5", GAME)


class Disk:
    """Every fsync: waits while `answers` is not set, then fails for files with a name that holds one of `full`."""

    def __init__(self, fsync):
        self.fsync, self.answers, self.full = fsync, threading.Event(), set()
        self.answers.set()

    def __call__(self, descriptor):
        self.answers.wait(LONG_S)
        if any(name in os.readlink(f"/proc/self/fd/{descriptor}") for name in self.full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.fsync(descriptor)


@pytest.fixture
def disk(monkeypatch):
    disk = Disk(os.fsync)
    monkeypatch.setattr(os, "fsync", disk)
    yield disk
    disk.answers.set()


def stored(folder):
    """Return the ids of the games in each segment, by its name."""
    return {s.path.stem: segment.read(s.path, GAME).games["id"].tolist() for s in segment.find(folder)}


def started(call):
    """Call in a thread; return it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_segments_have_the_names_and_contents_that_writing_at_once_gives(segments, records, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for folder in (segments.folder, other):
        segment.write(folder, 7, GAME, records[0], {}).path.rename(folder / "000007-004.h5")
    for iteration, record in zip((7, 7, 8), records[1:]):
        segments.submit(iteration, record, {"weights": "abc"})
        segment.write(other, iteration, GAME, record, {"weights": "abc"})
    segments.flush()
    names = ["000007-004.h5", "000007-005.h5", "000007-006.h5", "000008-000.h5"]
    assert sorted(path.name for path in segments.folder.iterdir()) == names
    for name in names:
        assert (segments.folder / name).read_bytes() == (other / name).read_bytes()
    with h5py.File(tmp_path / "games.h5") as file:
        assert [f"{name}.h5" for name in file] == names
        assert file["000008-000/games/id"][:].tolist() == records[3].games["id"].tolist()


def test_play_goes_on_while_the_disk_does_not_answer(segments, records, disk):
    disk.answers.clear()
    segments.submit(7, records[0], {})
    meanwhile = play(range(10, 12))
    assert meanwhile.positions.tobytes() == records[1].positions.tobytes()
    assert stored(segments.folder) == {}
    flushing = started(segments.flush)
    flushing.join(SOON_S)
    assert flushing.is_alive()
    disk.answers.set()
    flushing.join(LONG_S)
    assert stored(segments.folder) == {"000007-000": records[0].games["id"].tolist()}


def test_play_goes_on_while_the_kernel_holds_the_write(segments, records):
    """A pipe of one page in the segment's place: the writer's thread stands in a real system call."""
    pipe = segments.folder / f".000007-000.h5.{os.getpid()}.tmp"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    segments.submit(7, records[3], {})
    deadline = time.monotonic() + LONG_S
    while struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0] < 4096:
        assert time.monotonic() < deadline
    assert len(play(range(10, 12)).games) == 2
    os.set_blocking(end, True)
    with open(end, "rb") as file:
        content = file.read()
    assert len(content) > 2 * 4096  # it still stood in it
    (segments.folder / "whole.h5").write_bytes(content)
    same = segment.read(segments.folder / "whole.h5", GAME)
    assert same.positions.tobytes() == records[3].positions.tobytes()
    os.close(os.open(pipe, os.O_WRONLY))  # a pipe is opened from both ends at once, here by the writer's fsync
    with pytest.raises(OSError) as raised:  # which a pipe does not know
        segments.flush()
    assert raised.value.errno == errno.EINVAL


def test_a_full_queue_waits_for_the_disk(segments, records, disk):
    disk.answers.clear()
    for record in records[:QUEUE_MAX]:
        segments.submit(7, record, {})
    waiting = started(lambda: segments.submit(7, records[QUEUE_MAX], {}))
    waiting.join(SOON_S)
    assert waiting.is_alive()
    disk.answers.set()
    waiting.join(LONG_S)
    assert not waiting.is_alive()
    segments.flush()
    expected = {f"000007-{k:03d}": records[k].games["id"].tolist() for k in range(QUEUE_MAX + 1)}
    assert stored(segments.folder) == expected


def test_a_record_without_games_makes_no_segment_but_renews_the_links(segments, records, tmp_path):
    segment.write(segments.folder, 7, GAME, records[0], {})
    segments.submit(7, Record.empty(GAME), {})
    segments.flush()
    assert list(stored(segments.folder)) == ["000007-000"]
    with h5py.File(tmp_path / "games.h5") as file:
        assert list(file) == ["000007-000"]


@pytest.mark.parametrize("call", ["flush", "submit"])
def test_an_error_is_raised_by_the_next_call_once_and_never_forgotten(segments, records, disk, call):
    disk.full.add("000007-000")
    segments.submit(7, records[0], {})
    calls = {"flush": segments.flush, "submit": lambda: segments.submit(9, records[5], {})}
    assert segments.rescue()[0] == 0  # it has happened, and nobody has been told
    with pytest.raises(OSError) as raised:
        calls[call]()
    assert raised.value.errno == errno.ENOSPC
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names.index("_write") < names.index("write") < names.index("whole_file") < names.index("__call__")
    for again in calls.values():
        with pytest.raises(SegmentError, match="could not be written before") as later:
            again()
        assert later.value.__cause__ is raised.value
    assert list(segments.folder.iterdir()) == []  # and what was refused is not written behind one's back


def test_a_call_that_waits_raises_what_happens_meanwhile(segments, records, disk):
    disk.answers.clear()
    for record in records[:QUEUE_MAX]:
        segments.submit(7, record, {})
    disk.full.add("000007-000")
    raised = []

    def submit():
        try:
            segments.submit(7, records[QUEUE_MAX], {})
        except OSError as error:
            raised.append(error)

    waiting = started(submit)
    waiting.join(SOON_S)
    assert waiting.is_alive() and not raised
    disk.answers.set()
    waiting.join(LONG_S)
    assert len(raised) == 1 and raised[0].errno == errno.ENOSPC


def test_what_can_be_written_after_an_error_is(segments, records, disk):
    disk.answers.clear()
    disk.full.add("000007-000")
    for iteration, record in zip((7, 8, 9), records):
        segments.submit(iteration, record, {})
    disk.answers.set()
    with pytest.raises(OSError, match="No space left"):
        segments.flush()
    expected = {"000008-000": records[1].games["id"].tolist(), "000009-000": records[2].games["id"].tolist()}
    assert stored(segments.folder) == expected
    assert not [path for path in segments.folder.iterdir() if path.name.endswith(".tmp")]


def test_a_failing_run_waits_for_the_disk_but_not_for_ever(segments, records, disk, monkeypatch):
    disk.answers.clear()
    monkeypatch.setattr(writer, "RESCUE_S", SOON_S)
    for record in records[:2]:
        segments.submit(7, record, {})
    begun = time.monotonic()
    assert segments.rescue() == (2, None)
    assert SOON_S <= time.monotonic() - begun < LONG_S / 2
    disk.answers.set()
    monkeypatch.setattr(writer, "RESCUE_S", LONG_S)
    assert segments.rescue() == (0, None)
    assert np.concatenate(list(stored(segments.folder).values())).tolist() == [0, 10, 11]


def test_a_failing_run_learns_of_an_error_that_no_call_has_raised(segments, records, disk):
    disk.full.add("000007-000")
    segments.submit(7, records[0], {})
    unwritten_num, error = segments.rescue()
    assert unwritten_num == 0 and error.errno == errno.ENOSPC
    with pytest.raises(OSError):
        segments.flush()
    assert segments.rescue() == (0, None)
