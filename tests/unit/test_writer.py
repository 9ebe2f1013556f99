"""The segment writer: play continues while the file system fails, memory is bounded, no error is lost."""

import errno
import functools
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import Hashed, make_config, play_games

from az_mpi import games
from az_mpi.core.files import Forbidden
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import Record
from az_mpi.storage import checkpoint, segment, writer
from az_mpi.storage.writer import QUEUE_MAX, Writer

pytestmark = pytest.mark.process

ROOT, GAME = Path(__file__).parents[2], games.make("connect4")
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
    return Writer(tmp_path / "games", tmp_path / "games.h5", GAME)


class Disk:
    """Every fsync: waits while `answers` is not set, then fails for files with a name that holds one of `full`."""

    def __init__(self, fsync):
        self.fsync, self.answers, self.full, self.error = fsync, threading.Event(), set(), errno.EFBIG
        self.answers.set()

    def __call__(self, descriptor):
        self.answers.wait(LONG_S)
        if any(name in os.readlink(f"/proc/self/fd/{descriptor}") + "$" for name in tuple(self.full)):
            raise OSError(self.error, os.strerror(self.error))
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


def test_play_continues_while_the_disk_does_not_answer(segments, records, disk):
    disk.answers.clear()
    segments.submit(7, records[0], {})
    meanwhile = play(range(10, 12))
    assert meanwhile.positions.tobytes() == records[1].positions.tobytes()
    assert stored(segments.folder) == {}
    flushing = started(segments.flush)
    flushing.join(SOON_S)
    assert flushing.is_alive() and segments.writing_s() >= SOON_S
    disk.answers.set()
    flushing.join(LONG_S)
    assert stored(segments.folder) == {"000007-000": records[0].games["id"].tolist()} and segments.writing_s() == 0.0


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
def test_an_error_is_told_at_once_and_raised_by_each_later_call(segments, records, disk, caplog, call):
    disk.full.add("000007-000")
    segments.submit(7, records[0], {})
    calls = {"flush": segments.flush, "submit": lambda: segments.submit(9, records[5], {})}
    assert segments.rescue() == 0 and "a segment could not be written" in caplog.text
    with pytest.raises(OSError) as raised:
        calls[call]()
    assert raised.value.errno == errno.EFBIG
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names.index("_write") < names.index("write") < names.index("whole_file") < names.index("__call__")
    for again in calls.values():
        with pytest.raises(OSError) as later:
            again()
        assert later.value is raised.value
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
    assert len(raised) == 1 and raised[0].errno == errno.EFBIG


def test_what_can_be_written_after_an_error_is(segments, records, disk):
    disk.answers.clear()
    disk.full.add("000007-000")
    for iteration, record in zip((7, 8, 9), records):
        segments.submit(iteration, record, {})
    disk.answers.set()
    with pytest.raises(OSError, match="File too large"):
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
    assert segments.rescue() == 2
    assert SOON_S <= time.monotonic() - begun < LONG_S / 2
    disk.answers.set()
    monkeypatch.setattr(writer, "RESCUE_S", LONG_S)
    assert segments.rescue() == 0
    assert np.concatenate(list(stored(segments.folder).values())).tolist() == [0, 10, 11]


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EACCES", "EKEYEXPIRED"])
def test_an_error_that_may_pass_is_reported_and_waited_for(segments, records, disk, caplog, error):
    """Each at another step of the writing, and once after the segment has its name already."""
    caplog.set_level(logging.INFO, "az_mpi")
    disk.error = getattr(errno, error)
    disk.full.add("/games$" if error == "EIO" else "000007-000")  # the folder's own fsync comes after the rename
    segments.submit(7, records[0], {"weights": "abc"})
    flushing = started(segments.flush)
    while len(caplog.messages) < 2:
        time.sleep(0.01)
    assert flushing.is_alive()
    said = [text.count("games cannot be written: " + os.strerror(disk.error)) for text in caplog.messages]
    assert said[:2] == [1, 1] and set(said) == {1}  # on a slow machine it is said again
    assert caplog.messages[1].startswith("paused: ") and "MiB" in caplog.text and "storage.give_up_s" in caplog.text
    disk.full.clear()
    flushing.join(LONG_S)
    assert stored(segments.folder) == {"000007-000": records[0].games["id"].tolist()}
    assert "written now" in caplog.text and caplog.messages[-1].endswith("the run continues") and segments.ended is None


