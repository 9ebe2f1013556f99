"""Where a game of self-play begins: at the initial position, at one of an earlier game, or some random moves further.

Shapes: n games, N positions of the archive, S numbers a state, A actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from az_mpi.core.intrinsics import FAILED, call2
from az_mpi.games import chance, random_games
from az_mpi.search import streams

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.games.base import Game


class Archive(NamedTuple):
    """Positions of earlier games, none of them terminal: states [N, S]; plies int32 [N], the moves before each."""

    states: np.ndarray
    plies: np.ndarray


def begin(
    game: Game, settings: schema.Selfplay, archive: Archive | None, max_plies: int, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return where n games begin: (states [n, S], none of them terminal; plies int32 [n], the moves before each, below
    `max_plies`). settings: `config.selfplay`.

    words: uint64 [n], the games' random streams, which are advanced by what is drawn; by default nothing is drawn.
    start_share is that of Go-Exploit (Trudeau and Bowling 2023, "Targeted Search Control in AlphaZero for Effective
    Policy Improvement"), whose archive holds the states that were visited.
    """
    states = np.array(game.initial(len(words)), order="C")  # a copy: a game may keep the array that it returns
    plies = np.zeros(len(words), np.int32)
    if settings.start_share and archive and len(archive.plies):
        _from_archive(states, plies, archive, settings.start_share, max_plies, words)
    if settings.random_plies:
        _play_on(game, states, plies, settings.random_plies, max_plies, words)
    return states, plies


def _from_archive(states, plies, archive, share, max_plies, words):
    """Let this share of the games begin at positions of the archive."""
    for i in range(len(words)):
        if streams.uniform(words, i) < share:
            k = int(streams.uniform(words, i) * len(archive.plies))
            if archive.plies[k] < max_plies:  # else a resumed run has a lower selfplay.max_plies
                states[i], plies[i] = archive.states[k], archive.plies[k]


def _play_on(game, states, plies, most, max_plies, words):
    """Play 0 to `most` random moves in each game, each number as likely. A move that would end a game is not played,
    and no further one after it."""
    if game.has_entries and not game.num_outcomes:
        to = states.copy(), plies.copy(), words.copy()
        rows = to[0].view(np.uint8).reshape(len(states), -1)
        sizes = game.num_actions, game.num_players
        if _play_on_compiled(game.entries, rows, to[1], most, max_plies, to[2], *sizes) != FAILED:
            states[:], plies[:], words[:] = to
            return
        # The methods for batches begin again with the same draws, meet the same failure, and say what is wrong.
    wanted = (streams.uniforms(words, np.arange(len(words))) * (most + 1)).astype(np.int64)
    going = np.flatnonzero(wanted > 0)
    states[going] = _drawn(game, states[going], plies, going, words)
    for ply in range(most):
        going = going[(wanted[going] > ply) & (plies[going] + 1 < max_plies)]
        if not len(going):
            return
        drawn = streams.uniforms(words, going)
        after = game.play(states[going], random_games.random_actions(game.legal(states[going]), drawn))
        moves = plies.copy()
        moves[going] += 1
        after = _drawn(game, after, moves, going, words)
        live = ~game.terminal(after)[0] & (moves[going] < max_plies)
        going = going[live]
        after = after[live]
        states[going] = after
        plies[going] = moves[going]


@njit(cache=True, nogil=True)
def _play_on_compiled(entries, states, plies, most, max_plies, words, num_actions, num_players):
    """Do what `_play_on` does in place, in states as bytes; return 0, or FAILED."""
    legal, value = np.empty(num_actions, np.bool_), np.empty(num_players, np.float32)
    after = np.empty(states.shape[1], np.uint8)
    at = np.int64(after.ctypes.data)
    for i in range(len(states)):
        wanted = np.int64(streams.uniform(words, i) * (most + 1))
        for _ in range(wanted):
            if plies[i] + 1 >= max_plies:
                break
            after[:] = states[i]
            num_legal = call2(entries.legal_actions, at, np.int64(legal.ctypes.data))
            if num_legal <= 0:
                return FAILED
            action = random_games.ranked(legal, 0, np.int64(streams.uniform(words, i) * num_legal))
            ended = call2(entries.apply, at, action)
            ended = ended if ended == FAILED else call2(entries.result, at, np.int64(value.ctypes.data))
            if ended == FAILED:
                return FAILED
            if ended:
                break
            states[i] = after
            plies[i] += 1
    return 0


def _drawn(game, states, plies, rows, words):
    """Return the states after the moves of chance that come next, [len(rows), S], and count them in plies. rows: int64,
    of the states in plies and words."""

    def uniform(some):
        return streams.uniforms(words, rows[some])

    def count(some, outcomes):
        plies[rows[some]] += 1

    return chance.resolve(game, states, uniform, count)
