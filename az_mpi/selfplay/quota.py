"""How many games an iteration plays, and who plays them.

Every function here ends on all ranks after the same `Total`, which it returns: the quota is reached, or one rank or
more has a request. Collective.
"""

import time

import numpy as np

from az_mpi.liveness import watchdog
from az_mpi.selfplay.record import game_ids

IDLE_S = 0.0005  # between looks of a rank that has nothing to play until the next sum


def shares(total, weights):
    """Return how many of `total` things each rank takes, in proportion to its weight; [34, 33, 33] of 100 for equals.

    The counts add up to `total` and none is off its exact share by one or more (largest remainders, the first of
    equals).
    """
    weights = np.array(weights, np.float64)
    exact = total * weights / weights.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts.tolist()


class Quota:
    """The games that an iteration still lacks, and how the ranks play them."""

    def __init__(self, settings, world, iteration, stored_ids):
        """settings: `config.selfplay`. stored_ids: on root, the ids of its games that are on disk already, uint64 [n].
        Collective."""
        self._settings, self._world, self._iteration = settings, world, iteration
        stored = world.share(np.asarray(stored_ids).tolist() if world.is_root else None)
        ids = game_ids(iteration, 0, np.arange(settings.games_num))
        self._missing = np.flatnonzero(~np.isin(ids, np.array(stored, np.uint64)))  # where games are numbered
        self._missing_num = settings.games_num - len(stored)

    def play(self, player, control, attempt, finished_before, on_progress, every_s):
        """Play until the quota is reached, an exchange is due or a rank has a request; return the `Total` that said so.

        None where no game is missing. The arguments are those of `play_until`."""
        if self._settings.deterministic:
            weights = [self._settings.weights.get(host, 1.0) for host in self._world.hosts]
            return play_share(player, control, self._iteration, self._missing, weights, on_progress)
        if self._missing_num <= 0:
            return None
        return play_until(player, control, self._iteration, attempt, finished_before, self._missing_num, on_progress,
                          every_s)

    def reached(self, total):
        """Return whether the games are complete after `play` has returned `total`."""
        return self._settings.deterministic or total is None or total.finished >= self._missing_num


@watchdog.steps()
def play_share(player, control, iteration, missing, weights, on_progress):
    """Play exactly the games with the indices `missing` (the same list on every rank), each rank its share.

    Each game is seeded by its index and finished, so what is played does not depend on the number of ranks.
    weights: of every rank, see `shares`.
    """
    rank = control.world.rank
    share = shares(len(missing), weights)
    mine = missing[sum(share[:rank]) :][: share[rank]]
    player.allow()
    begun, finished_before, saves = 0, player.finished_num, 0

    def over(total):
        nonlocal saves
        saves += total.save  # answered at the end: there is nothing to save before
        return total.stop or total.done == len(weights)

    while begun < len(mine) or player.live.any():
        slots = player.free()[: len(mine) - begun]
        if len(slots):
            player.start(slots, game_ids(iteration, 0, mine[begun : begun + len(slots)]), iteration)
            begun += len(slots)
        player.step()
        watchdog.step()
        on_progress(player.finished_num - finished_before, len(mine))
        total = control.poll()
        if total and over(total):
            break
    else:
        total = control.wait(over, done=True)
    player.pause()
    return total._replace(save=saves)


@watchdog.steps()
def play_until(player, control, iteration, attempt, finished_before, games_num, on_progress, every_s=0.0):
    """Play until the ranks together have finished `games_num` games more than the sum of their `finished_before`, or
    for about `every_s` seconds of root's clock (0: without such a limit). Games under way stay for the next call.

    The ranks finish fewer than one game a rank too many, however slow their sums are: after each sum a rank may finish
    its share of half of the games that are still missing, or one. Half, since a rank that has not seen the newest sum
    yet still acts on the one before.
    """
    size = control.world.size
    player.allow(player.finished_num)  # until the first sum says how many games are missing
    begun = time.monotonic()
    while True:
        _begin_games(player, control.world, iteration, attempt)
        player.step()
        watchdog.step()
        late = control.world.is_root and bool(every_s) and time.monotonic() - begun >= every_s
        total = control.poll(player.finished_num - finished_before, exchange=late)
        if total:
            on_progress(total.finished, games_num)
            if total.finished >= games_num or total.exchange or total.save or total.stop:
                player.pause()
                return total
            share = max((games_num - total.finished) // (2 * size), 1)
            player.allow(finished_before + control.told_finished + share)
        if not player.live.any():  # all games wait for the next sum
            time.sleep(IDLE_S)


@watchdog.steps()
def play_meanwhile(player, control, iteration, attempt, others_num):
    """Play while `others_num` other ranks do something else, until all of those say that they are done."""
    player.allow()
    while True:
        _begin_games(player, control.world, iteration, attempt)
        player.step()
        watchdog.step()
        total = control.poll()
        if total and total.done == others_num:
            player.pause()
            return total


def _begin_games(player, world, iteration, attempt):
    """Put a new game where there is none; indices go on through all calls for one iteration, so that ids are unique."""
    slots = player.free()
    if len(slots):
        first = player.begun.get(iteration, 0)
        indices = (first + np.arange(len(slots))) * world.size + world.rank
        player.start(slots, game_ids(iteration, attempt, indices), iteration)
        player.begun = {iteration: first + len(slots)}
