"""The solvers of Othello's endings and of small Hex, against retrograde analysis and known results."""

import os
import subprocess
import sys

import numpy as np
import pytest

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import SOLVERS
from az_mpi.evaluate import compiled_solvers
from az_mpi.evaluate.arena import silent
from az_mpi.evaluate.solver import enumerate_all


def solve(game, num=40):
    return SOLVERS.make(game.solver, game=game).solve(num, 0, 1, silent)


def assert_exact(game, solved):
    """Assert that retrograde analysis of all that can follow finds the same values."""
    exact = enumerate_all(game, solved.states)
    rows = {state.tobytes(): values for state, values in zip(exact.states, exact.action_values)}
    for state, legal, values in zip(solved.states, solved.legal, solved.action_values):
        assert (legal == game.legal(state[None])[0]).all()
        np.testing.assert_array_equal(values, rows[state.tobytes()])


@pytest.mark.parametrize(
    "name, empty", [("othello(size=4)", (10, 2)), ("othello(size=6)", (8, 3)), ("othello", (7, 3))]
)
def test_endings_of_othello(name, empty, monkeypatch):
    """With passes, and with games that end before the board is full."""
    monkeypatch.setattr(compiled_solvers, "EMPTY", empty)
    game = games.make(name)
    solved = solve(game)
    assert_exact(game, solved)
    assert len(solved.states) == 40 and {-1, 1} <= set(solved.values.tolist())


def test_endings_begin_at_ply_46():
    """A stone each ply, but for passes."""
    solved = solve(games.make("othello"), 200)
    stones = np.bitwise_count(solved.states[:, :2]).sum(axis=1)
    assert stones.max() <= 4 + 54 and np.quantile(stones, 0.2) >= 50 and len(solved.states) == 200


@pytest.mark.parametrize("name", ["hex(size=2)", "hex(size=3)", "hex(size=3,swap=True)"])
def test_small_hex(name, monkeypatch):
    game = games.make(name)
    monkeypatch.setattr(game, "solver", "hex")
    assert_exact(game, solve(game))


def test_hex_on_4_x_4(monkeypatch):
    """The winning openings are the cells of the short diagonal. Endings agree with retrograde analysis."""
    monkeypatch.setattr(compiled_solvers, "HEX_FIRST_PLY", 0)
    game = games.make("hex(size=4)")
    solved = solve(game)
    first = solved.states[:, :2].sum(axis=1) == 0
    words = [game.action_to_text(game.initial(1)[0], action) for action in np.flatnonzero(solved.keeps[first][0])]
    assert words == ["d1", "c2", "b3", "a4"]
    monkeypatch.setattr(compiled_solvers, "HEX_FIRST_PLY", 8)
    assert_exact(game, solve(game, 20))


def test_ranks_share_the_positions():
    game = games.make("othello(size=6)")
    solver = SOLVERS.make("auto", game=game)
    whole, parts = solver.solve(9, 0, 1, silent), [solver.solve(9, rank, 2, silent) for rank in range(2)]
    np.testing.assert_array_equal(whole.states[1::2], parts[1].states)
    np.testing.assert_array_equal(whole.action_values[::2], parts[0].action_values)


@pytest.mark.parametrize(
    "solver, name", [("othello", "connect4"), ("hex", "hex(size=5)"), ("hex", "othello"), ("bitbully", "othello")]
)
def test_other_games_are_refused(solver, name):
    with pytest.raises(Refusal, match="evaluate.solver"):
        SOLVERS.make(solver, game=games.make(name))


@pytest.mark.process
def test_a_second_process_solves_too(tmp_path):
    """It takes kernels from the cache that the first one filled. One that calls itself crashed there (Numba 0.68)."""
    program = (
        "from az_mpi import games; from az_mpi.core.registry import SOLVERS; from az_mpi.evaluate import arena\n"
        "for name, solver in ('othello(size=4)', 'othello'), ('hex(size=3)', 'hex'):\n"
        "    solved = SOLVERS.make(solver, game=games.make(name)).solve(20, 0, 1, arena.silent)\n"
        "    print(solved.action_values.tobytes().hex())"
    )
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path))
    first, second = (
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        for _ in range(2)
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