def test_play_continues_from_the_queue_while_the_disk_is_full(segments, records, disk):
    disk.error = errno.ENOSPC
    disk.full.add("0000")
    for record in records[:QUEUE_MAX]:
        segments.submit(7, record, {})
    waiting = started(lambda: segments.submit(7, records[QUEUE_MAX], {}))
    waiting.join(SOON_S)
    assert waiting.is_alive() and stored(segments.folder) == {}
    disk.full.clear()
    waiting.join(LONG_S)
    segments.flush()
    assert list(stored(segments.folder)) == [f"000007-{k:03d}" for k in range(QUEUE_MAX + 1)]


@pytest.mark.parametrize("why", ["patience", "stop"])
def test_a_run_that_waits_too_long_or_is_asked_to_stop_ends(segments, records, disk, monkeypatch, why):
    segments.give_up_s = SOON_S if why == "patience" else LONG_S
    monkeypatch.setattr(writer, "STOP_S", SOON_S)
    segments.requests.stop = why == "stop"
    disk.error = errno.ENOSPC
    disk.full.add("0000")
    segments.submit(7, records[0], {})
    begun = time.monotonic()
    segments.flush()
    assert SOON_S <= time.monotonic() - begun < LONG_S / 2
    assert "No space left" in segments.ended and segments.requests.stop
    segments.submit(7, records[2], {})
    assert segments.do(segments.folder / "x", lambda check: 1 / 0) is None
    assert segments.num_lost_games == len(records[0].games) + len(records[2].games)
    disk.full.clear()
    assert segments.rescue() == 0
    assert list(segments.folder.iterdir()) == []  # what the run has given up does not appear behind its back


def test_a_file_system_that_does_not_answer_is_given_up_too(segments, records, disk, monkeypatch):
    monkeypatch.setattr(writer, "STALL_S", SOON_S)
    segments.give_up_s = SOON_S
    disk.answers.clear()
    segments.submit(7, records[0], {})
    segments.flush()
    assert "does not answer" in segments.ended
    disk.answers.set()
    assert segments.rescue() == 0 and list(segments.folder.iterdir()) == []


def test_a_rename_whose_answer_is_lost_is_no_error(segments, records, monkeypatch, tmp_path):
    """A client of NFS asks a server that has restarted again, and hears that there is no such file."""

    def ask(call, again, *names):
        call(*names)
        if again and again.pop():
            call(*names)

    for name in ("replace", "rename"):  # of a file, of a folder
        monkeypatch.setattr(os, name, functools.partial(ask, getattr(os, name), [True]))
    segments.submit(7, records[0], {})
    state = checkpoint.Checkpoint(checkpoint.Progress(1), {}, {})
    segments.do(tmp_path, lambda check: checkpoint.save(tmp_path, state, 3, check))
    assert list(stored(segments.folder)) == ["000007-000"] and checkpoint.read(tmp_path / "000001") == state
    tries = []
    with pytest.raises(FileNotFoundError):
        segments.do(tmp_path, lambda check: (tries.append(1), os.stat(tmp_path / "none")))
    assert len(tries) == 2


def test_nothing_appears_once_the_lock_is_lost(segments, records):
    def lost():
        raise Forbidden("another job has taken the run over")

    segments.submit(7, records[0], {})
    segments.flush()
    segments.may_appear = lost
    segments.submit(7, records[1], {})
    assert segments.rescue() == 0
    assert segments.ended == "another job has taken the run over" and segments.requests.stop
    assert list(stored(segments.folder)) == ["000007-000"] and segments.num_lost_games == len(records[1].games)


