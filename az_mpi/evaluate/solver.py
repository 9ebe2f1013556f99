"""Exact values to compare a player with: of all positions of a small game, and of Connect Four by the package BitBully.

Shapes: P positions, S numbers a state, A actions. Values are for the player to move, in [-1, 1]; with chance moves they
are expectations.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.core.registry import SOLVERS
from az_mpi.evaluate.arena import OnProgress, silent
from az_mpi.evaluate.openings import Openings, distinct
from az_mpi.games import connect4
from az_mpi.games.base import CHANCE, Game, kind_of

# The positions are the same in every run, so that different runs can be compared.
POSITIONS_SEED = 0
ROUNDING = 1e-5  # values that differ by less count as the same
# Before ply 4 there are few positions; after ply 30 hardly any move loses value.
CONNECT4_PLIES = 4, 30
# The results of `Solver.share`. A job asks for one share, and for another one each time it has lost a rank.
SOLVED: dict[tuple, Any] = {}


@dataclass(frozen=True)
class Solved:
    """Positions in play and the exact value of each move."""

    states: np.ndarray  # [P, S]
    legal: np.ndarray  # bool [P, A]
    action_values: np.ndarray  # float32 [P, A] for the player to move at the position; nan where illegal
    plies: np.ndarray | None = None  # int [P], the moves before each; None: the rules do not ask for them

    @property
    def values(self) -> np.ndarray:
        """The values of the positions, float32 [P]: those of their best moves."""
        return np.nanmax(self.action_values, axis=1)

    @property
    def keeps(self) -> np.ndarray:
        """Whether a move is legal and keeps the position's value, up to rounding, bool [P, A]."""
        return self.action_values >= self.values[:, None] - ROUNDING

    def part(self, rank: int, size: int) -> "Solved":
        """Return every `size`-th position, from number `rank` on."""
        # A contiguous copy of the states: the kernels are already compiled for that.
        rows = slice(rank, None, size)
        plies = None if self.plies is None else self.plies[rows]
        return Solved(self.states[rows].copy(), self.legal[rows], self.action_values[rows], plies)


class Solver:
    """Solves positions of one game exactly. A user's own subclass overrides `solve`."""

    def __init__(self, game: Game):
        self.game = game

    def missing(self) -> str | None:
        """Return why this rank cannot solve positions, or None."""
        return None

    def solve(self, num_positions: int, rank: int, size: int, on_progress: OnProgress) -> Solved:
        """Return this rank's share of some `num_positions` positions, the same ones in every run: every `size`-th one,
        from number `rank` on. Call on_progress at least every few seconds."""
        raise NotImplementedError

    def optimum(self, states: np.ndarray) -> np.ndarray | None:
        """Return the best score that can be reached from each of these positions of a game of one player, [n, S], in
        the unit of `Game.score` (its mean, where chance moves follow; the value in a game without scores), float [n].
        By default None: the solver does not know. Called on every rank, with the same positions."""
        return None

    def share(
        self, num_positions: int, rank: int, size: int, on_progress: OnProgress = silent, name: str = "auto"
    ) -> Solved:
        """Return the result of `solve`, which is kept. name: of `evaluate.solver`, as a solver may take arguments."""
        key = type(self), name, self.game.name, num_positions, rank, size
        if key not in SOLVED:
            SOLVED[key] = self.solve(num_positions, rank, size, on_progress)
        return SOLVED[key]

    def optimum_from(self, starts: Openings) -> np.ndarray | None:
        """Return `optimum` of positions of which the moves that led there are known."""
        return self.optimum(starts.states)


def of_game(game: Game) -> Solver | None:
    """Return the solver that a game names, or None."""
    return SOLVERS.make(game.solver, game=game) if game.solver else None


class Enumeration(Solver):
    """Solves all reachable positions in play of a small game of one or two players; `num_positions` is ignored. Raises
    Refusal for more players."""

    def __init__(self, game: Game):
        super().__init__(game)
        if game.num_players > 2:
            raise Refusal(
                f'evaluate.solver: "enumerate" solves games of one or two players; {kind_of(game)}\n'
                "  let evaluate.solver_positions be 0, or name a solver of your own"
            )

    def solve(self, num_positions: int, rank: int, size: int, on_progress: OnProgress) -> Solved:
        return enumerate_all(self.game).part(rank, size)

    def optimum_from(self, starts: Openings) -> np.ndarray | None:
        plies = np.array([len(moves) for moves in starts.moves])
        best = np.empty(len(plies))
        for ply in np.unique(plies).tolist():
            states = starts.states[plies == ply]
            solved = enumerate_all(self.game, states, self.game.score, ply)
            known = {state.tobytes(): value for state, value in zip(solved.states, solved.values)}
            best[plies == ply] = [known[state.tobytes()] for state in states]
        return best


