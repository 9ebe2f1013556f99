"""A segment is read as it was written, by az_mpi and by h5py alone. Damage is an error, never other data."""

import os
import shutil
import tracemalloc

import h5py
import numpy as np
import pytest
from helpers import Hashed, by_id, make_config, play_games

from az_mpi import games
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import Record
from az_mpi.storage import segment
from az_mpi.storage.segment import SegmentError

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
PROVENANCE = {"weights": "abc123", "ranks": 4}


def record_of(ids, game=CONNECT4):
    settings = make_config(game.name, search={"simulations": 12}, selfplay={"parallel_games": 16})
    return play_games(Player(settings, game, Hashed(game), 3), ids, iteration=7)


@pytest.fixture(scope="module")
def record():
    return record_of(range(25))


@pytest.fixture
def written(record, tmp_path):
    return segment.write(tmp_path, 7, CONNECT4, record, PROVENANCE)


def same(one, other):
    return all(
        getattr(one, name).dtype == getattr(other, name).dtype
        and getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("games", "positions", "policy")
    )


@pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=lambda game: game.name)
def test_a_segment_that_is_read_equals_the_written_one(game, tmp_path):
    record = record_of(range(5), game)
    path = segment.write(tmp_path, 0, game, record, PROVENANCE).path
    assert same(segment.read(path, game), record) and len(by_id(record)) == 5


def test_a_segment_without_games_is_written_and_read(tmp_path):
    written = segment.write(tmp_path, 0, CONNECT4, Record.empty(CONNECT4), {})
    assert (written.num_games, written.num_positions) == (0, 0)
    assert same(segment.read(written.path, CONNECT4), Record.empty(CONNECT4))


def test_h5py_alone_finds_the_documented_names(written, record):
    assert written.path.name == "000007-000.h5"
    with h5py.File(written.path) as file:
        assert set(file) == {"games", "positions", "policy"}
        assert set(file["games"]) == {"id", "rank", "iteration", "length", "outcome", "truncated"}
        assert set(file["policy"]) == {"action", "probability", "offset"}
        for name in ("game", "ply", "state", "to_play", "action", "value", "root_value", "weight"):
            assert (file["positions"][name][:] == record.positions[name]).all()
        assert file["games/id"].dtype == np.uint64 and file["games/id"][:].tolist() == record.games["id"].tolist()
        attributes = dict(file.attrs)
        # The policy of position 11: its entries between two offsets.
        begin, end = file["policy/offset"][11:13]
        dense = np.zeros(7, np.float32)
        dense[file["policy/action"][begin:end]] = file["policy/probability"][begin:end]
        assert (dense == record.dense_policy(7)[11]).all()
        assert file["policy/offset"][0] == 0 and file["policy/offset"][-1] == len(file["policy/action"])
        assert len(file["policy/offset"]) == len(record.positions) + 1
    expected = {"schema_version": 2, "game": "connect4", "iteration": 7, "weights": "abc123", "ranks": 4}
    assert attributes.items() >= (expected | {"num_games": 25, "num_positions": len(record.positions)}).items()


def datasets(path):
    """Return {name: (offset, size) of its first chunk in the file}."""
    places = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            chunk = item.id.get_chunk_info(0)
            places[name] = chunk.byte_offset, chunk.size

    with h5py.File(path) as file:
        file.visititems(note)
    return places


def test_every_dataset_has_a_checksum(written):
    with h5py.File(written.path) as file:
        checked = {name: file[name].fletcher32 for name in datasets(written.path)}
    assert len(checked) == 6 + 8 + 3 and all(checked.values())
    assert written.path.read_bytes()[8] == 3  # version of the superblock whose own parts have checksums


