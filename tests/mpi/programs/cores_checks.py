"""After a run is put together, torch and numba use this rank's share of the cores and no more; torch is deterministic,
as was asked for, and its compiler, a second of imports, is not there."""

import os
import sys
import tempfile
from pathlib import Path

import numba
import torch

from az_mpi.config import load as configuration
from az_mpi.mpi.world import World
from az_mpi.run.setup import assemble

world = World.start()
settings = {"game": "tictactoe", "network": {"blocks": 1, "channels": 8}, "selfplay": {"deterministic": True}}
config = configuration.validate(settings, "test")
folder = world.share(tempfile.mkdtemp() if world.is_root else None)
assemble(config, world, Path(folder))
share = max(1, len(os.sched_getaffinity(0)) // world.size)  # nothing is bound here, so all ranks share all cores
assert torch.get_num_threads() == share, torch.get_num_threads()
assert numba.get_num_threads() == share, numba.get_num_threads()
assert torch.are_deterministic_algorithms_enabled() and "torch._dynamo" not in sys.modules
print("all checks passed")