@pytest.mark.parametrize("resumable", [False, True])
def test_a_folder_that_is_gone_ends_the_writer_and_is_no_error_of_its_own(segments, records, resumable):
    def lost():
        raise Forbidden("the run's folder is gone", resumable)

    segments.may_appear = lost
    segments.folder.rename(segments.folder.with_name("renamed"))
    segments.submit(7, records[0], {})
    segments.flush()
    assert segments.ended == "the run's folder is gone" and segments.resumable == resumable
    assert segments.do(segments.folder, lambda check: list(segments.folder.iterdir()), "read") is None
    assert not segments.folder.exists() and segments.requests.stop


def test_other_files_are_written_after_what_was_handed_over(segments, records, tmp_path):
    segments.submit(7, records[0], {})
    path = tmp_path / "x"
    found = segments.do(path, lambda check: (check(), path.write_text("x"), sorted(segments.folder.iterdir()))[2])
    assert [file.name for file in found] == ["000007-000.h5"] and path.read_text() == "x"
    with pytest.raises(ZeroDivisionError):
        segments.do(path, lambda check: 1 / 0)
    segments.flush()


FULL = """
import sys, errno, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
from pathlib import Path
from helpers import Hashed, make_config, play_games
from az_mpi import games
from az_mpi.storage import segment
from az_mpi.storage.writer import Writer
from az_mpi.selfplay.player import Player

folder, game = Path(sys.argv[2]), games.make("tictactoe")
settings = make_config("tictactoe", search={"simulations": 4}, selfplay={"parallel_games": 64})
(folder / "games").mkdir()
writer = Writer(folder / "games", folder / "games.h5", game)
pauses = []
writer.log.warning = lambda *text: "paused" in text[0] and pauses.append((folder / "ballast").unlink(missing_ok=True))
for k in range(12):
    record = play_games(Player(settings, game, Hashed(game), 3), range(64 * k, 64 * k + 64), iteration=0)
    writer.submit(0, record, {})
    # What a reader would find at any moment is whole.
    [segment.read(found.path, game) for found in segment.find(folder / "games")]
writer.flush()
ids = np.concatenate([segment.read(s.path, game).games["id"] for s in segment.find(folder / "games")])
assert sorted(ids.tolist()) == list(range(64 * 12)), ids
assert writer.ended is None
print("whole", len(pauses))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system of a given size needs root")
def test_a_file_system_that_is_really_full(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "az_mpi_test", place]).returncode:
        pytest.skip("this root may not mount")
    try:
        (place / "ballast").write_bytes(bytes(480 * 1024))
        words = [sys.executable, "-c", FULL, Path(__file__).parent, place]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert done.stdout == "whole 1\n", done.stdout + done.stderr
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call, error", [("fsync", "EIO"), ("rename", "ENOSPC"), ("fsync", "ESTALE")])
def test_errors_of_the_kernel_at_every_third_call(tmp_path, call, error):
    """strace makes system calls fail, on any file: what is on disk afterwards is whole and nothing is missing."""
    (tmp_path / "ballast").write_bytes(b"")
    names = "rename,renameat,renameat2" if call == "rename" else call
    log = tmp_path / "strace.txt"
    # Renames are all ours; the interpreter's own fsyncs there are none. -P keeps to the folder's.
    places = [] if call == "rename" else ["-P", tmp_path / "games", "-P", tmp_path]
    words = [
        "strace",
        "-f",
        "-qq",
        "-o",
        log,
        "-e",
        f"trace={names}",
        "-e",
        f"inject={names}:error={error}:when=2+3",
        *places,
        sys.executable,
        "-c",
        FULL,
        Path(__file__).parent,
        tmp_path,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.stdout.startswith("whole"), done.stderr
    assert log.read_text().count("(INJECTED)") > 2
