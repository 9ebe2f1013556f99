"""A rank that waits for another leaves its core alone: it uses a small part of the time that it waits."""

import time

from az_mpi.mpi.world import World

world = World.start()
members = world.split(True)
world.barrier()
cpu, wall = time.process_time(), time.monotonic()
if world.is_root:
    time.sleep(2.0)
before = world.waited_s
members.barrier()  # a world of its own, and waiting in it counts all the same
counted = world.waited_s - before
assert counted < 0.1 if world.is_root else counted > 1.9, f"{counted:.2f} s counted as waiting"
waited, used = time.monotonic() - wall, time.process_time() - cpu
assert waited > 1.9
assert used < 0.25 * waited, f"{used:.2f} s of processor time in {waited:.2f} s of waiting"
print("all checks passed")
