"""After a run is put together, torch and numba use this rank's share of the cores and no more."""

import os
import tempfile
from pathlib import Path

import numba
import torch

from az_mpi import config as configuration
from az_mpi.run import assemble
from az_mpi.world import World

world = World.start()
config = configuration.validate({"game": "tictactoe", "network": {"blocks": 1, "channels": 8}}, "test")
folder = world.share(tempfile.mkdtemp() if world.is_root else None)
assemble(config, world, Path(folder))
share = max(1, len(os.sched_getaffinity(0)) // world.size)  # nothing is bound here, so all ranks share all cores
assert torch.get_num_threads() == share, torch.get_num_threads()
assert numba.get_num_threads() == share, numba.get_num_threads()
print("all checks passed")
