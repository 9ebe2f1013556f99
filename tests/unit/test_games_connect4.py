"""The rules of Connect Four, against drawn boards, counts and a game on lists."""

from itertools import combinations

import numpy as np
import pytest
from helpers import CONNECT4, board, moves_of, stones

from az_mpi import games

TICTACTOE = games.make("tictactoe")

FOURS = {
    "upright": """
        . . . . . . .
        . . . . . . .
        . . X . . . .
        . . X . . . .
        . . X O . . .
        . . X O O . .""",
    "level": """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . O O O .
        . . . X X X X""",
    "rising": """
        . . . . . . .
        . . . . . . .
        . . . X . . .
        . . X O . . .
        . X O O . . .
        X O X O X . .""",
    "falling": """
        X . . . . . .
        O X . . . . .
        O O X . . . .
        X O X X . . .
        X X O O . . .
        O X O X . . O""",
    "by the player who came second": """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . X
        . . . . . . X
        O O O O X . X""",
}

# Four stones of the player who moved last, one after the other where one column's top or one edge meets the next.
NOT_FOURS = {
    "upright, from column 3 into 4": """
        . . X . . . .
        . . X . . . .
        . . X . . . .
        . . O . . . .
        O . O . . . .
        O . O X . X X""",
    "upright, two and two": """
        . . X . . . .
        . . X . . . .
        . . O . . . .
        . . O . . . .
        . . X X . . .
        . . O X . O .""",
    "level, from the right edge to the left": """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        O . . . . . O
        X X . . O X X""",
    "level with a gap": """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . O O . . O .
        . X X . X X .""",
}

FULL = """
    O X O X O X O
    O X O X O X O
    X O X O X O X
    X O X O X O X
    O X O X O X O
    X O X O X O X"""


@pytest.mark.parametrize("drawing", FOURS.values(), ids=FOURS)
def test_four_in_a_row_ends_the_game_and_the_player_to_move_has_lost(drawing):
    ended, value = CONNECT4.terminal(board(CONNECT4, drawing))
    assert ended.tolist() == [True] and value.tolist() == [-1.0]


@pytest.mark.parametrize("drawing", NOT_FOURS.values(), ids=NOT_FOURS)
def test_no_line_runs_over_the_edge_of_the_board(drawing):
    ended, value = CONNECT4.terminal(board(CONNECT4, drawing))
    assert ended.tolist() == [False] and value.tolist() == [0.0]


def test_of_all_sets_of_four_cells_just_the_69_lines_win():
    cells = [(c, r) for c in range(7) for r in range(6)]
    lines = {
        frozenset((c + k * dc, r + k * dr) for k in range(4))
        for c, r in cells
        for dc, dr in ((0, 1), (1, 0), (1, 1), (1, -1))
        if (c + 3 * dc, r + 3 * dr) in cells
    }
    assert len(lines) == 69
    fours = list(combinations(cells, 4))
    bits = np.array([[1 << (7 * c + r) for c, r in four] for four in fours], np.uint64).sum(axis=1, dtype=np.uint64)
    ended, value = CONNECT4.terminal(np.stack([np.zeros_like(bits), bits], axis=1))
    assert {frozenset(fours[k]) for k in np.flatnonzero(ended)} == lines and (value == -ended.astype(float)).all()


def test_full_column_is_illegal():
    state = board(
        CONNECT4,
        """
        . . X . . . O
        . . O . . . X
        . . X . . . O
        . . O X . . X
        . . X O . . O
        . O O X . . X""",
    )
    assert CONNECT4.legal(state)[0].tolist() == [True, True, False, True, True, True, False]


def test_full_board_without_a_line_is_a_draw():
    """Reached by moves, the last of them in the last open cell."""
    moves = moves_of(CONNECT4, FULL)
    assert len(moves) == CONNECT4.max_plies == 42
    states = CONNECT4.initial(1)
    for move in moves:
        assert CONNECT4.terminal(states)[0].tolist() == [False] and CONNECT4.legal(states)[0, move]
        states = CONNECT4.play(states, np.array([move]))
    ended, value = CONNECT4.terminal(states)
    assert ended.tolist() == [True] and value.tolist() == [0.0] and not CONNECT4.legal(states).any()


def test_the_last_stone_can_win():
    ninth = board(
        TICTACTOE,
        """
        X O X
        O X O
        O X X""",
    )
    assert [part.tolist() for part in TICTACTOE.terminal(ninth)] == [[True], [-1.0]]


def test_positions_of_connect_four_are_counted_right():
    """Known counts of the positions after 0, 1, … stones (OEIS A212693)."""
    states, counts = CONNECT4.initial(1), []
    for _ in range(8):
        counts.append(len(states))
        row, action = np.nonzero(CONNECT4.legal(states) & ~CONNECT4.terminal(states)[0][:, None])
        states = np.unique(CONNECT4.play(states[row], action), axis=0)
    assert counts == [1, 7, 49, 238, 1120, 4263, 16422, 54859]


def _rows(state):
    """Return a state of Connect Four as lists of rows, by its drawing."""
    return stones("\n".join(CONNECT4.show(state[0]).splitlines()[:6]))


def _has_line(rows):
    """Whether any player has four in a row, looked for cell by cell."""
    cells = {(r, c): rows[r][c] for r in range(6) for c in range(7) if rows[r][c] != "."}
    directions = ((0, 1), (1, 0), (1, 1), (1, -1))
    return any(
        all(cells.get((r + k * dr, c + k * dc)) == who for k in range(4))
        for (r, c), who in cells.items()
        for dr, dc in directions
    )


def test_connect_four_agrees_with_a_game_on_lists():
    """40 random games played to their ends beside one on lists of rows, every position compared."""
    rng = np.random.default_rng(5)
    results = {True: 0, False: 0}
    for _ in range(40):
        states, rows = CONNECT4.initial(1), [["."] * 7 for _ in range(6)]
        for ply in range(43):
            line, open_columns = _has_line(rows), [rows[0][c] == "." for c in range(7)]
            ended, value = CONNECT4.terminal(states)
            assert ended[0] == (line or not any(open_columns)) and value[0] == -float(line)
            assert CONNECT4.legal(states)[0].tolist() == open_columns
            assert CONNECT4.to_play(states).tolist() == [ply % 2]
            assert _rows(states) == rows
            if ended[0]:
                results[line] += 1
                break
            column = int(rng.choice(np.flatnonzero(open_columns)))
            lowest = max(r for r in range(6) if rows[r][column] == ".")
            rows[lowest][column] = "XO"[ply % 2]
            states = CONNECT4.play(states, np.array([column]))
    assert results[True] + results[False] == 40


def test_the_mirror_of_connect_four():
    drawing = """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        X . . . . . .
        O O . . . . .
        X X . O . . ."""
    mirrored = "\n".join(" ".join(reversed(row)) for row in stones(drawing))
    cells, actions = CONNECT4.symmetry_cells, CONNECT4.symmetry_actions
    planes = CONNECT4.planes(board(CONNECT4, drawing)).reshape(2, 42)
    assert len(cells) == 2
    assert (planes[:, cells[1]] == CONNECT4.planes(board(CONNECT4, mirrored)).reshape(2, 42)).all()
    assert actions[1].tolist() == [6, 5, 4, 3, 2, 1, 0]
