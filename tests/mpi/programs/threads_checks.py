"""A rank that waits for another leaves its core alone: it uses a small part of the time that it waits."""

import time

from az_mpi.world import World

world = World.start()
world.barrier()
cpu, wall = time.process_time(), time.monotonic()
if world.is_root:
    time.sleep(2.0)
world.barrier()
waited, used = time.monotonic() - wall, time.process_time() - cpu
assert waited > 1.9
assert used < 0.25 * waited, f"{used:.2f} s of processor time in {waited:.2f} s of waiting"
print("all checks passed")
