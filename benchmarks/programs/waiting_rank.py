"""run_dist.py on a rank whose engine and training compute only wait: waiting_rank.py FILE BATCH_S SAMPLE_S OPTIONS…

A batch of evaluations takes BATCH_S, a step's forward and backward pass SAMPLE_S a sample of this rank, and new weights
reach the engine after LOAD_S. All else is the program's own: search, quota, exchange, Horovod's reductions, publishing,
checkpoints. After each iteration root adds one JSON line to FILE with the mean over ranks of the seconds spent on each.
"""

import json
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch

import run_dist
from az_mpi.core.registry import ENGINES, EVALUATORS
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.network.resnet import ResNet
from az_mpi.run import iteration_report
from az_mpi.telemetry.metrics import Timers
from az_mpi.train.learner import Learner

FILE, BATCH_S, SAMPLE_S = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
LOAD_S = 0.03  # that a 5 x 64 network takes to reach an engine
spent = Counter()  # of this rank in this iteration
last = [0.0]


class WaitingEngine(Engine):
    """What self-play would search with: all it does here is to take over weights."""

    describe = "waits"

    def load(self, network):
        time.sleep(LOAD_S)


class WaitingEvaluator(UniformEvaluator):
    def __call__(self, states):
        time.sleep(BATCH_S)
        spent["engine_s"] += BATCH_S
        return super().__call__(states)


def waiting_forward(network, planes):
    """Equal logits and one value, through which every parameter gets a gradient."""
    time.sleep(SAMPLE_S * len(planes))
    spent["compute_s"] += SAMPLE_S * len(planes)
    total = torch.tanh(sum(parameter.mean() for parameter in network.parameters()))
    num, actions = len(planes), network.heads["policy"].out.out_features
    return {"policy": total.expand(num, actions), "value": total.expand(num)}


def init_timed(learner, *arguments, init=Learner.__init__):
    init(learner, *arguments)
    synchronize = learner.optimizer.synchronize

    def timed():
        begun = time.perf_counter()
        synchronize()
        spent["allreduce_s"] += time.perf_counter() - begun

    learner.optimizer.synchronize = timed


def queued():
    """Return the seconds that the main thread was ready to run and had no core; 0 where Linux does not count them."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


@contextmanager
def phase_with_cpu(timers, name, phase=Timers.__call__):
    before, queued_before = time.process_time(), queued()
    with phase(timers, name):
        yield
    spent[f"{name}_cpu_s"] += time.process_time() - before
    spent["queued_s"] += queued() - queued_before


def report_and_tell(run, *what, report=iteration_report.report):
    report(run, *what)
    run.world.barrier()
    now = time.perf_counter()
    spent["iteration_s"] = now - last[0]
    everyone = run.world.collect(dict(spent))
    if run.world.is_root:
        names = sorted(set().union(*everyone))
        means = {name: sum(one.get(name, 0.0) for one in everyone) / len(everyone) for name in names}
        with open(FILE, "a") as file:
            file.write(json.dumps(means) + "\n")
    spent.clear()
    last[0] = time.perf_counter()


ENGINES.built_in["auto"], EVALUATORS.built_in["network"] = "__main__:WaitingEngine", "__main__:WaitingEvaluator"
ResNet.forward, Learner.__init__ = waiting_forward, init_timed
Timers.__call__, iteration_report.report = phase_with_cpu, report_and_tell
sys.exit(run_dist.main(sys.argv[4:]))
