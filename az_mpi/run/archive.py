"""The archive: positions of the window at which games of self-play may begin, the same on every rank."""

import numpy as np

from az_mpi.run import exchange
from az_mpi.run.state import Run
from az_mpi.selfplay.starts import Archive

DRAW = 1  # part of the seed: calibration draws from the window by [seed, iteration]


def renew(run: Run) -> None:
    """Draw `selfplay.num_games` positions from the window, with replacement, for the games that begin from now on.
    Collective; does nothing if `selfplay.start_share` is 0.

    They depend on the seed, the iteration and the positions made so far, not on how the window is split over ranks. So
    a run that is resumed here draws the same ones."""
    game, settings, progress = run.setup.game, run.setup.config.selfplay, run.progress
    if not settings.start_share:
        return
    rng = np.random.default_rng([run.setup.config.seed, run.games_iteration, DRAW])
    oldest, num = max(exchange.oldest(run), 0), settings.num_games if progress.num_positions else 0
    drawn = rng.integers(oldest, max(progress.num_positions, 1), size=num)
    rows = np.empty(0, [("place", "<i8"), ("ply", "<i4"), ("state", game.state_dtype, (game.state_size,))])
    if run.training.replay:  # a trainer's shard
        found, states, plies = run.training.replay.find(drawn)
        rows = np.empty(len(states), rows.dtype)
        rows["place"], rows["state"], rows["ply"] = np.flatnonzero(found), states, plies
    rows = run.world.gather(rows, run.setup.config.exchange.compress)
    states = plies = None
    if run.world.is_root:
        rows = rows[np.argsort(rows["place"])]
        states, plies = rows["state"], rows["ply"]
    run.playing.player.archive = Archive(run.world.broadcast(states), run.world.broadcast(plies))
