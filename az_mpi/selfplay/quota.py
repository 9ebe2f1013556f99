"""How many games an iteration plays, and who plays them."""

import time

import numpy as np

from az_mpi.selfplay.record import game_ids
from az_mpi.world import split_evenly

ASK_EVERY_S = 0.005


def play_share(player, world, iteration, missing, on_progress):
    """Play exactly the games with the indices `missing` (the same list on every rank), split evenly over the ranks.

    Each game is seeded by its index and finished, so what is played does not depend on the number of ranks.
    Not collective: ranks end when their own share is done.
    """
    share = split_evenly(len(missing), world.size)
    mine = missing[sum(share[: world.rank]) :][: share[world.rank]]
    begun, finished_before = 0, player.finished_num
    while begun < len(mine) or player.live.any():
        slots = player.free()[: len(mine) - begun]
        if len(slots):
            player.start(slots, game_ids(iteration, 0, mine[begun : begun + len(slots)]), iteration)
            begun += len(slots)
        player.step()
        on_progress(player.finished_num - finished_before, len(mine))
    player.pause()


def play_until(player, world, iteration, attempt, games_num, on_progress):
    """Play until all ranks together have finished `games_num` games; games under way stay for the next iteration.

    The ranks add up their counts in sums that nobody waits for. All see the same totals in the same order, so all
    stop after the same one. Collective.
    """
    begun, finished_before = 0, player.finished_num
    pending, asked = world.start_sum(0), time.monotonic()
    while True:
        slots = player.free()
        if len(slots):
            indices = (begun + np.arange(len(slots))) * world.size + world.rank
            player.start(slots, game_ids(iteration, attempt, indices), iteration)
            begun += len(slots)
        player.step()
        if time.monotonic() - asked >= ASK_EVERY_S and pending.finished():
            on_progress(pending.total, games_num)
            if pending.total >= games_num:
                player.pause()
                return
            pending, asked = world.start_sum(player.finished_num - finished_before), time.monotonic()
