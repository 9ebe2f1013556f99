"""m,n,k-games of three players and more: lines, results of each player, planes, drawings."""

import numpy as np
import pytest
from helpers import after

from az_mpi import games
from az_mpi.core.problems import Refusal

GAME = games.make("mnk(m=5,n=4,k=3,players=3)")


def won(board, k):
    """Return whether a player's stones, bool [n, m], have k in a row."""
    rows = [*board, *board.T]
    for side in (board, board[:, ::-1]):
        rows += [np.diagonal(side, offset) for offset in range(-board.shape[0] + 1, board.shape[1])]
    return any("x" * k in "".join("x" if stone else " " for stone in row) for row in rows)


@pytest.mark.parametrize(
    "name", ["mnk(m=5,n=4,k=3,players=3)", "mnk(m=4,n=4,k=4,players=4)", "mnk(m=7,n=3,k=3,players=5)"]
)
def test_random_games_end_with_the_first_line_or_a_full_board(name):
    game, rng = games.make(name), np.random.default_rng(0)
    ends = set()
    for _ in range(60):
        board, states, P = np.full((game.n, game.m), -1), game.initial(1), game.num_players
        for ply in range(game.cells):
            assert game.to_play(states)[0] == ply % P
            assert (game.legal(states)[0].reshape(board.shape) == (board < 0)).all()
            planes = game.planes(states)[0]
            assert all((planes[k] == (board == (ply + k) % P)).all() for k in range(P))
            action = rng.choice(np.flatnonzero(board.ravel() < 0))
            board.ravel()[action] = ply % P
            states = game.play(states, np.array([action]))
            ended, values = game.terminal(states)
            wins = won(board == ply % P, game.k)
            assert ended[0] == (wins or ply == game.cells - 1)
            wanted = [1 if p == ply % P else -1 / (P - 1) for p in range(P)] if wins else [0] * P
            assert values[0] == pytest.approx(wanted) and values.shape == (1, P)
            ends.add((wins, ply % P) if ended[0] else None)
            if ended[0]:
                break
    assert {(True, p) for p in range(game.num_players)} <= ends or game.k == 4


def test_the_check_accepts_it():
    assert games.check(GAME, 16) == []


def test_games_of_two_players_stay_those_on_bitboards():
    assert games.make("mnk(m=3,n=3,k=3,players=2)").name == "tictactoe"
    assert GAME.name == "mnk(m=5,n=4,k=3,players=3)" and games.make(GAME.name).name == GAME.name


def test_boards_have_three_marks_and_the_winning_line():
    states = after(GAME, [0, 1, 5, 6, 2, 10, 12, 3])  # the last one is of player 1
    assert GAME.show(states[0]) == "X O O O .\nA X . . .\nA . X . .\n. . . . ."
    assert GAME.action_to_text(states[0], 0) == "a4" and GAME.action_to_text(states[0], 19) == "e1"


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("players=17", "from 2 to 16"),
        ("players=3,exact=True", "exact is True"),
        ("players=1", "players is 1"),
        ("m=2,players=3", "m is 2"),
    ],
)
def test_what_it_does_not_take_is_refused(arguments, said):
    with pytest.raises(Refusal, match=said):
        games.make(f"mnk({arguments})")
