"""The games of a run as data for other programs: the descriptions in the files, and the programs of docs/data.md."""

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import Hashed, make_config, play_games

from az_mpi import games
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import GAMES, OFFSET, POLICIES, POSITIONS
from az_mpi.storage import segment

GAME = games.make("tictactoe")
PAGE = (Path(__file__).parents[2] / "docs/data.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COLUMNS = {
    f"{group}/{column.name}": column
    for group, columns in (("games", GAMES), ("positions", POSITIONS), ("policy", (*POLICIES, OFFSET)))
    for column in columns
    if column.name != "policy_count"
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run in it, as `make train` leaves one, of two segments."""
    folder = tmp_path_factory.mktemp("data")
    place = folder / "runs/connect4_quick"
    (place / "games").mkdir(parents=True)
    config = make_config("tictactoe", search={"simulations": 12}, selfplay={"parallel_games": 16})
    player = Player(config, GAME, Hashed(GAME), 3)
    for iteration in range(2):
        record = play_games(player, range(20 * iteration, 20 * iteration + 20), iteration)
        segment.write(place / "games", iteration, GAME, record, {"weights": "abc"})
    segment.link_all(place / "games", place / "games.h5")
    return folder


@pytest.fixture(scope="module")
def file(folder):
    with h5py.File(folder / "runs/connect4_quick/games/000001-000.h5") as file:
        yield file


def test_every_group_and_dataset_has_a_description(file):
    found = {f"{group}/{name}": dict(file[group][name].attrs) for group in file for name in file[group]}
    assert found.keys() == COLUMNS.keys()
    for name, attributes in found.items():
        column = COLUMNS[name]
        wanted = {"description": column.description, "unit": column.unit, "perspective": column.perspective}
        assert attributes == {key: text for key, text in wanted.items() if text} and "description" in attributes, name
    assert all(len(file[group].attrs["description"]) > 20 for group in file)


def test_stored_values_have_the_perspective_that_their_description_names(file):
    """Each value is compared with the result as the rules say it."""
    with_view = {name for name, column in COLUMNS.items() if column.perspective}
    assert with_view == {"games/outcome", "positions/value", "positions/root_value"}
    assert "player 0" in COLUMNS["games/outcome"].perspective
    assert all("player to move" in COLUMNS[name].perspective for name in ("positions/value", "positions/root_value"))
    ends = np.cumsum(file["games/length"][:])
    last, action = file["positions/state"][:][ends - 1], file["positions/action"][:][ends - 1]
    over = GAME.play(last, action)
    value, player = GAME.terminal(over)[1], GAME.to_play(over)
    assert file["games/outcome"][:].tolist() == np.where(player == 0, value, -value).tolist()
    mover = GAME.to_play(file["positions/state"][:])
    assert file["positions/to_play"][:].tolist() == mover.tolist()
    result = np.repeat(file["games/outcome"][:], file["games/length"][:])
    assert file["positions/value"][:].tolist() == np.where(mover == 0, result, -result).tolist()
    # The last move wins or draws: at these positions the search sees it, for the player who makes it.
    wins = file["positions/value"][:][ends - 1] == 1
    assert wins.any() and (file["positions/root_value"][:][ends - 1][wins] > 0).all()


def test_the_policies_of_positions_are_where_the_offsets_say(file):
    offset, probability = file["policy/offset"][:], file["policy/probability"][:]
    assert offset[0] == 0 and offset[-1] == len(probability) and (np.diff(offset) > 0).all()
    assert np.add.reduceat(probability, offset[:-1]).tolist() == pytest.approx(np.ones(len(offset) - 1))
    legal = GAME.legal(file["positions/state"][:])
    rows = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
    assert legal[rows, file["policy/action"][:]].all()


def test_the_page_lists_every_column_as_the_files_do():
    rows = [line for line in PAGE.splitlines() if re.match(r"\| `(games|positions|policy)/", line)]
    assert rows == [
        f"| `{name}` | {column.description} | {column.unit} | {column.perspective} |"
        for name, column in COLUMNS.items()
    ]


@pytest.mark.process
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_programs_of_the_page_print_what_it_says(folder, number):
    if "pandas" in PROGRAMS[number]:
        pytest.importorskip("pandas", reason="optional; it could not be installed here")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[number]], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = [
        ["^000001-000 ", "/games - finished games", "perspective"],
        ["value is the outcome for the player to move: True"],
        ["score_of_player_0", "difference of the search's value"],
    ]
    assert all(re.search(text, done.stdout) for text in expected[number]), done.stdout
