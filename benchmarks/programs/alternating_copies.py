"""run_dist.py with copies of the only trainer's state in every other training: alternating_copies.py FILE OPTIONS…

Each of ranks 0 and 1 adds one JSON line to FILE.RANK for each training but the first: whether it had copies, seconds a
step, and the simulations/s of the rank meanwhile.
"""

import json
import sys
import time

import run_dist
from az_mpi.run import training_phase


def learn(run, save, function=training_phase.learn):
    """Train, in even iterations without copies. No rank is lost here, so that nothing is asked of the older ones."""
    training, counters, copies = run.training, run.report.counters, run.progress.iteration % 2 == 1
    partner, begun, before = training.partner, time.perf_counter(), counters.num_meanwhile
    training.partner = partner if copies else None
    outcome = function(run, save)
    training.partner = partner
    took = time.perf_counter() - begun
    if run.progress.iteration and run.world.rank < 2 and outcome.num_steps:
        line = [copies, took / outcome.num_steps, (counters.num_meanwhile - before) / took]
        with open(f"{sys.argv[1]}.{run.world.rank}", "a") as file:
            file.write(json.dumps(line) + "\n")
    return outcome


if __name__ == "__main__":
    training_phase.learn = learn
    sys.exit(run_dist.main(sys.argv[2:]))
