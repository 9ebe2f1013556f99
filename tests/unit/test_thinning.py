"""Which networks and games of a long run are kept."""

import pytest

from az_mpi.core.files import Forbidden
from az_mpi.run.run_files import RunFiles
from az_mpi.storage.segment import Segment
from az_mpi.storage.thinning import Removed, finish, removed, spread, thin_games, thin_networks


def grown(num_iterations, every, num):
    """Return what is kept of a run that adds a network at every so many iterations, and thins each time."""
    kept = []
    for iteration in range(every, num_iterations + 1, every):
        kept = spread([*kept, iteration], num)
    return kept


@pytest.mark.parametrize("num", [2, 3, 8, 64])
def test_a_run_of_any_length_keeps_at_most_so_many_networks_the_first_and_the_newest_half(num):
    for length in (1, num, num + 1, 20 * num):
        kept, every = grown(length, 1, num), list(range(1, length + 1))
        assert len(kept) == min(num, length)
        assert kept[0] == 1 and kept[-(num // 2) :] == every[-(num // 2) :]


def test_older_networks_lie_evenly_on_a_logarithmic_scale():
    """Of 2,000, the 32 older ones: the largest step between neighbours is at most four times the even one, or one
    interval between evaluations where that is larger."""
    kept = grown(10_000, 5, 64)
    older = kept[:33]  # with the first of the newest half
    even = (older[-1] / older[0]) ** (1 / 32)
    assert all(new <= max(old * even**4, old + 5) for old, new in zip(older, older[1:]))
    assert sum(iteration <= 100 for iteration in kept) >= 8  # the beginning, where a run learns fastest, has its share


def test_networks_of_an_old_run_are_thinned_at_once_and_other_files_stay(tmp_path):
    for iteration in range(1, 51):
        (tmp_path / f"{iteration:06d}.safetensors").touch()
    (tmp_path / "copy of 000006.safetensors").touch()  # a user's
    (tmp_path / "000007.safetensors.damaged").touch()
    thin_networks(tmp_path, 8)
    kept = sorted(int(path.stem) for path in tmp_path.glob("??????.safetensors"))
    assert len(kept) == 8 and kept[0] == 1 and kept[-4:] == [47, 48, 49, 50]
    assert len(list(tmp_path.iterdir())) == 10
    thin_networks(tmp_path, 8)
    assert len(list(tmp_path.iterdir())) == 10


def test_nothing_is_removed_where_there_is_no_folder_or_few_networks(tmp_path):
    thin_networks(tmp_path / "best", 2)
    (tmp_path / "000001.safetensors").touch()
    thin_networks(tmp_path, 2)
    assert len(list(tmp_path.iterdir())) == 1


def segments(folder, sizes):
    """Make segments of so many positions each, one for each iteration, with a tenth as many games."""
    made = [Segment(folder / f"{k:06d}-000.h5", k, size // 10, size) for k, size in enumerate(sizes)]
    for one in made:  # as a segment ends
        counts = b"az_mpi segment counts %020d %020d az_mpi segment sha256 " % (one.num_games, one.num_positions)
        one.path.write_bytes(counts + b"0" * 64)
    return made


def left(folder):
    return sorted(int(path.name[:6]) for path in folder.glob("*.h5"))


def test_the_oldest_segments_are_removed_as_far_as_enough_positions_are_left_and_are_counted(tmp_path):
    made = segments(tmp_path, [100] * 10)
    thin_games(tmp_path, made, 350, end=9)
    assert left(tmp_path) == [6, 7, 8, 9]
    assert removed(tmp_path)[:2] == (60, 600)
    thin_games(tmp_path, made[6:], 0, end=9)  # those of the newest iterations stay
    assert left(tmp_path) == [9]
    assert removed(tmp_path)[:2] == (90, 900)
    thin_games(tmp_path, made[9:], 1, end=20)
    assert left(tmp_path) == [9] and removed(tmp_path)[:2] == (90, 900)


@pytest.mark.parametrize("num_games, first", [(0, 6), (1, 5), (10, 5), (11, 4), (25, 3), (60, 0), (900, 0)])
def test_before_the_oldest_iteration_that_stays_so_many_games_stay_as_thresholds_are_made_of(
    tmp_path, num_games, first
):
    """In whole iterations, and whole that iteration itself: the newest games of one may be in any of its segments."""
    made = segments(tmp_path, [100] * 10)
    made[6:6] = [Segment(tmp_path / f"000006-00{k}.h5", 6, 10, 100) for k in (1, 2)]
    for one in made[6:8]:
        one.path.touch()
    thin_games(tmp_path, made, 350, 9, num_games)
    assert left(tmp_path) == [*range(first, 6), *([6] * (3 if num_games else 1)), 7, 8, 9]


def test_a_removal_that_was_broken_off_counts_each_game_once_and_is_completed_later(tmp_path, monkeypatch):
    (tmp_path / "games").mkdir()
    made, unlink = segments(tmp_path / "games", [100] * 6), type(tmp_path).unlink

    def killed(path, **how):
        if path.name == "000001-000.h5":
            raise KeyboardInterrupt
        unlink(path, **how)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(tmp_path), "unlink", killed)
        thin_games(tmp_path / "games", made, 300, end=9)
    assert left(tmp_path / "games") == [1, 2, 3, 4, 5]
    files = RunFiles(tmp_path, None, 600.0)
    assert [one.iteration for one in files.segments()] == [3, 4, 5]
    assert files.removed().num_positions + sum(one.num_positions for one in files.segments()) == 600
    thin_games(tmp_path / "games", made, 300, end=9)  # a writer tries again with the segments that it had found
    assert left(tmp_path / "games") == [3, 4, 5]
    assert files.removed()[:2] == (30, 300)
    thin_games(tmp_path / "games", made[3:], 200, end=9)
    assert files.removed()[:2] == (40, 400)


def test_a_run_that_continues_from_an_older_checkpoint_keeps_the_games_that_it_plays_again(tmp_path):
    """Their segments get the names of those that were removed."""
    (tmp_path / "games").mkdir()
    made = segments(tmp_path / "games", [100] * 6)
    thin_games(tmp_path / "games", made, 300, end=9)
    (tmp_path / "games" / made[1].path.name).touch()  # a removal that was broken off
    finish(tmp_path / "games", forget=False)
    assert left(tmp_path / "games") == [3, 4, 5] and removed(tmp_path / "games") == Removed(30, 300, [])
    segments(tmp_path / "games", [100] * 3)  # played again
    files = RunFiles(tmp_path, None, 600.0)
    assert [one.iteration for one in files.segments()] == [0, 1, 2, 3, 4, 5]
    thin_games(tmp_path / "games", files.segments(), 1000, end=9)
    assert left(tmp_path / "games") == [0, 1, 2, 3, 4, 5]
    finish(tmp_path / "games", forget=True)
    assert removed(tmp_path / "games") == Removed() and len(left(tmp_path / "games")) == 6


def test_a_damaged_record_of_what_was_removed_counts_as_none(tmp_path):
    assert removed(tmp_path) == Removed()
    for text in ("{", "[]", '{"num_games": 1}'):
        (tmp_path / "removed.json").write_text(text)
        assert removed(tmp_path) == Removed()


def test_nothing_is_removed_by_a_job_that_has_lost_the_folder(tmp_path):
    def lost():
        raise Forbidden("another job has it")

    made = segments(tmp_path, [100] * 4)
    (tmp_path / "000001.safetensors").touch(), (tmp_path / "000002.safetensors").touch()
    (tmp_path / "000003.safetensors").touch()
    for remove in (lambda: thin_games(tmp_path, made, 100, 9, 0, lost), lambda: thin_networks(tmp_path, 2, lost)):
        with pytest.raises(Forbidden):
            remove()
    assert left(tmp_path) == [0, 1, 2, 3] and len(list(tmp_path.glob("*.safetensors"))) == 3
    assert removed(tmp_path) == Removed()
