"""Sessions of a backend, again and again, over all ranks and over fewer, also after one that failed.

session_checks.py BACKEND
"""

import gc
import sys

import torch

from az_mpi.mpi.world import World
from az_mpi.train import backends


def summed(world, backend, device="cpu"):
    """Return the summed gradient where each rank's own is its number + 1. Two steps, two sessions."""
    weight = torch.nn.Parameter(torch.zeros(3, device=device))
    wait_for_sums = backend.sum_gradients([weight])
    for _ in range(2):
        with backend.session():
            weight.grad = None
            (weight * (world.rank + 1)).sum().backward()
            wait_for_sums()
    return weight.grad.tolist()


def check_memory(backend):
    """Sessions leave no objects behind: a run has one an iteration. Collective."""
    counts = []
    for _ in range(3):
        for _ in range(10):
            with backend.session():
                pass
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 10, counts


def main():
    world = World.start()
    name = sys.argv[1]
    everyone = backends.make(name, world, world, "cpu")
    expected = [world.size * (world.size + 1) / 2] * 3
    assert summed(world, everyone) == expected
    try:
        with everyone.session():
            raise KeyError("of this test")
    except KeyError:
        pass
    assert summed(world, everyone) == expected
    # All but the last rank, while the first group may still be open: what is left after a loss.
    fewer = world.split(world.rank < max(1, world.size - 1))
    backend = backends.make(name, world, fewer, "cpu")
    assert (backend is None) == (fewer is None)
    if fewer:
        assert summed(fewer, backend) == [fewer.size * (fewer.size + 1) / 2] * 3
    world.barrier()
    assert summed(world, everyone) == expected  # and all of them once more
    check_memory(everyone)
    if world.is_root and world.size > 1:
        assert name in everyone.describe().replace("torch.distributed", "ddp")
    print("all checks passed")


if __name__ == "__main__":
    main()
