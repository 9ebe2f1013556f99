"""Random positions: the openings of matches, and the positions that are compared with a solver.

A set depends on its seed alone, not on the number of ranks: every rank draws the whole set and takes its part.
Shapes: S numbers a state, A actions.
"""

from collections.abc import Sequence

import numpy as np

from az_mpi.games.base import Game
from az_mpi.games.random_games import random_actions

# A set counts as complete when this many rounds of play-outs in a row bring nothing new.
IDLE_ROUNDS, ROUND_LEAST = 8, 256


def openings(game: Game, num: int, plies: int, seed: int | Sequence[int]) -> np.ndarray:
    """Return `num` states in play after `plies` uniformly random moves, state_dtype [num, S].

    If there are fewer than `num` different ones, they repeat in the same order. If no game lasts that long, the
    openings are as long as possible. seed: as for numpy's generators.
    """
    rng, plies = np.random.default_rng(seed), min(plies, game.max_plies)
    while not len(found := distinct(game, np.full(num, plies), rng)):
        plies -= 1
    return found[np.arange(num) % len(found)]


def distinct(game: Game, plies: np.ndarray, rng: np.random.Generator, least_legal: int = 1) -> np.ndarray:
    """Return different states in play at the depths `plies`, int [n], drawn by random play: state_dtype [m, S], m <= n.

    Each has at least `least_legal` legal moves. m < n if some depth has too few such states. A play-out that ends in a
    known state is drawn again, so random play decides how likely a state is.
    """
    missing, seen, found, idle = np.asarray(plies), set(), [], 0
    while len(missing) and idle < IDLE_ROUNDS:
        depths = np.resize(missing, max(len(missing), ROUND_LEAST))
        wanted = np.bincount(missing)
        states, depths = _play_out(game, depths, rng)
        enough = game.legal(states).sum(axis=1) >= least_legal
        idle += 1
        for state, depth in zip(states[enough], depths[enough]):
            if wanted[depth] and (key := state.tobytes()) not in seen:
                seen.add(key)
                found.append(state)
                wanted[depth] -= 1
                idle = 0
        missing = np.repeat(np.arange(len(wanted)), wanted)
    return np.array(found, game.state_dtype).reshape(-1, game.state_size)


def _play_out(game, depths, rng):
    """Play n random games for depths [n] moves; return (states [m, S], depths [m]) of those that have not ended."""
    states = game.initial(len(depths))
    for ply in range(int(depths.max())):
        going = np.flatnonzero(depths > ply)
        states[going] = game.play(states[going], random_actions(game.legal(states[going]), rng.random(len(going))))
        ended, _ = game.terminal(states)
        states, depths = states[~ended], depths[~ended]
    return states, depths
