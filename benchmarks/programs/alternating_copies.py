"""run_dist.py with copies of the only trainer's state in every other training: alternating_copies.py FILE OPTIONS…

Each of ranks 0 and 1 adds one JSON line to FILE.RANK for each training but the first: whether it had copies, seconds a
step, and the simulations/s of the rank meanwhile.
"""

import json
import sys
import time

import run_dist
from az_mpi import loop


def learn(run, function=loop.learn):
    """Train, in even iterations without copies. No rank is lost here, so that nothing is asked of the older ones."""
    partner, copies = run.partner, run.progress.iteration % 2 == 1
    begun, before = time.perf_counter(), run.counters.meanwhile_num
    run.partner = partner if copies else None
    steps = function(run)
    run.partner = partner
    took = time.perf_counter() - begun
    if run.progress.iteration and run.world.rank < 2 and steps:
        line = [copies, took / steps, (run.counters.meanwhile_num - before) / took]
        with open(f"{sys.argv[1]}.{run.world.rank}", "a") as file:
            file.write(json.dumps(line) + "\n")
    return steps


if __name__ == "__main__":
    loop.learn = learn
    sys.exit(run_dist.main(sys.argv[2:]))
