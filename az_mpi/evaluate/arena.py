"""Matches between two opponents: every opening is played twice, once with each colour.

The games of a rank run at the same time. The two take turns, and each moves in all games in which it is to move, so
that every search runs over as many trees as possible.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import Opponent
from az_mpi.games.base import Game
from az_mpi.liveness import watchdog
from az_mpi.mpi.world import World, split_evenly

GAMES_AT_ONCE = 256  # on one rank: bounds the memory of the trees
OnProgress = Callable[[int, int], None]  # called with how many are done, and of how many


@dataclass(frozen=True)
class MatchResult:
    """The results of a match for `ours`: (wins, draws, losses) of the games that it began, and of the others."""

    as_first: tuple[int, int, int]
    as_second: tuple[int, int, int]

    @property
    def wins(self) -> int:
        return self.as_first[0] + self.as_second[0]

    @property
    def draws(self) -> int:
        return self.as_first[1] + self.as_second[1]

    @property
    def losses(self) -> int:
        return self.as_first[2] + self.as_second[2]

    @property
    def games_num(self) -> int:
        return self.wins + self.draws + self.losses


def silent(*_: object) -> None:
    pass


def _report(on_progress, before, games_num, finished_num):
    on_progress(before + finished_num, games_num)


def play_match(world: World, game: Game, ours: Opponent, theirs: Opponent, games_num: int, opening_plies: int,
               seed: tuple[int, ...], on_progress: OnProgress = silent,
               on_finish: Callable[[], None] = silent) -> MatchResult:
    """Play `games_num` games, an even number, and return the `MatchResult` of `ours`. Collective over world.

    Games 2 k and 2 k + 1 start from opening k: `ours` begins the first of them, `theirs` the second. seed: of the
    openings. on_progress counts this rank's games; on_finish is called when this rank has played all of its games,
    before the ranks add up their results. A game that is not over after game.max_plies is a draw.
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
    as_first, as_second = map(tuple, world.sum(counts).tolist())
    return MatchResult(as_first, as_second)


@watchdog.steps()
def _play(game, ours, theirs, states, indices, on_progress):
    """Play the games `indices` from `states` to their ends; return their results for `ours` in [-1, 1], float32 [n]."""
    states, result = states.copy(), np.zeros(len(states), np.float32)
    colour = indices % 2  # of ours, as in `game.to_play`
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
        # One turn of each player is one step of the watchdog: one of the two may need far less time.
        (watchdog.step if turn % 2 else watchdog.tick)()
        on_progress(int((~live).sum()))
        if not live.any():
            break
    return result