def flip(path, offset, bit):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def test_a_flipped_bit_in_the_data_of_any_dataset_is_an_error_that_names_the_file(written, tmp_path):
    places = datasets(written.path)
    assert len(places) == 17
    copy = tmp_path / "damaged.h5"
    for k, (name, (offset, size)) in enumerate(places.items()):
        for at in (0, size // 2, size - 1):
            shutil.copy(written.path, copy)
            flip(copy, offset + at, k % 8)
            with pytest.raises(SegmentError, match="damaged.h5"):
                segment.read(copy, CONNECT4)
                pytest.fail(f"a bit of {name} is flipped, and nobody noticed")


def test_damage_anywhere_in_a_segment_never_gives_other_data(written, record, tmp_path):
    """150 random bits, one by one: an error, or in bytes that no one reads the very same record."""
    rng, size, copy, errors = np.random.default_rng(0), os.path.getsize(written.path), tmp_path / "copy.h5", 0
    for _ in range(150):
        shutil.copy(written.path, copy)
        flip(copy, int(rng.integers(size)), int(rng.integers(8)))
        try:
            assert same(segment.read(copy, CONNECT4), record)
        except SegmentError:
            errors += 1
    assert errors > 50


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_file_is_an_error_that_names_it(written, share):
    os.truncate(written.path, int(share * os.path.getsize(written.path)))
    for use in (lambda: segment.read(written.path, CONNECT4), lambda: segment.find(written.path.parent)):
        with pytest.raises(SegmentError, match="000007-000.h5"):
            use()


def test_segment_of_another_game_is_refused(written):
    with pytest.raises(SegmentError, match="000007-000.h5.*connect4.*tictactoe"):
        segment.read(written.path, TICTACTOE)


@pytest.mark.parametrize("version", [0, 3])
def test_segment_of_another_schema_is_refused(written, version):
    with h5py.File(written.path, "r+") as file:
        file.attrs["schema_version"] = version
    with pytest.raises(SegmentError, match=f"000007-000.h5: schema {version}"):
        segment.read(written.path, CONNECT4)


@pytest.mark.parametrize("gone", ["games/outcome", "positions/state", "policy/offset", "policy"])
def test_segment_without_a_column_is_an_error(written, gone):
    with h5py.File(written.path, "r+") as file:
        del file[gone]
    with pytest.raises(SegmentError, match="000007-000.h5"):
        segment.read(written.path, CONNECT4)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(SegmentError, match="nowhere.h5"):
        segment.read(tmp_path / "nowhere.h5", CONNECT4)


def test_a_segment_whose_writing_fails_leaves_nothing(record, tmp_path):
    with pytest.raises(TypeError):
        segment.write(tmp_path, 0, CONNECT4, record, {"weights": object()})
    assert list(tmp_path.iterdir()) == []


def test_segments_are_found_oldest_first_with_their_numbers(tmp_path):
    (tmp_path / "000001-000.h5.tmp").write_text("not a segment")
    (tmp_path / "notes.h5").write_text("nor this")
    counts = {}
    for iteration, num_games in ((2, 1), (10, 2), (2, 3), (1, 4), (2, 5)):
        counts.setdefault(iteration, []).append(num_games)
        segment.write(tmp_path, iteration, TICTACTOE, record_of(range(num_games), TICTACTOE), {})
    found = segment.find(tmp_path)
    assert [s.path.name for s in found] == [
        "000001-000.h5",
        "000002-000.h5",
        "000002-001.h5",
        "000002-002.h5",
        "000010-000.h5",
    ]
    assert [s.iteration for s in found] == [1, 2, 2, 2, 10]
    assert [s.num_games for s in found] == [4, 1, 3, 5, 2]
    assert [s.num_positions for s in found] == [len(segment.read(s.path, TICTACTOE).positions) for s in found]


def test_segment_1000_comes_after_segment_999(tmp_path):
    written = segment.write(tmp_path, 0, TICTACTOE, record_of([0], TICTACTOE), {}).path
    for name in ("000000-999.h5", "000000-1000.h5", "1000000-000.h5", "999999-000.h5"):
        shutil.copy(written, tmp_path / name)
    names = [s.path.name for s in segment.find(tmp_path)]
    assert names == ["000000-000.h5", "000000-999.h5", "000000-1000.h5", "999999-000.h5", "1000000-000.h5"]


def test_links_lead_to_all_segments_even_after_the_folder_has_moved(record, tmp_path):
    folder = tmp_path / "run" / "games"
    folder.mkdir(parents=True)
    for iteration in (0, 3):
        segment.write(folder, iteration, CONNECT4, record, {})
        segment.link_all(folder, tmp_path / "run" / "games.h5")
    os.rename(tmp_path / "run", tmp_path / "moved")
    with h5py.File(tmp_path / "moved" / "games.h5") as file:
        assert list(file) == ["000000-000", "000003-000"]
        for name in file:
            assert (file[name]["positions/state"][:] == record.positions["state"]).all()
        assert file["000003-000"].attrs["iteration"] == 3
    assert sorted(p.name for p in (tmp_path / "moved").iterdir()) == ["games", "games.h5"]


def test_a_new_segment_never_replaces_one_that_is_there(tmp_path):
    for n in (1, 2):
        segment.write(tmp_path, 0, TICTACTOE, record_of(range(n), TICTACTOE), {})
    (tmp_path / "000000-000.h5").rename(tmp_path / "000000-000.h5.damaged")
    segment.write(tmp_path, 0, TICTACTOE, record_of(range(5), TICTACTOE), {})
    assert [s.num_games for s in segment.find(tmp_path)] == [2, 5]


def test_listing_the_segments_of_one_iteration_takes_no_memory_for_the_others(tmp_path):
    """Root does so in each iteration of a run that may have thousands."""
    for number in range(3000):
        (tmp_path / f"{number:06d}-000.h5").touch()
    (tmp_path / "000007-001.h5").touch()
    tracemalloc.start()
    try:
        assert segment.next_path(tmp_path, 7).name == "000007-002.h5" and segment.find(tmp_path, 3000) == []
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()
