"""Positions reach the trainer that their index names, whoever played them, also where few ranks train."""

import numpy as np

from az_mpi import games
from az_mpi.mpi.world import World
from az_mpi.train import replay

world = World.start()
world.chunk_bytes = 1024
game = games.make("tictactoe")
counts = [5 + 3 * r for r in range(world.size)]
for trainers_num in (1, world.size):
    rows = np.zeros(counts[world.rank], replay.sample_dtype(game))
    rows["index"] = 100 + sum(counts[: world.rank]) + np.arange(len(rows))
    rows["value"] = rows["index"] / 7
    got = replay.deal(world, trainers_num, rows)
    expected = [i for i in range(100, 100 + sum(counts)) if i % trainers_num == world.rank]
    assert got["index"].tolist() == expected
    assert (got["value"] == (got["index"] / 7).astype(np.float32)).all()
print("all checks passed")
