"""The file format of segments: old and new HDF5 libraries and tools read it, and it notices damage by itself."""

import io
import os
import shutil
import struct
import subprocess
import sys
import venv
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import Hashed, by_id, make_config, play_games

from az_mpi import games
from az_mpi.core import files
from az_mpi.selfplay.player import Player
from az_mpi.storage import segment
from az_mpi.storage.segment import SegmentError

pytestmark = pytest.mark.process

GAME = games.make("tictactoe")
OLD = Path(__file__).parents[1] / "data" / "segment_of_hdf5_2.h5"
NUM_DATASETS = 17


@pytest.fixture(scope="module")
def record():
    settings = make_config("tictactoe", search={"simulations": 12}, selfplay={"parallel_games": 16})
    return play_games(Player(settings, GAME, Hashed(GAME), 3), range(25), iteration=7)


@pytest.fixture
def run(record, tmp_path):
    """Return a folder with games/000007-000.h5 and games.h5, which links to it."""
    (tmp_path / "games").mkdir()
    segment.write(tmp_path / "games", 7, GAME, record, {"weights": "abc123", "ranks": 4})
    segment.link_all(tmp_path / "games", tmp_path / "games.h5")
    return tmp_path


def layout_versions(content):
    """Return the version of the layout message in each object header (version 2 of them, without continuations)."""
    found, at = [], content.find(b"OHDR")
    while at >= 0:
        flags = content[at + 5]
        place = at + 6 + 16 * bool(flags & 32) + 4 * bool(flags & 16)
        size_bytes = 1 << (flags & 3)
        size = int.from_bytes(content[place : place + size_bytes], "little")
        place += size_bytes
        end = place + size
        while place + 4 <= end:
            kind, length = struct.unpack_from("<BH", content, place)
            place += 4 + 2 * bool(flags & 4)
            if kind == 8:
                found.append(content[place])
            place += length
        at = content.find(b"OHDR", at + 4)
    return found


def test_the_format_is_that_of_hdf5_1_10_whatever_library_writes_it(run):
    content = (run / "games/000007-000.h5").read_bytes()
    assert content[8] == (run / "games.h5").read_bytes()[8] == 3  # superblock: checksums, and not newer than 1.10
    assert layout_versions(content) == [4] * NUM_DATASETS  # what 1.10 brought; 2.0 has 5
    assert max(layout_versions(OLD.read_bytes())) == 5  # of this test's own reading


def test_a_segment_of_the_newest_format_is_still_read():
    """Until November 2026 segments had the newest format of their HDF5, and were compressed by LZF."""
    record = segment.read(OLD, GAME)
    assert record.games["length"].tolist() == [7, 8, 7, 8] and record.games["outcome"].tolist() == [1, -1, 1, -1]
    assert record.positions["action"][:7].tolist() == [6, 7, 4, 2, 3, 0, 5] and len(by_id(record)) == 4
    assert len(record.policy) == record.positions["policy_count"].sum()


def columns(content):
    with h5py.File(io.BytesIO(content)) as file:
        return {f"{group}/{name}": file[group][name][:].tobytes() for group in file for name in file[group]}


def test_hdf5_alone_notices_damage_of_any_column(run):
    """400 random flips over the file, read without a look at its SHA-256, as other programs do."""
    content = (run / "games/000007-000.h5").read_bytes()
    whole, rng, errors = columns(content), np.random.default_rng(0), 0
    for _ in range(400):
        damaged = bytearray(content)
        damaged[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        try:
            found = columns(bytes(damaged))
        except Exception:  # HDF5 has many ways to say that it does not understand a file
            errors += 1
        else:
            assert found == whole
    assert len(whole) == NUM_DATASETS and errors > 100


@pytest.mark.skipif(not shutil.which("h5dump"), reason="HDF5's tools are not installed (Debian: hdf5-tools)")
def test_hdf5_tools_print_a_segment(run, record):
    listed = subprocess.run(["h5ls", "-r", run / "games/000007-000.h5"], capture_output=True, text=True, check=True)
    assert listed.stdout.count("Dataset {") == NUM_DATASETS and "ERROR" not in listed.stdout
    for place, name in (("games/000007-000.h5", "/positions/value"), ("games.h5", "/000007-000/positions/value")):
        done = subprocess.run(["h5dump", "-y", "-w", "0", "-d", name, run / place], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        numbers = done.stdout.split("DATA {")[1].split("}")[0].replace(",", " ").split()
        assert list(map(float, numbers)) == record.positions["value"].tolist()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there is no wheel of h5py 3.10 for this Python")
def test_h5py_3_10_reads_a_segment(run, record, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", "h5py==3.10.*", "numpy<2"]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"h5py 3.10 cannot be installed: {done.stderr[-300:]}")
    code = (
        "import h5py, sys; file = h5py.File(sys.argv[1]); assert h5py.__version__ < '3.11', h5py.__version__; "
        "print(file['000007-000/positions/value'][:].tolist())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code, run / "games.h5"], capture_output=True, text=True, env=environment)
    assert done.stdout == f"{record.positions['value'].tolist()}\n", done.stderr


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(2**36)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "make, says", [(os.mkfifo, "not a plain file"), (os.mkdir, "not a plain file"), (sparse, "larger than")]
)
def test_a_file_that_is_no_segment_is_damaged_and_not_waited_for(run, make, says):
    path = run / "games/000008-000.h5"
    make(path)
    (run / "games.h5").unlink()
    make(run / "games.h5")
    with pytest.raises(SegmentError, match=f"000008-000.h5.*{says}"):
        segment.read(path, GAME)
    with pytest.raises(SegmentError, match=f"games.h5.*{says}"):
        segment.linked(run / "games.h5")
    told = []
    found = segment.find(run / "games", on_damage=lambda path, error: told.append((path.name, str(error))))
    assert [s.path.name for s in found] == ["000007-000.h5"] and [name for name, _ in told] == ["000008-000.h5"]
    assert says in told[0][1]


def test_a_segment_too_large_to_be_read_is_not_written(record, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DATA_BYTES_MAX", 1000)
    with pytest.raises(SegmentError, match="exchange.every_s"):
        segment.write(tmp_path, 7, GAME, record, {})
    assert list(tmp_path.iterdir()) == []
