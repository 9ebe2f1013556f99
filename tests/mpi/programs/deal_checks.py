"""Positions reach the trainer that their index names, from any rank that played them, also where few ranks train."""

import numpy as np

from az_mpi import games
from az_mpi.mpi.world import World
from az_mpi.network.heads.value import Value
from az_mpi.train import replay


def policy_of(index):
    """Return policies that tell a position's number, of one or two actions, float [n, 9]."""
    return 0.25 * (np.arange(9) == index[:, None] % 9) + 0.5 * (np.arange(9) == index[:, None] // 2 % 9)


world = World.start()
world.chunk_bytes = 1024
game = games.make("tictactoe")
counts = [5 + 3 * r for r in range(world.size)]
for num_trainers in (1, world.size):
    rows = np.zeros(counts[world.rank], replay.sample_dtype(game, {"value": Value(game, channels=8)}))
    rows["index"] = 100 + sum(counts[: world.rank]) + np.arange(len(rows))
    rows["value"] = rows["index"] / 7
    got = replay.deal(world, num_trainers, replay.Samples.of(rows, policy_of(rows["index"])))
    expected = [i for i in range(100, 100 + sum(counts)) if i % num_trainers == world.rank]
    index = got.rows["index"]
    assert index.tolist() == expected
    assert (got.rows["value"] == (index / 7).astype(np.float32)).all()
    dense = np.zeros((len(index), 9))
    dense[np.repeat(np.arange(len(index)), got.rows["policy_count"]), got.policy["action"]] = got.policy["probability"]
    assert (dense == policy_of(index)).all()
print("all checks passed")
