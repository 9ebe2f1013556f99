"""python -m az_mpi check-game."""

import numpy as np
import pytest
from helpers import Ways

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.doctor import check_game

BROKEN = """
from az_mpi.games import connect4

class Rules(connect4.Rules):
    max_plies = 7
"""


def test_a_game_is_checked_timed_drawn_and_its_cost_told(capsys):
    assert check_game.main(["tictactoe"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("tictactoe: 9 actions, 2 planes of 3 x 3, 8 symmetries, at most 9 plies, 4 bytes a state")
    for word in ("rules hold", "the player who began", "canonical_key", "parameters (policy ", "trees", "window",
                 "self-play"):
        assert word in said


def test_broken_rules_and_wrong_names_are_told(capsys, tmp_path):
    (tmp_path / "own.py").write_text(BROKEN)
    assert check_game.main([f"{tmp_path}/own.py:Rules"]) == 1
    assert "broken: a game is longer than max_plies = 7" in capsys.readouterr().out
    for name in ("hexx", "hex(size=1)", f"{tmp_path}/other.py:Rules"):
        with pytest.raises(Refusal):
            check_game.main([name])


@pytest.mark.parametrize("mistake,told", [
    ("max_plies = property()", "own.py: AttributeError"), ("planes_shape = None", "own.py: TypeError"),
    ("def play(self, states, actions):\n        return states[99]", "own.py, line 6: IndexError")])
def test_mistakes_in_a_game_are_told_in_a_line(capsys, tmp_path, mistake, told):
    (tmp_path / "own.py").write_text(BROKEN.replace("max_plies = 7", mistake))
    assert check_game.main([f"{tmp_path}/own.py:Rules"]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("broken: ")]
    assert told in line


def test_random_positions_are_in_play():
    game = games.make("connect4")
    states, mean_plies = check_game.random_positions(game, np.random.default_rng(0))
    assert not game.terminal(states)[0].any() and len(states) == mean_plies * check_game.GAMES_NUM
    assert 15 < mean_plies < 30  # 21 to 22 on average


def test_the_end_of_a_game_is_drawn():
    """Of three plies: two positions, all moves, the result for who began."""
    before, moves, *rest = check_game.drawn_game(Ways(3), np.random.default_rng(1)).splitlines()
    assert before.startswith("a random game's last positions, after") and len(before.split("... ")[1].split()) == 2
    assert len(rest) == 2 and rest[0].endswith("for the player who began")
