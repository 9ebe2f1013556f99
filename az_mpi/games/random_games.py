"""Games of uniformly random moves.

Shapes: B batch, S numbers a state, A actions.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.core.intrinsics import call1, call2
from az_mpi.games.base import Game
from az_mpi.games.entry_points import FAILED, WORDS_FROM, Entries
from az_mpi.games.position_game import PositionGame

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64
_EACH_BYTE, _LAST_BYTE = np.uint64(0x0101010101010101), np.uint64(56)


def random_games(game: Game, num: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, ply by ply, (states [n, S], their legal moves bool [n, A]) of those of `num` games that have not ended.
    None is longer than `game.max_plies`, even if the rules do not end it there."""
    states = game.initial(num)
    for _ in range(game.max_plies):
        if not len(states):
            return
        legal = game.legal(states)
        yield states, legal
        states = game.play(states, random_actions(legal, rng.random(len(states))))
        states = states[~game.terminal(states)[0]]


def random_actions(legal: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a uniformly random legal action for each row of legal, bool [n, A], as int64 [n]. uniform: float [n] in
    [0, 1), the random numbers that choose."""
    rank = (uniform * legal.sum(axis=1)).astype(np.int64)
    return np.argmax(np.cumsum(legal, axis=1) > rank[:, None], axis=1)


def play_out(game: Game, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Play from each of states, [B, S], which are not terminal, to the end. Return (the results for the players to move
    in them, float32 [B]; how many moves were played). A game that is not over after `game.max_plies` more is a draw."""
    if isinstance(game, PositionGame) and game.has_entries:
        value, size = np.zeros(len(states), np.float32), states.shape[1] * states.dtype.itemsize
        rows = np.array(states, order="C").view(np.uint8).reshape(-1, size)
        plies = _play_out(
            game.entries, rows, game.num_actions, game.max_plies, rng.integers(2**64, dtype=np.uint64), value
        )
        if plies != FAILED:
            return value, plies  # otherwise the methods for batches say what is wrong
    return _played_in_batches(game, states, rng)


def _played_in_batches(game, states, rng):
    value, player, rows, plies = np.zeros(len(states), np.float32), game.to_play(states), np.arange(len(states)), 0
    for _ in range(game.max_plies):
        if not len(rows):
            break
        # Each legal action is equally likely to have the largest of independent uniform numbers in (0, 1].
        draws = 1 - rng.random((len(rows), game.num_actions), np.float32)
        states = game.play(states, np.argmax(draws * game.legal(states), axis=1))
        plies += len(rows)
        ended, result = game.terminal(states)
        same = game.to_play(states[ended]) == player[rows[ended]]
        value[rows[ended]] = np.where(same, result[ended], -result[ended])
        rows = rows[~ended]
        states = states[~ended]
    return value, plies


@njit(cache=True, nogil=True)
def _play_out(
    entries: Entries, states: np.ndarray, num_actions: int, max_plies: int, seed: int, value: np.ndarray
) -> int:
    """Play in place, uint8 [B, bytes of a state]; return the number of moves, or FAILED."""
    legal, result, plies = np.empty(num_actions, np.bool_), np.empty(1, np.float32), 0
    words = legal[: num_actions // 8 * 8 if num_actions >= WORDS_FROM else 0].view(np.uint64)
    legal_at, result_at = np.int64(legal.ctypes.data), np.int64(result.ctypes.data)
    for b in range(len(states)):
        state = np.int64(states.ctypes.data) + b * states.shape[1]
        player = call1(entries.current_player, state)
        for _ in range(max_plies):
            num_legal = call2(entries.legal_actions, state, legal_at)
            if num_legal <= 0:
                return FAILED
            seed += _GOLDEN
            action = _drawn_in_words(legal, words, num_legal, seed) if len(words) else _drawn(legal, num_legal, seed)
            if call2(entries.apply, state, action) == FAILED:
                return FAILED
            plies += 1
            ended = call2(entries.result, state, result_at)
            if ended == FAILED:
                return FAILED
            if ended:
                value[b] = result[0] if call1(entries.current_player, state) == player else -result[0]
                break
    return plies


@njit(cache=True, nogil=True)
def _drawn(legal, num_legal, seed):
    """Return one of the `num_legal` legal actions, uniformly. seed: tells draws apart."""
    word = mix(seed)
    if 4 * num_legal > len(legal):  # then to try actions is faster than to count
        for _ in range(16):
            action = np.int64(((word & np.uint64(0xFFFFFFFF)) * np.uint64(len(legal))) >> np.uint64(32))
            if legal[action]:
                return action
            word = mix(word)
    return _ranked(legal, 0, np.int64(((word & np.uint64(0xFFFFFFFF)) * np.uint64(num_legal)) >> np.uint64(32)))


@njit(cache=True, nogil=True)
def _ranked(legal, action, rank):
    """Return the legal action from `action` on that has so many others before it."""
    while rank > 0 or not legal[action]:
        rank -= legal[action]
        action += 1
    return action


@njit(cache=True, nogil=True)
def _drawn_in_words(legal, words, num_legal, seed):
    """Return one of many actions as `_drawn` does. words: uint64, the same bytes, eight in a number."""
    if 4 * num_legal > len(legal):
        return _drawn(legal, num_legal, seed)
    rank = np.int64(((mix(seed) & np.uint64(0xFFFFFFFF)) * np.uint64(num_legal)) >> np.uint64(32))
    for k in range(len(words)):
        num = np.int64(words[k] * _EACH_BYTE >> _LAST_BYTE)  # of legal actions among eight
        if rank < num:
            return _ranked(legal, 8 * k, rank)
        rank -= num
    return _ranked(legal, 8 * len(words), rank)
