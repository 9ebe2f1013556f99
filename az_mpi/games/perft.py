"""Counts what the rules of a game that are written for one position lead to, in compiled code: to check and to measure
them."""

import numpy as np
from numba import njit

from az_mpi.games.compiled_rules import Entries, call2
from az_mpi.games.position_game import PositionGame


def perft(game: PositionGame, state: np.ndarray, plies: int) -> int:
    """Return the number of sequences of so many legal actions, at least 1, from a state, [S]. An end by rule, such as
    a draw, ends none: only where there is no legal action. The last action of each is counted, not played."""
    states = np.zeros((plies, game.state_size), game.state_dtype)
    states[0] = state
    return _perft(game.entries, states, np.zeros((plies, game.num_actions), np.bool_))


def random_plies(game: PositionGame, num: int, seed: int = 0) -> int:
    """Play games of random legal actions from the start, one after the other, for `num` plies; return how many games
    have ended. Each position is asked for its result and for all legal actions."""
    state, legal = game.initial(1), np.zeros(game.num_actions, np.bool_)
    return _random_plies(game.entries, game.initial(1), state, legal, num, seed)


@njit(cache=True, nogil=True)
def _perft(entries: Entries, states, legal):
    most = len(states) - 1
    size = states.strides[0]
    at, marks = np.int64(states.ctypes.data), np.int64(legal.ctypes.data)
    action = np.zeros(len(states), np.int64)  # the next one to look at
    leaves, depth = 0, 0
    num = call2(entries.legal_actions, at, marks)
    if most == 0:
        return num
    while depth >= 0:
        a = _next(legal[depth], action[depth])
        if a < 0:
            depth -= 1
            continue
        action[depth] = a + 1
        states[depth + 1] = states[depth]
        call2(entries.apply, at + (depth + 1) * size, a)
        num = call2(entries.legal_actions, at + (depth + 1) * size, marks + (depth + 1) * legal.shape[1])
        if depth + 1 == most:
            leaves += num
        else:
            depth += 1
            action[depth] = 0
    return leaves


@njit(cache=True, nogil=True)
def _next(legal, action):
    """Return the first legal action from `action` on, -1 if there is none."""
    for a in range(action, len(legal)):
        if legal[a]:
            return a
    return -1


@njit(cache=True, nogil=True)
def _random_plies(entries: Entries, start, state, legal, num, seed):
    at, marks = np.int64(state.ctypes.data), np.int64(legal.ctypes.data)
    value = np.zeros(1, np.float32)
    worth = np.int64(value.ctypes.data)
    word = np.uint64(seed)
    games = 0
    for _ in range(num):
        n = call2(entries.legal_actions, at, marks)
        word = word * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        wanted = np.int64((word >> np.uint64(33)) % np.uint64(n))
        a = _next(legal, 0)
        while wanted:
            a = _next(legal, a + 1)
            wanted -= 1
        call2(entries.apply, at, a)
        if call2(entries.result, at, worth):
            state[:] = start
            games += 1
    return games
