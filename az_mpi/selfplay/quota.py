"""How many games an iteration plays, and which rank plays them.

Every `play` function is collective. It ends on all ranks after the same total of the control channel, which it returns:
the one that says that the quota is reached, or that a rank has a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.core.host_names import value_here
from az_mpi.liveness import watchdog
from az_mpi.selfplay.record import game_ids

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.mpi.control_channel import ControlChannel, Total
    from az_mpi.mpi.world import World
    from az_mpi.selfplay.player import Player

IDLE_S = 0.0005  # between two polls of a rank that has nothing to play until the next sum


def shares(total: int, weights: Sequence[float]) -> list[int]:
    """Return how many of `total` games each rank plays, in proportion to its weight: [34, 33, 33] for 100 games and
    equal weights. Each count is less than one off its exact share (largest remainders, the first of equals)."""
    each = np.array(weights, np.float64)
    exact = total * each / each.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts.tolist()


class Quota:
    """The games that an iteration still lacks, and how the ranks play them."""

    def __init__(self, settings: schema.Selfplay, world: World, iteration: int, stored_ids: np.ndarray):
        """stored_ids: on root, the ids of the iteration's games that are on disk already, uint64 [n]. Collective."""
        self._settings = settings
        self._world = world
        self._iteration = iteration
        stored = world.share(np.asarray(stored_ids).tolist() if world.is_root else None)
        ids = game_ids(iteration, 0, np.arange(settings.num_games))
        self._missing = np.flatnonzero(~np.isin(ids, np.array(stored, np.uint64)))  # indices of deterministic games
        self._num_missing = settings.num_games - len(stored)
        weigh = settings.deterministic and settings.weights
        self._weights = world.collect(value_here(settings.weights, 1.0)) if weigh else [1.0] * world.size

    def play(
        self,
        player: Player,
        control: ControlChannel,
        start: int,
        finished_before: int,
        on_progress: Callable[[int, int], object],
        every_s: float,
    ) -> Total | None:
        """Play until the quota is reached, an exchange is due or a rank has a request; return the total that says so,
        or None if no game is missing. The arguments are those of `play_until`."""
        if self._settings.deterministic:
            return play_share(player, control, self._iteration, start, self._missing, self._weights, on_progress)
        if self._num_missing <= 0:
            return None
        return play_until(
            player, control, self._iteration, start, finished_before, self._num_missing, on_progress, every_s
        )

    def reached(self, total: Total | None) -> bool:
        """Return whether the games are complete after `play` has returned `total`."""
        return self._settings.deterministic or total is None or total.finished >= self._num_missing


@watchdog.steps()
def play_share(
    player: Player,
    control: ControlChannel,
    iteration: int,
    start: int,
    missing: np.ndarray,
    weights: Sequence[float],
    on_progress: Callable[[int, int], object],
) -> Total:
    """Play exactly the games with the indices `missing`, int64 [n], the same on every rank; each rank plays its share.

    Each game is seeded by its id and played to its end, so the games do not depend on the number of ranks. start: see
    `game_ids`. weights: of every rank, see `shares`. on_progress(finished, total): of this rank.
    """
    rank = control.world.rank
    share = shares(len(missing), weights)
    mine = missing[sum(share[:rank]) :][: share[rank]]
    player.allow()
    begun = 0
    finished_before = player.num_finished
    saves = 0

    def over(total):
        nonlocal saves
        saves += total.save  # answered at the end: until then there is nothing new to save
        return total.stop or total.done == len(weights)

    while begun < len(mine) or player.live.any():
        slots = player.free()[: len(mine) - begun]
        if len(slots):
            player.start(slots, game_ids(iteration, start, mine[begun : begun + len(slots)]), iteration)
            begun += len(slots)
        player.step()
        watchdog.step()
        on_progress(player.num_finished - finished_before, len(mine))
        total = control.poll()
        if total and over(total):
            break
    else:
        total = control.wait(over, done=True)
    player.pause()
    return total._replace(save=saves)


@watchdog.steps()
def play_until(
    player: Player,
    control: ControlChannel,
    iteration: int,
    start: int,
    finished_before: int,
    num_games: int,
    on_progress: Callable[[int, int], object],
    every_s: float = 0.0,
) -> Total:
    """Play until the ranks together have finished `num_games` games more than the sum of their `finished_before`, or
    for about `every_s` seconds of root's clock (0: no such limit). Games under way stay for the next call.
    on_progress(finished, total): of all ranks.

    The ranks finish less than one game a rank too many, however slow their sums are: after each sum a rank may finish
    its share of half of the missing games, or one game. Half, since a rank that has not seen the newest sum yet still
    acts on the one before.
    """
    size = control.world.size
    player.allow(player.num_finished)  # until the first sum says how many games are missing
    begun = time.monotonic()
    while True:
        _begin_games(player, control.world, iteration, start)
        player.step()
        watchdog.step()
        late = control.world.is_root and bool(every_s) and time.monotonic() - begun >= every_s
        total = control.poll(player.num_finished - finished_before, exchange=late)
        if total:
            on_progress(total.finished, num_games)
            if total.finished >= num_games or total.exchange or total.save or total.stop:
                player.pause()
                return total
            share = max((num_games - total.finished) // (2 * size), 1)
            player.allow(finished_before + control.told_finished + share)
        if not player.live.any():  # all games wait for the next sum
            time.sleep(IDLE_S)


@watchdog.steps()
def play_meanwhile(player: Player, control: ControlChannel, iteration: int, start: int, num_others: int) -> Total:
    """Play while `num_others` other ranks do something else, until all of them say that they are done."""
    player.allow()
    while True:
        _begin_games(player, control.world, iteration, start)
        player.step()
        watchdog.step()
        total = control.poll()
        if total and total.done == num_others:
            player.pause()
            return total


def _begin_games(player, world, iteration, start):
    """Begin a game in each free slot. Indices count through all calls for one iteration, so that ids are unique."""
    slots = player.free()
    if len(slots):
        first = player.begun.get(iteration, 0)
        indices = (first + np.arange(len(slots))) * world.size + world.rank
        player.start(slots, game_ids(iteration, start, indices), iteration)
        player.begun = {iteration: first + len(slots)}
