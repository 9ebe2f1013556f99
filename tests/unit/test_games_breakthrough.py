"""Breakthrough: drawn boards, counts known from elsewhere, OpenSpiel."""

import numpy as np
import pytest
from helpers import stones
from referee import NUM_GAMES, agree, perft

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.bitboards import packed

BREAKTHROUGH, SMALL = games.make("breakthrough"), games.make("breakthrough(rows=5,columns=4)")


def drawn(drawing, player=0):
    """Return the state of a drawing of SMALL with `player` to move, [1, 3]."""
    sets = [packed(np.array(stones(drawing)).reshape(-1) == who)[0] for who in ("XO" if player == 0 else "OX")]
    return np.array([[*sets, player]], np.uint64)


def moves(state):
    return sorted(SMALL.action_to_text(state[0], a) for a in np.flatnonzero(SMALL.legal(state)[0]))


def after(state, word):
    return SMALL.play(state, np.array([SMALL.text_to_action(state[0], word)]))


@pytest.mark.parametrize(
    "name",
    [
        "breakthrough",
        "breakthrough(rows=4,columns=2)",
        "breakthrough(rows=6,columns=6)",
        "breakthrough(rows=5,columns=9)",
    ],
)
def test_check_accepts_many_sizes(name):
    assert games.check(games.make(name), num_games=16) == []


def test_the_number_of_games_is_as_known():
    assert perft(BREAKTHROUGH, 3) == [22, 484, 11132]


@pytest.mark.parametrize("rows, columns", [(8, 8), (6, 6), (5, 4)])
@NUM_GAMES
def test_openspiel_agrees(rows, columns, num_games):
    """There player 0 begins at the top, so that rows are numbered the other way round; captures end with a star."""
    name = f"breakthrough(rows={rows},columns={columns})"
    game, turned = games.make(name), {str(r): str(rows + 1 - r) for r in range(1, rows + 1)}

    def theirs(state, player, actions, other):
        numbers = {other.action_to_string(action).rstrip("*"): action for action in other.legal_actions()}
        words = ["".join(turned.get(c, c) for c in game.action_to_text(state, action)) for action in actions]
        return [numbers.get(word, -1) for word in words]

    agree(game, name, theirs, num_games)


def test_the_start():
    drawing = BREAKTHROUGH.show(BREAKTHROUGH.initial(1)[0]).splitlines()
    assert [line[0] for line in drawing] == list("OO....XX") and all(len(set(line.split())) == 1 for line in drawing)
    start = SMALL.initial(1)
    assert SMALL.show(start[0]) == "O O O O\n. . . .\n. . . .\n. . . .\nX X X X"
    assert moves(start) == "a1a2 a1b2 b1a2 b1b2 b1c2 c1b2 c1c2 c1d2 d1c2 d1d2".split()


def test_a_piece_ahead_blocks_and_one_diagonally_ahead_can_be_captured():
    before = drawn(
        """
        O O . O
        . . O .
        . . X .
        X . . .
        . . X X""",
        player=1,
    )
    assert moves(before) == "a5a4 a5b4 b5a4 b5b4 c4b3 c4d3 d5d4".split()
    second = after(before, "d5d4")
    assert moves(second) == "a2a3 a2b3 c1b2 c1c2 c1d2 c3b4 c3d4 d1c2 d1d2".split()
    assert SMALL.show(after(second, "c3d4")[0]) == "O O . .\n. . O X\n. . . .\nX . . .\n. . X X"


def test_pieces_capture_diagonally_only_and_do_not_go_round_the_edge():
    state = drawn("""
        O . . .
        . . . O
        . . O .
        X . X .
        . . . X""")
    assert moves(state) == "a2a3 a2b3 c2b3 c2d3 d1d2".split()
    state = drawn("""
        . . . .
        . O . .
        X . X O
        X . . .
        . . . .""")
    assert moves(state) == "a2b3 a3a4 a3b4 c3b4 c3c4 c3d4".split()


def test_both_players_see_themselves_go_up():
    state = drawn(
        """
        O . . .
        . . . .
        . . . .
        . . X .
        . . . .""",
        player=1,
    )
    own, other = SMALL.planes(state)[0]
    assert np.argwhere(own).tolist() == [[4, 3]] and np.argwhere(other).tolist() == [[1, 1]]
    assert moves(state) == ["a5a4", "a5b4"] and SMALL.action_to_text(state[0], 3 * 19 + 1) == "a5a4"


@pytest.mark.parametrize(
    "drawing, mover, word",
    [
        (". . . .  . X . .  . . . .  . . . O  . . . .", 0, "b4b5"),  # the last row
        ("X . . .  . . . .  . . . .  . . . O  . . . .", 1, None),
        (". . . .  . X . .  . . . .  . . . O  . . . .", 1, "d2c1"),
        (". . . .  . . O .  . X . .  . . . .  . . . .", 0, "b3c4"),  # the last piece
        (". . . .  . . O .  . X . .  . . . .  . . . .", 1, "c4b3"),
    ],
)
def test_the_last_row_or_the_last_piece_wins(drawing, mover, word):
    state = drawn("\n".join(" ".join(drawing.split()[4 * r : 4 * r + 4]) for r in range(5)), mover)
    if word:
        assert not SMALL.terminal(state)[0][0]
        state = after(state, word)
    assert [part.tolist() for part in SMALL.terminal(state)] == [[True], [-1.0]]


def test_names_and_what_is_refused():
    for name in ("breakthrough", "breakthrough(rows=6,columns=6)"):
        assert games.make(name).name == name
    for arguments, said in (
        ("rows=3", "rows is 3; allowed: a whole number from 4 to 16"),
        ("columns=1", "is 1"),
        ("rows=9", "rows x columns is 72; allowed: up to 64"),
    ):
        with pytest.raises(Refusal, match=said):
            games.make(f"breakthrough({arguments})")
