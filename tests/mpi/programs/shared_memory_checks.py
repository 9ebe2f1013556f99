"""Memory that the ranks of a host share, and the evaluation cache that is in it."""

import os
import tempfile
from pathlib import Path

import numpy as np

from az_mpi.config import load as configuration
from az_mpi.core.processes import peak_bytes
from az_mpi.mpi import host_memory
from az_mpi.mpi.world import World
from az_mpi.network import engines
from az_mpi.run.setup import assemble

world = World.start()
parts = world.hosts.count(world.host)
memory = host_memory.share(world, lambda n: 1000 * n)
if parts == 1:
    assert memory is None
else:
    assert len(memory) == 1000 * parts and not memory.any()
    world.barrier()
    memory[1000 * world.local_rank : 1000 * (world.local_rank + 1)] = world.local_rank + 1
    world.barrier()
    assert (memory == np.repeat(np.arange(parts) + 1, 1000)).all()

# Ranks that do not see each other's processes have none, and do not wait for each other.
here = os.getpid
os.getpid = lambda: here() if world.rank else 1
assert host_memory.share(world, lambda n: 1000) is None
os.getpid = here

before, memory = peak_bytes(), host_memory.share(world, lambda n: n << 26)
if memory is not None:
    memory[:] = 1
    world.barrier()
    grown = peak_bytes() - before
    assert 0.9 * (1 << 26) < grown < 1.5 * (1 << 26), grown  # its own part, though it has written all of it
    world.barrier()

# One rank evaluates a position for all; in a deterministic run each rank does. By their own timings they would not have
# one precision, nor one number of games at once: never int8 on the first rank and the least number, the others always
# int8 and the largest number.
engines.timing.GAIN_MIN = 0.0 if world.rank else 1e9
for deterministic in (False, True):
    settings = {"game": "tictactoe", "network": {"blocks": 1, "channels": 8}}
    settings["selfplay"] = {"deterministic": deterministic, "num_games": 1024 * world.size}
    folder = world.share(tempfile.mkdtemp() if world.is_root else None)
    run = assemble(configuration.validate(settings, "test"), world, Path(folder))
    assert len(set(world.collect(run.playing.engine.precision))) == 1
    assert world.collect(len(run.playing.player.live)) == [256] * world.size
    evaluate, states = run.playing.evaluate, run.setup.game.initial(1)
    for rank in range(world.size):
        if rank == world.rank:
            value = evaluate(states)[1]
        world.barrier()
    asked, evaluated = evaluate.take_counts()
    assert asked == 1 and world.collect(evaluated) == [int(deterministic or rank == 0) for rank in range(world.size)]
    assert len(set(world.collect(float(value[0])))) == 1
print("all checks passed")
