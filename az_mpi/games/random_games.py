"""Games of uniformly random moves.

Shapes: B batch, S numbers a state, A actions.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit

from az_mpi.core.hashing import mix
from az_mpi.core.intrinsics import FAILED, call1, call2
from az_mpi.core.players import of_players
from az_mpi.games import chance
from az_mpi.games.base import CHANCE, Game
from az_mpi.games.entry_points import WORDS_FROM, Entries
from az_mpi.games.position_game import PositionGame

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64
_EACH_BYTE, _LAST_BYTE = np.uint64(0x0101010101010101), np.uint64(56)


def random_games(game: Game, num: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, move by move, (states [n, S], their legal moves bool [n, A]) of those of `num` games that have not ended.
    Chance's moves come between. No game has more than `game.max_plies` moves, even if the rules do not end it there."""
    states, plies = after_chance(game, game.initial(num), np.zeros(num, np.int64), rng)
    while len(states):
        legal = game.legal(states)
        yield states, legal
        states = game.play(states, random_actions(legal, rng.random(len(states))))
        states, plies = after_chance(game, states, plies + 1, rng)
        live = ~game.terminal_at(states, plies)[0]
        states, plies = states[live], plies[live]


def after_chance(
    game: Game, states: np.ndarray, plies: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return (states [B, S] after all moves of chance that come first, drawn by `rng`; the plies to each, int64 [B]).
    plies: int64 [B], to each of the given states."""
    plies = plies.copy()

    def drawn(rows, outcomes):
        plies[rows] += 1

    return chance.resolve(game, states, lambda rows: rng.random(len(rows)), drawn), plies


def random_actions(legal: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a uniformly random legal action for each row of legal, bool [n, A], as int64 [n]. uniform: float [n] in
    [0, 1), the random numbers that choose."""
    rank = (uniform * legal.sum(axis=1)).astype(np.int64)
    return np.argmax(np.cumsum(legal, axis=1) > rank[:, None], axis=1)


def play_out(game: Game, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Play from each of states, [B, S], which are not terminal and where a player is to move, to the end. Return (the
    results for the players to move in them, as evaluators give values, float32 [B], or [B, P] with three players or
    more; how many moves were played, chance's too). A game that is not over after `game.max_plies` more counts what
    `terminal` says there: 0 but in games of one player."""
    if isinstance(game, PositionGame) and game.has_entries:
        several = game.num_players if game.num_players > 2 else 1
        value, size = np.zeros((len(states), several), np.float32), states.shape[1] * states.dtype.itemsize
        rows = np.array(states, order="C").view(np.uint8).reshape(-1, size)
        seed = rng.integers(2**64, dtype=np.uint64)
        sizes = game.num_actions, game.num_outcomes, game.num_players, game.max_plies
        plies = _play_out(game.entries, rows, sizes, seed, value)
        if plies != FAILED:
            return value if several > 1 else value[:, 0], plies  # otherwise the methods for batches say what is wrong
    return _played_in_batches(game, states, rng)


def _played_in_batches(game, states, rng):
    player, rows, total = game.to_play(states), np.arange(len(states)), 0
    found, plies = np.zeros((len(states), game.num_players), np.float32), np.zeros(len(states), np.int64)
    while len(rows):
        due = chance.due(game, states)
        actions = np.empty(len(rows), np.int64)
        if due.any():
            actions[due] = chance.draw(game, states[due], rng.random(int(due.sum())))
        if not due.all():
            # Each legal action is equally likely to have the largest of independent uniform numbers in (0, 1].
            draws = 1 - rng.random((int((~due).sum()), game.num_actions), np.float32)
            actions[~due] = np.argmax(draws * game.legal(states[~due]), axis=1)
        states = game.play(states, actions)
        total, plies = total + len(rows), plies + 1
        ended, value = game.terminal_at(states, plies)
        found[rows[ended]] = of_players(game.num_players, value, game.to_play(states))[ended]
        rows, states, plies = rows[~ended], states[~ended], plies[~ended]
    relative = (player[:, None] + np.arange(game.num_players)) % game.num_players
    found = np.take_along_axis(found, relative, axis=1)
    return found if game.num_players > 2 else found[:, 0], total


@njit(cache=True, nogil=True)
def _play_out(
    entries: Entries, states: np.ndarray, sizes: tuple[int, int, int, int], seed: int, value: np.ndarray
) -> int:
    """Play in place, uint8 [B, bytes of a state]; return the number of moves, or FAILED. sizes: the numbers of actions,
    of outcomes, of players, and of plies at most. value: float32 [B, 1], or [B, P] with three players or more."""
    num_actions, num_outcomes, num_players, max_plies = sizes
    legal, chances, plies = np.empty(num_actions, np.bool_), np.empty(num_outcomes, np.float32), 0
    result = np.empty(value.shape[1], np.float32)
    words = legal[: num_actions // 8 * 8 if num_actions >= WORDS_FROM else 0].view(np.uint64)
    legal_at, result_at = np.int64(legal.ctypes.data), np.int64(result.ctypes.data)
    for b in range(len(states)):
        state = np.int64(states.ctypes.data) + b * states.shape[1]
        player = call1(entries.current_player, state)
        for ply in range(max_plies):
            seed += _GOLDEN
            if num_outcomes and call1(entries.current_player, state) == CHANCE:
                if call2(entries.chances, state, np.int64(chances.ctypes.data)) == FAILED:
                    return FAILED
                action = _outcome(chances, seed)
            else:
                num_legal = call2(entries.legal_actions, state, legal_at)
                if num_legal <= 0:
                    return FAILED
                in_words = len(words) > 0
                action = _drawn_in_words(legal, words, num_legal, seed) if in_words else _drawn(legal, num_legal, seed)
            if call2(entries.apply, state, action) == FAILED:
                return FAILED
            plies += 1
            result[:] = 0
            ended = call2(entries.result, state, result_at)
            if ended == FAILED:
                return FAILED
            if ended or ply == max_plies - 1:
                if num_players > 2:
                    for k in range(num_players):
                        value[b, k] = result[(player + k) % num_players]
                else:
                    same = num_players == 1 or call1(entries.current_player, state) == player
                    value[b, 0] = result[0] if same else -result[0]
                break
    return plies


@njit(cache=True, nogil=True)
def _outcome(chances, seed):
    """Return an outcome, drawn by its probability. seed: tells draws apart."""
    total = 0.0
    for chance_of in chances:
        total += chance_of
    left, outcome = total * (np.float64(mix(seed) >> np.uint64(11)) * 2.0**-53), -1
    for o in range(len(chances)):
        if chances[o] > 0:
            outcome = o
            left -= chances[o]
            if left < 0:
                break
    return outcome


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
    return ranked(legal, 0, np.int64(((word & np.uint64(0xFFFFFFFF)) * np.uint64(num_legal)) >> np.uint64(32)))


@njit(cache=True, nogil=True)
def ranked(legal: np.ndarray, action: int, rank: int) -> int:
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
            return ranked(legal, 8 * k, rank)
        rank -= num
    return ranked(legal, 8 * len(words), rank)
