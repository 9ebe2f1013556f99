"""Random positions: the openings of matches, and the positions that are compared with a solver.

A set depends on its seed alone, not on the number of ranks: every rank draws the whole set and takes its part.
Shapes: S numbers a state, A actions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.games import chance
from az_mpi.games.base import Game
from az_mpi.games.random_games import random_actions

REPEATED = 0.1  # of the openings may repeat without a word: an interval is about 5 % too narrow then
# A set counts as complete when this many rounds of play-outs in a row bring nothing new.
IDLE_ROUNDS, ROUND_LEAST = 8, 256


class Openings(NamedTuple):
    """Positions, state_dtype [n, S], and the actions that led to each of them from the start of the game."""

    states: np.ndarray
    moves: list[list[int]]

    def pick(self, indices: np.ndarray) -> "Openings":
        """Return the openings with these indices, int [k], in this order."""
        return Openings(self.states[indices], [self.moves[i] for i in indices])


def openings(game: Game, num: int, plies: int, seed: int | Sequence[int]) -> Openings:
    """Return `num` openings of `plies` uniformly random moves, all of positions in play where a player is to move.

    Chance moves on the way, and those that come next, are drawn too and do not count as plies. If there are fewer than
    `num` different positions, they repeat in the same order. If no game lasts that long, by the rules or by
    `game.max_plies`, the openings are as long as possible; Refusal if no player moves at all. seed: as for
    numpy's generators.
    """
    rng = np.random.default_rng(seed)
    plies = min(plies, game.max_plies)
    while not len((found := distinct(game, np.full(num, plies), rng)).moves):
        plies -= 1
        if plies < 0:
            raise Refusal(f"{game.name}: no game lasts until a player is to move; it ends after {game.max_plies} plies")
    return found.pick(np.arange(num) % len(found.moves))


def repeats(game: Game, starts: Openings, plies: int) -> str:
    """Return a warning if more than REPEATED of the openings of a match, of `plies` random moves, repeat and chance
    makes no difference; else ""."""
    different = len({state.tobytes() for state in starts.states})
    if different >= (1 - REPEATED) * len(starts.states) or game.num_outcomes:
        return ""
    return (
        f"  openings repeat: there are {different} of {plies} plies. Games between players without chance repeat too, "
        "and the interval is too narrow; more opening_plies fix that"
    )


def distinct(game: Game, plies: np.ndarray, rng: np.random.Generator, least_legal: int = 1) -> Openings:
    """Return m <= n different openings, all of positions in play, at the depths `plies`, int [n], drawn by random play.

    Each has at least `least_legal` legal moves. m < n if some depth has too few such states. A play-out that ends in a
    known state is drawn again, so random play decides how likely a state is.
    """
    missing = np.asarray(plies)
    seen = set()
    states = []
    moves = []
    idle = 0
    while len(missing) and idle < IDLE_ROUNDS:
        depths = np.resize(missing, max(len(missing), ROUND_LEAST))
        wanted = np.bincount(missing)
        reached, depths, actions = _play_out(game, depths, rng)
        idle += 1
        for i in np.flatnonzero(game.legal(reached).sum(axis=1) >= least_legal):
            if wanted[depths[i]] and (key := reached[i].tobytes()) not in seen:
                seen.add(key)
                states.append(reached[i])
                moves.append(actions[i])
                wanted[depths[i]] -= 1
                idle = 0
        missing = np.repeat(np.arange(len(wanted)), wanted)
    return Openings(np.array(states, game.state_dtype).reshape(-1, game.state_size), moves)


def _play_out(game, depths, rng):
    """Play n random games for depths [n] moves of players; return (states [m, S], depths [m], the actions of each, m
    lists) of those that have not ended."""
    states = game.initial(len(depths))
    rows = np.arange(len(depths))
    played = [[] for _ in rows]
    num_played = np.zeros(len(rows), np.int64)  # chance moves too

    def note(at, actions):
        num_played[rows[at]] += 1
        for row, action in zip(rows[at].tolist(), actions.tolist()):
            played[row].append(action)

    last = int(depths.max())
    for ply in range(last + 1):
        if game.num_outcomes:
            states = chance.resolve(game, states, lambda at: rng.random(len(at)), note)
        in_play = ~game.terminal_at(states, num_played[rows])[0]
        states, rows = states[in_play], rows[in_play]
        going = np.flatnonzero(depths[rows] > ply)
        actions = random_actions(game.legal(states[going]), rng.random(len(going)))
        note(going, actions)
        states[going] = game.play(states[going], actions)
    return states, depths[rows], [played[row] for row in rows]
