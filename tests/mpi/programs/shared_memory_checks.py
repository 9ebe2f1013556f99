"""Memory that the ranks of a host share."""

import os

import numpy as np

from az_mpi.mpi import host_memory
from az_mpi.mpi.world import World

world = World.start()
memory, part, parts = host_memory.share(world, lambda n: 1000 * n)
assert part == world.local_rank and parts == world.hosts.count(world.host)
if parts == 1:
    assert memory is None
else:
    assert len(memory) == 1000 * parts and not memory.any()
    world.barrier()
    memory[1000 * part : 1000 * (part + 1)] = part + 1
    world.barrier()
    assert (memory == np.repeat(np.arange(parts) + 1, 1000)).all()

# Ranks that do not see each other's processes use their own memory, and do not wait for each other.
here = os.getpid
os.getpid = lambda: here() if world.rank else 1
assert host_memory.share(world, lambda n: 1000)[0] is None
os.getpid = here

before = host_memory.peak_bytes(world)
memory, part, parts = host_memory.share(world, lambda n: n << 26)
if parts > 1:
    memory[:] = 1
    grown = host_memory.peak_bytes(world) - before
    assert 0.9 * (1 << 26) < grown < 1.5 * (1 << 26), grown  # its own part, though it has written all of it
print("all checks passed")
