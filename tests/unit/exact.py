"""Exact values of small games of every kind, by searching all of the game: expectimax and max^n."""

import numpy as np

from az_mpi.core.players import CHANCE
from az_mpi.games.base import results


def values(game, state, known=None, plies=0):
    """Return the values of all players in a state under best play, float64 [players]: each player takes its first best
    move. known: {state: values}, of this game."""
    known = {} if known is None else known
    key = state.tobytes(), plies
    if key not in known:
        known[key] = _values(game, state, known, plies)
    return known[key]


def _values(game, state, known, plies):
    ended, result = results(game, state[None])
    if ended[0]:
        return result[0].astype(float)
    if plies >= game.max_plies:
        return result[0].astype(float) if game.num_players == 1 else np.zeros(game.num_players)
    player = game.to_play(state[None])[0]
    if player == CHANCE:
        chances = game.chances(state[None])[0].astype(float)
        outcomes = np.flatnonzero(chances)
        return chances[outcomes] @ after(game, state, outcomes, known, plies)
    moves = after(game, state, np.flatnonzero(game.legal(state[None])[0]), known, plies)
    return moves[np.argmax(moves[:, player])]


def after(game, state, moves, known, plies=0):
    """Return the values after each of these moves, float64 [moves, players]."""
    states = game.play(np.repeat(state[None], len(moves), axis=0), moves)
    return np.array([values(game, one, known, plies + 1) for one in states])
