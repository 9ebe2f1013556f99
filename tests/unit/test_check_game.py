"""python -m az_mpi check-game: what it prints of good, doubtful and broken games."""

import numpy as np
import pytest
from helpers import Ways

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.base import after
from az_mpi.plan import check_game

BROKEN = """
from az_mpi.games import connect4

class Rules(connect4.Rules):
    max_plies = 7
"""


def test_a_good_game_is_described_timed_drawn_and_its_cost_estimated(capsys):
    assert check_game.main(["tictactoe"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("tictactoe: 9 actions, 2 planes of 3 x 3, 8 symmetries, at most 9 plies, 4 bytes a state")
    for word in (
        "rules hold",
        "the player who began",
        "canonical_key",
        "parameters (policy ",
        "trees",
        "window",
        "self-play",
    ):
        assert word in said


def test_broken_rules_give_status_1_and_wrong_names_are_refused(capsys, tmp_path):
    (tmp_path / "own.py").write_text(BROKEN)
    assert check_game.main([f"{tmp_path}/own.py:Rules"]) == 1
    said = capsys.readouterr().out
    assert "broken: a game is longer than max_plies = 7" in said and "terminal" in said
    assert "\n    1 2 3 4 5 6 7\n" in said  # a state is drawn
    for name in ("hexx", "hex(size=1)", f"{tmp_path}/other.py:Rules"):
        with pytest.raises(Refusal):
            check_game.main([name])


@pytest.mark.parametrize(
    "mistake,told",
    [
        ("max_plies = property()", "own.py: AttributeError"),
        ("planes_shape = None", "own.py: TypeError"),
        ("def play(self, states, actions):\n        return states[99]", "own.py, line 6: IndexError"),
    ],
)
def test_an_exception_in_a_game_is_reported_in_one_line(capsys, tmp_path, mistake, told):
    (tmp_path / "own.py").write_text(BROKEN.replace("max_plies = 7", mistake))
    assert check_game.main([f"{tmp_path}/own.py:Rules"]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("broken: ")]
    assert told in line


def test_random_positions_are_not_terminal():
    game = games.make("connect4")
    states, mean_plies = check_game.random_positions(game, np.random.default_rng(0))
    assert not game.terminal(states)[0].any() and len(states) == mean_plies * check_game.NUM_GAMES
    assert 15 < mean_plies < 30  # 21 to 22 on average


def test_an_end_won_by_each_player_is_drawn():
    """A game of three plies: all moves are shown, two positions, and the result for the player who began."""
    first, second = check_game.drawn_ends(Ways(3), np.random.default_rng(1)).split("\n\n")
    for text, sign, who in ((first, "+", "began"), (second, "-", "moved second")):
        before, _, result, end = text.splitlines()
        assert before.startswith(f"a random game with a win of the player who {who}, after ")
        assert len(before.split("after ")[1].split()) == 2 and end.startswith("[3 ")
        assert f": {sign}" in result and "is to move" in result


class Draws(Ways):
    """Nobody wins."""

    def terminal(self, states):
        ended, value = super().terminal(states)
        return ended, 0 * value


class Firsts(Ways):
    """The player who begins wins each game."""

    def terminal(self, states):
        ended, value = super().terminal(states)
        return ended, np.where(self.to_play(states) == 0, abs(value), -abs(value))


def test_a_draw_is_drawn_if_nobody_wins_and_results_that_never_occur_are_named():
    draw, never = check_game.drawn_ends(Draws(3), np.random.default_rng(1)).split("\n\n")
    assert draw.startswith("a random game with a draw") and "who began or a win of the player who moved second" in never
    _, never = check_game.drawn_ends(Firsts(3), np.random.default_rng(1)).split("\n\n")
    assert never == "no random game ended with a win of the player who moved second"


def test_the_actions_of_random_games_lead_to_their_results():
    game = Ways(4, twice=True)
    played = check_game.played_games(game, np.random.default_rng(0))
    assert len(played) == check_game.NUM_GAMES
    for actions, values in played:
        end = after(game, actions)[None]
        value = game.terminal(end)[1][0]
        assert game.terminal(end)[0][0] and values == (
            [value, -value] if game.to_play(end)[0] == 0 else [-value, value]
        )


WARNED = """
import numpy as np
from boxes import Boxes

class Rules(Boxes):
    def __init__(self):
        super().__init__(planes="no mover")
"""


def test_a_warning_is_announced_first_printed_last_and_gives_status_0(capsys, tmp_path):
    (tmp_path / "own.py").write_text(WARNED)
    assert check_game.main([f"{tmp_path}/own.py:Rules"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "BUT SEE THE 1 WARNING AT THE END" in "".join(said[:20])
    [start] = [i for i, line in enumerate(said) if line.startswith("WARNING: planes do not show who is to move")]
    assert "to_play 0" in "".join(said[start:]) and "to_play 1" in "".join(said[start:])


def test_games_of_each_kind_are_described_drawn_and_timed(capsys, tmp_path):
    said = {}
    for name in ("Digits", "Dice", "Trio"):
        base = {"Digits": "Digits", "Dice": "Pig", "Trio": "Trio"}[name]
        (tmp_path / f"{name}.py").write_text(f"from kinds import {base}\n\nclass Own({base}):\n    pass\n")
        assert check_game.main([f"{tmp_path}/{name}.py:Own"]) == 0
        said[name] = capsys.readouterr().out
    assert "digits: 1 player, 2 actions, " in said["Digits"] and "a value of " in said["Digits"]
    assert said["Digits"].count("a random game, after") == 2 and " units" in said["Digits"]
    assert "pig: 2 actions, 6 outcomes of chance" in said["Dice"] and "\n  chances " in said["Dice"]
    assert "[6]" in said["Dice"] or "[5]" in said["Dice"] or "[4]" in said["Dice"]
    assert "trio: 3 players, " in said["Trio"] and "a random game with a win of player 2" in said["Trio"]
    assert ", +1 for player 2" in said["Trio"]
