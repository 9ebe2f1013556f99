"""Counts what the rules of a game that are written for one position lead to, in compiled code: to check and to measure
them."""

import numpy as np
from numba import njit

from az_mpi.core.intrinsics import call2
from az_mpi.games.entry_points import Entries
from az_mpi.games.position_game import PositionGame


def perft(game: PositionGame, state: np.ndarray, plies: int) -> int:
    """Return the number of sequences of so many legal actions, at least 1, from a state, [S]. An end by rule, such as
    a draw, ends none: only where there is no legal action. The last action of each is counted, not played."""
    states = np.zeros((plies, game.state_size), game.state_dtype)
    states[0] = state
    return _perft(game.entries, states, *_tables(game, plies))


def random_plies(game: PositionGame, num: int, seed: int = 0) -> int:
    """Play games of random legal actions from the start, one after the other, for `num` plies; return how many games
    have ended. Each position is asked for its result and for all legal actions."""
    legal, _ = _tables(game, 1)
    return _random_plies(game.entries, game.initial(1), game.initial(1), legal, num, seed)


def _tables(game, plies):
    """Return (legal actions bool [A], with A rounded up to 8; their numbers in the positions of so many plies)."""
    num = -(-game.num_actions // 8) * 8
    return np.zeros(num, np.bool_), np.zeros((plies, num + 1), np.int64)


@njit(cache=True, nogil=True)
def _perft(entries: Entries, states, legal, actions):
    most = len(states) - 1
    size = states.strides[0]
    at, marks = np.int64(states.ctypes.data), np.int64(legal.ctypes.data)
    num = np.zeros(len(states), np.int64)  # of actions that have not been played
    leaves = depth = 0
    num[0] = call2(entries.legal_actions, at, marks)
    if most == 0:
        return num[0]
    _find(legal, actions[0])
    while depth >= 0:
        if num[depth] == 0:
            depth -= 1
            continue
        num[depth] -= 1
        states[depth + 1] = states[depth]
        call2(entries.apply, at + (depth + 1) * size, actions[depth, num[depth]])
        found = call2(entries.legal_actions, at + (depth + 1) * size, marks)
        if depth + 1 == most:
            leaves += found
        else:
            depth += 1
            num[depth] = found
            _find(legal, actions[depth])
    return leaves


@njit(cache=True, nogil=True)
def _find(legal, actions):
    """Write the numbers of the legal actions, bool [A] in words of 8 bytes, to `actions`, int64."""
    words = legal.view(np.uint64)
    num = 0
    for w in range(len(words)):
        if words[w]:
            for a in range(8 * w, 8 * w + 8):
                actions[num] = a
                num += legal[a]


@njit(cache=True, nogil=True)
def _number(legal, rank):
    """Return the number of the legal action before which there are `rank` others. legal: as for `_find`."""
    words = legal.view(np.uint64)
    w = 0
    while True:
        num = np.int64((words[w] * np.uint64(0x0101010101010101)) >> np.uint64(56))  # the sum of the bytes
        if num > rank:
            break
        rank -= num
        w += 1
    a = 8 * w
    while rank or not legal[a]:
        rank -= legal[a]
        a += 1
    return a


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
        call2(entries.apply, at, _number(legal, np.int64((word >> np.uint64(33)) % np.uint64(n))))
        if call2(entries.result, at, worth):
            state[:] = start
            games += 1
    return games
