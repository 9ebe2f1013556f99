"""What the benchmarks share: medians with their spread, where they were measured, and the bare engine's rate."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import az_mpi  # it sets what OpenMP and torch read once, when they are loaded

# isort: split
import numba
import numpy as np
import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.core.arguments import setting
from az_mpi.network import resnet
from az_mpi.player import trained_network
from az_mpi.storage import checkpoint, run_folder


def machine():
    """Return where this runs, JSON-able."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "az_mpi": az_mpi.__version__,
    }


def make_parser(about, runs=None):
    """Return a parser with what every benchmark takes. runs: of each measurement, by default; None: no such option."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if runs:
        parser.add_argument("--runs", type=int, default=runs, help=f"of each measurement (default {runs})")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    return parser


def add_network(parser):
    """Add the options that `network_of` reads."""
    parser.add_argument("--run", type=Path, help="the folder of a run: its configuration and newest network")
    parser.add_argument("--weights", help="without --run: a network of the zoo, or a file that `export` wrote")
    parser.add_argument("--config_file", type=Path, default=Path("benchmarks/connect4.json"))
    parser.add_argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="as for run_dist.py"
    )


def network_of(arguments):
    """Return (configuration, game, network): of the run, else of the configuration file, with untrained weights or with
    the network --weights, whatever its size."""
    overrides = dict(arguments.set)
    if arguments.run:
        config = run_folder.recorded_config(arguments.run, overrides)
    else:
        config = configuration.load(arguments.config_file, overrides)
    if arguments.weights and not arguments.run:
        trained = trained_network.read(arguments.weights)
        if trained.config.game != config.game:
            sys.exit(f"{arguments.weights} plays {trained.config.game}, and {arguments.config_file} {config.game}")
        return config.model_copy(update={"network": trained.config.network}), trained.game, trained.network
    game = games.make(config.game)
    network = resnet.build(game, config.network, config.seed)
    if arguments.run:
        newest, _ = checkpoint.load_newest(arguments.run / "checkpoints", set_aside=False)
        network.load_state_dict(newest.model)
    return config, game, network


def take_one_core(index=0):
    """Keep this process to one of the cores it may use, the one numbered `index`, and torch to one thread."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    torch.set_num_threads(1)


def take_all_cores(world):
    """Let torch and numba use this rank's cores, as a run does; return how many there are. Collective."""
    num_cores = world.cores()
    torch.set_num_threads(num_cores)
    numba.set_num_threads(min(num_cores, numba.config.NUMBA_NUM_THREADS))
    return num_cores


def spread(values):
    """Return the median, the least and the largest of some measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def mpirun(ranks, options=()):
    """Return the words that start `ranks` ranks on this host, more than it has cores where asked."""
    here = Path(sys.executable).parent / "mpirun"
    return [
        str(here) if here.exists() else "mpirun",
        "-np",
        str(ranks),
        "-H",
        f"localhost:{ranks}",
        "--bind-to",
        "none",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        *options,
    ]


def launch(ranks, command, **variables):
    """Run a command on `ranks` ranks of this host, started as `mpirun` says, and return what they print.

    The ranks see `variables` in their environment. Ends this program with what they said if they fail.
    """
    start = mpirun(ranks)
    done = subprocess.run([*start, *command], env=os.environ | variables, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(start)} … ended with status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def tell(title, rows, as_json):
    """Print figures, {metric name: spread}, as a table or as one JSON object."""
    if as_json:
        print(json.dumps({"benchmark": title, "machine": machine(), **rows}))
        return
    place = machine()
    print(f"{title}: {place['processor']}, {place['threads']} thread(s), torch {place['torch']}")
    for name, row in rows.items():
        print(f"  {name:<26} {row['median']:>12,.4g}   [{row['min']:,.4g}, {row['max']:,.4g}] of {row['runs']}")


def bare_rate(engine, game, batch):
    """Return the engine's evaluations/s with batches of one size."""
    planes = np.random.default_rng(0).integers(0, 2, (batch, *game.planes_shape)).astype(np.uint8)
    engine.evaluate(planes)
    begun, rounds = time.perf_counter(), 0
    while (took := time.perf_counter() - begun) < 0.5:
        engine.evaluate(planes)
        rounds += 1
    return rounds * batch / took
