"""Exact values to compare a player with: small games whole, Connect Four by the package BitBully where it is installed.

Shapes: P positions, S numbers a state, A actions. All values are -1, 0 or 1 for the player to move.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from az_mpi.core.registry import SOLVERS
from az_mpi.evaluate.arena import silent
from az_mpi.evaluate.openings import distinct

# The positions are the same in every run, so that figures of different runs compare.
POSITIONS_SEED = 0
# Before ply 4 there is little to choose from; after ply 30 hardly any move can go wrong.
CONNECT4_PLIES = 4, 30
# What `Solver.share` has solved. A job asks for one share, and for another one after each loss of a rank.
SOLVED: dict[tuple, Any] = {}


@dataclass(frozen=True)
class Solved:
    """Positions in play and what each move is worth."""

    states: np.ndarray  # [P, S]
    legal: np.ndarray  # bool [P, A]
    action_values: np.ndarray  # float32 [P, A] for the player to move at the position; nan where illegal

    @property
    def values(self):
        """The positions' own values, float32 [P]: those of their best moves."""
        return np.nanmax(self.action_values, axis=1)

    @property
    def keeps(self):
        """Which moves are legal and keep the position's value, bool [P, A]."""
        return self.action_values == self.values[:, None]

    def part(self, rank, size):
        """Return every `size`-th position, from number `rank` on."""
        # States as a copy without gaps, for which the kernels are compiled already.
        return Solved(self.states[rank::size].copy(), self.legal[rank::size], self.action_values[rank::size])


class Solver:
    """Solves positions of one game exactly. A user's own is made with `game`, and gives `solve`."""

    def __init__(self, game):
        self.game = game

    def missing(self):
        """Return why this rank cannot solve positions, or None."""
        return None

    def solve(self, positions_num, rank, size, on_progress):
        """Return this rank's share of the positions, a `Solved`: every `size`-th one, from number `rank` on. They are
        the same in every run, some `positions_num` of them. on_progress(done, total): called before each that takes
        long, some seconds at most."""
        raise NotImplementedError

    def share(self, positions_num, rank, size, on_progress=silent):
        """Return what `solve` does, kept for the next time."""
        key = type(self), self.game.name, positions_num, rank, size
        if key not in SOLVED:
            SOLVED[key] = self.solve(positions_num, rank, size, on_progress)
        return SOLVED[key]


def of_game(game):
    """Return the solver that a game names, None where it names none."""
    return SOLVERS.make(game.solver, game=game) if game.solver else None


class Enumeration(Solver):
    """Solves every position in play that can be reached, whatever `positions_num` is: for small games."""

    def solve(self, positions_num, rank, size, on_progress):
        return enumerate_all(self.game).part(rank, size)


class BitBully(Solver):
    """Connect Four: a fixed set of `positions_num` positions, by the package BitBully where it is installed."""

    def missing(self):
        return None if find_spec("bitbully") else "the package bitbully is not installed"

    def solve(self, positions_num, rank, size, on_progress):
        states = positions(self.game, positions_num, POSITIONS_SEED, *CONNECT4_PLIES)
        return solve_connect4(self.game, states[rank::size].copy(), on_progress)


def positions(game, n, seed, first_ply, last_ply):
    """Return up to n different positions in play from random games, state_dtype [m, S], which depend on `seed` alone.

    As many at each ply from `first_ply` to `last_ply`, in random order, all with at least two legal moves; fewer than
    n where a ply has no more of them.
    """
    rng = np.random.default_rng(seed)
    plies = rng.permutation(first_ply + np.arange(n) % (last_ply - first_ply + 1))
    return distinct(game, plies, rng, least_legal=2)


def enumerate_all(game, roots=None):
    """Solve every position in play that can be reached, by working back from the ends: up to some 10^6 positions.

    roots: where to begin, [n, S]; by default where the game does. A position that can be reached after different
    numbers of moves is solved for each but listed once.
    """
    layers, states = [], game.initial(1) if roots is None else roots
    while len(states):
        ended, value = game.terminal(states)
        legal = game.legal(states) & ~ended[:, None]
        rows, actions = np.nonzero(legal)
        children, child = np.unique(game.play(states[rows], actions), axis=0, return_inverse=True)
        layers.append((states, ended, value, legal, rows, actions, child.reshape(-1)))
        states = children
    solved, below, below_player = [], None, None
    for states, ended, value, legal, rows, actions, child in reversed(layers):
        player, action_values = game.to_play(states), np.full(legal.shape, np.nan, np.float32)
        if len(rows):
            same = below_player[child] == player[rows]
            action_values[rows, actions] = np.where(same, below[child], 0 - below[child])
        solved.append(Solved(states[~ended], legal[~ended], action_values[~ended]))
        below, below_player = value.copy(), player
        below[~ended] = solved[-1].values
    states, legal, action_values = (np.concatenate([getattr(s, k) for s in reversed(solved)])
                                    for k in ("states", "legal", "action_values"))
    _, first = np.unique(states, axis=0, return_index=True)
    return Solved(states[first], legal[first], action_values[first])


def solve_connect4(game, states, on_progress=silent):
    """Solve positions in play of Connect Four with BitBully (perfect play; Thill). Raises ImportError without it.

    on_progress(done, total) is called before each position.
    """
    from bitbully import Board

    solver = _bitbully()
    planes, second = game.planes(states), game.to_play(states)
    action_values = np.full((len(states), game.num_actions), np.nan, np.float32)
    for i, (own, other) in enumerate(planes):
        on_progress(i, len(states))
        # Its boards say 1 for the stones of the player who began, 2 for the other's, from the top row down.
        first, later = (other, own) if second[i] else (own, other)
        # A move's score is positive if it wins, the more the sooner.
        for column, score in solver.score_all_moves(Board((first + 2 * later).tolist())).items():
            action_values[i, column] = np.sign(score)
    return Solved(states, game.legal(states), action_values)


@lru_cache(maxsize=1)
def _bitbully():
    """Return the solver with its book of all positions up to 12 plies, which comes with the package."""
    from bitbully import BitBully

    return BitBully(opening_book="12-ply-dist")
