"""Matches between two players: every opening is played twice, once with each colour.

The games of a rank are played at once. The players take turns, each moving in all games where it is its turn, so that
every search runs over as many trees as it can. The players are `opponents.Opponent`.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from az_mpi.evaluate.openings import openings
from az_mpi.liveness import watchdog
from az_mpi.mpi.world import split_evenly

GAMES_AT_ONCE = 256  # on one rank: bounds the memory of the trees


@dataclass(frozen=True)
class MatchResult:
    """Games counted for `ours`. as_first and as_second: (wins, draws, losses) where it began and where it did not."""

    as_first: tuple
    as_second: tuple

    @property
    def wins(self):
        return self.as_first[0] + self.as_second[0]

    @property
    def draws(self):
        return self.as_first[1] + self.as_second[1]

    @property
    def losses(self):
        return self.as_first[2] + self.as_second[2]

    @property
    def games_num(self):
        return self.wins + self.draws + self.losses


def silent(*_):
    pass


def _report(on_progress, before, games_num, finished_num):
    on_progress(before + finished_num, games_num)


def play_match(world, game, ours, theirs, games_num, opening_plies, seed, on_progress=silent, on_finish=silent):
    """Play `games_num` games, an even number, and return the `MatchResult` of `ours`. Collective over world.

    Game 2 k is pair k with `ours` as the player who begins, game 2 k + 1 the same opening with the colours exchanged.
    seed: whole numbers, of the openings. on_progress is called with this rank's own numbers of games, on_finish when
    all of them are played, before the ranks add up.
    A result above 0 is a win, below 0 a loss; a game that is not over after game.max_plies is a draw.
    """
    pairs = games_num // 2
    share = split_evenly(pairs, world.size)
    first = 2 * sum(share[: world.rank])
    mine = np.arange(first, first + 2 * share[world.rank])
    starts = openings(game, pairs, opening_plies, seed)
    counts = np.zeros((2, 3), np.int64)  # [ours begins or not, win draw loss]
    for done in range(0, len(mine), GAMES_AT_ONCE):
        part = mine[done : done + GAMES_AT_ONCE]
        report = partial(_report, on_progress, done, len(mine))
        result = _play(game, ours, theirs, starts[part // 2], part, report)
        np.add.at(counts, (part % 2, 1 - np.sign(result).astype(np.int64)), 1)
    on_finish()
    as_first, as_second = world.sum(counts).tolist()
    return MatchResult(tuple(as_first), tuple(as_second))


@watchdog.steps()
def _play(game, ours, theirs, states, indices, on_progress):
    """Play the games `indices` from `states` to their ends and return their results for `ours`, float32 [n]."""
    states, result = states.copy(), np.zeros(len(states), np.float32)
    colour = indices % 2  # of ours, as `game.to_play` counts
    seats = [player.seat(game, states, indices) for player in (ours, theirs)]
    live = np.ones(len(states), bool)
    for turn in range(2 * game.max_plies):
        mover = colour if turn % 2 == 0 else 1 - colour
        slots = np.flatnonzero(live & (game.to_play(states) == mover))
        if not len(slots):
            continue
        actions = seats[turn % 2].choose(slots)
        for seat in seats:
            seat.advance(slots, actions)
        states[slots] = game.play(states[slots], actions)
        ended, value = game.terminal(states[slots])
        over = slots[ended]
        same = game.to_play(states[over]) == colour[over]
        result[over] = np.where(same, value[ended], -value[ended])
        live[over] = False
        # A turn of each player is a step: one of them may need far less time.
        (watchdog.step if turn % 2 else watchdog.tick)()
        on_progress(int((~live).sum()))
        if not live.any():
            break
    return result