class BitBully(Solver):
    """Solves `num_positions` fixed positions of Connect Four with the package BitBully, if it is installed. Raises
    Refusal for another game."""

    def __init__(self, game: Game):
        super().__init__(game)
        if not isinstance(game, connect4.Rules):
            raise Refusal(f'evaluate.solver: "bitbully" solves Connect Four; game is {game.name}')

    def missing(self) -> str | None:
        return None if find_spec("bitbully") else "the package bitbully is not installed"

    def solve(self, num_positions: int, rank: int, size: int, on_progress: OnProgress) -> Solved:
        states = positions(self.game, num_positions, POSITIONS_SEED, *CONNECT4_PLIES)
        return solve_connect4(self.game, states[rank::size].copy(), on_progress)


def positions(game: Game, n: int, seed: int, first_ply: int, last_ply: int) -> np.ndarray:
    """Return n different positions in play from random games, state_dtype [m, S], in random order: equally many at each
    ply from `first_ply` to `last_ply`, each with at least two legal moves. m < n if a ply has too few of them. They
    depend on `seed` alone."""
    rng = np.random.default_rng(seed)
    plies = rng.permutation(first_ply + np.arange(n) % (last_ply - first_ply + 1))
    return distinct(game, plies, rng, least_legal=2).states


def enumerate_all(
    game: Game,
    roots: np.ndarray | None = None,
    score: Callable[[np.ndarray], np.ndarray | None] = lambda states: None,
    ply: int = 0,
) -> Solved:
    """Solve all reachable positions in play by retrograde analysis: feasible up to some 10^6 positions.

    roots: where to begin, [n, S]; by default the start of the game. A position that is reachable after different
    numbers of moves is solved for each of them but listed once, as the fewest moves reach it. score(states): in a game
    of one player what its ends count, in place of their values; None: their values do. ply: the moves before the roots.
    """
    layers = []
    states = game.initial(1) if roots is None else np.unique(roots, axis=0)
    while len(states):
        layers.append(_Layer(game, states, ply + len(layers)))
        states = layers[-1].children
    solved = []
    below = np.empty(0)
    for layer in reversed(layers):
        below, found = layer.solve(below, score(layer.states))
        solved.append(found)
    parts = [np.concatenate([getattr(s, part.name) for s in reversed(solved)]) for part in fields(Solved)]
    _, first = np.unique(parts[0], axis=0, return_index=True)
    return Solved(*(part[first] for part in parts))


class _Layer:
    """The positions that can be reached after the same number of moves, and the moves from them."""

    def __init__(self, game: Game, states: np.ndarray, ply: int):
        self.states, self.ply = states, ply
        self.ended, self.value = game.terminal_at(states, ply)
        self.player = game.to_play(states)
        self.drawn = (self.player == CHANCE) & ~self.ended
        self.legal = np.zeros((len(states), game.num_actions), np.bool_)
        self.weights = np.zeros((len(states), max(game.num_actions, game.num_outcomes)))  # of the moves
        mine = ~self.ended & ~self.drawn
        self.legal[mine] = game.legal(states[mine])
        self.weights[mine, : game.num_actions] = self.legal[mine]
        if self.drawn.any():
            self.weights[self.drawn, : game.num_outcomes] = game.chances(states[self.drawn])
        self.rows, self.moves = np.nonzero(self.weights)
        after = game.play(states[self.rows], self.moves)
        self.children, child = np.unique(after, axis=0, return_inverse=True)
        self.child = child.reshape(-1)

    def solve(self, below: np.ndarray, scores: np.ndarray | None) -> tuple[np.ndarray, Solved]:
        """Return (the values of the positions for player 0, float64 [n]; those in which a player is to move, solved).
        below: the values of the next layer. scores: of the positions, in place of the values of those that ended."""
        sign = np.where(self.player == 1, -1.0, 1.0)
        found = sign * self.value if scores is None else np.array(scores, float)
        moved = np.full(self.weights.shape, np.nan)
        moved[self.rows, self.moves] = below[self.child]
        drawn, mine = self.drawn, ~self.ended & ~self.drawn
        found[drawn] = np.nansum(moved[drawn] * self.weights[drawn], axis=1)
        action_values = (sign[mine, None] * moved[mine][:, : self.legal.shape[1]]).astype(np.float32) + np.float32(0)
        solved = Solved(self.states[mine], self.legal[mine], action_values, np.full(mine.sum(), self.ply))
        found[mine] = sign[mine] * solved.values
        return found, solved


def solve_connect4(game: Game, states: np.ndarray, on_progress: OnProgress = silent) -> Solved:
    """Solve positions in play of Connect Four with the package BitBully (Thill). Raises ImportError without it."""
    from bitbully import BitBully, Board

    solver = BitBully(opening_book="12-ply")  # its 110 MiB are free again at the end
    planes, second = game.planes(states)[:, :2], game.to_play(states)  # a user's own game may show more
    action_values = np.full((len(states), game.num_actions), np.nan, np.float32)
    for i, (own, other) in enumerate(planes):
        on_progress(i, len(states))
        # BitBully's board, from the top row down: 1 for a stone of the player who began, 2 for the other player's.
        first, later = (other, own) if second[i] else (own, other)
        # The score of a winning move is positive.
        for column, score in solver.score_all_moves(Board((first + 2 * later).tolist())).items():
            action_values[i, column] = np.sign(score)
    return Solved(states, game.legal(states), action_values)
