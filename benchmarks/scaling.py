"""Weak and strong scaling over ranks whose engine and training compute only wait, so that one machine can hold many.

    python benchmarks/scaling.py --ranks 1,2,4,8,16,32,64
    python benchmarks/scaling.py --ranks 1,2,4,8 --strong

Each number of ranks is one run of the program, oversubscribed, of a few iterations (the first is left out).
`useful_share`: what the waits for engine and compute were to take, over the whole iteration, mean over ranks. Weak:
games, batch and samples grow with the ranks; strong: they are as on one rank. `efficiency`: games/s a rank against
one rank. Terms, seconds of an iteration: `search_s` (play without engine and tail), `play_tail_s` (waiting for the
last rank at the end of play), `exchange_s`, `allreduce_s` (waiting for Horovod's sums), `train_rest_s` (Horovod's
start, sampling, the optimiser), `broadcast_s`, `save_s`, `report_s`. What ranks that share cores cost each other is not
communication: `queued_s` is how long a rank's main thread was ready and had no core (by Linux's count),
`processor_load` the ranks' processor seconds over those there are, `useful_share_own_core` the share without the
queues (see `alone`).
"""

import itertools
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import launch, machine, make_parser, spread

ROOT = Path(__file__).resolve().parents[1]
TERMS = ("search_s", "play_tail_s", "exchange_s", "allreduce_s", "train_rest_s", "broadcast_s", "save_s", "report_s")
PHASES = {
    "play": ("search_s",),
    "exchange": ("exchange_s",),
    "train": ("train_rest_s", "allreduce_s"),
    "broadcast": ("broadcast_s",),
    "save": ("save_s",),
}
NAMES = ("useful_share", "useful_share_own_core", "queued_s", "processor_load")
FAR = 1024


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", default="1,2,4,8,16,32,64", help="which numbers of ranks, the first one 1")
    parser.add_argument("--strong", action="store_true", help="the work of --games for all ranks together")
    parser.add_argument("--games", type=int, default=24, help="games an iteration, of each rank or (strong) in all")
    parser.add_argument("--batch_s", type=float, default=0.25, help="seconds that a batch of evaluations takes")
    parser.add_argument("--step_s", type=float, default=0.4, help="seconds that one rank's step of 16 samples takes")
    parser.add_argument("--runs", type=int, default=5, help="iterations measured")
    arguments = parser.parse_args()
    table = {}
    for ranks in map(int, arguments.ranks.split(",")):
        table[ranks] = measure(arguments, ranks)
        rate = table[ranks]["games_per_s"]["median"] / ranks
        first = min(table)
        alone = table[first]["games_per_s"]["median"] / first
        table[ranks]["efficiency"] = spread([rate / alone])
        print(row(ranks, table[ranks]), file=sys.stderr, flush=True)
    models = [] if arguments.strong else [predict(table, kind, arguments.batch_s) for kind in ("", "_own_core")]
    if arguments.json:
        rows = {str(ranks): figures for ranks, figures in table.items()}
        print(
            json.dumps(
                {
                    "benchmark": "scaling strong" if arguments.strong else "scaling weak",
                    "machine": machine(),
                    "ranks": rows,
                    "predicted_ranks": FAR,
                    "predicted_useful_share": models[0][0] if models else None,
                    "predicted_useful_share_own_core": models[1][0] if models else None,
                }
            )
        )
        return
    place = machine()
    print(
        f"scaling, {'strong' if arguments.strong else 'weak'}: {place['processor']}, {place['cores']} cores, "
        f"torch {place['torch']}; medians of {arguments.runs} iterations"
    )
    names = ("iteration_s", *NAMES, "games_per_s", "efficiency", *TERMS)
    print("  ranks", *(f"{name.replace('useful_share', 'useful'):>15}" for name in names))
    for ranks, figures in table.items():
        print(f"  {ranks:>5}", *(f"{figures[name]['median']:>15.4g}" for name in names))
    shares = {ranks: figures["useful_share"] for ranks, figures in table.items()}
    spans = ", ".join(f"{ranks}: [{one['min']:.3f}, {one['max']:.3f}]" for ranks, one in shares.items())
    print(f"  useful_share from least to largest: {spans}")
    if models:
        print(paragraph(models))


def measure(arguments, ranks):
    """Run the program on some ranks; return {name: spread} over its iterations but the first."""
    share = 1 if arguments.strong else ranks
    settings = {
        "game": "tictactoe",
        "iterations": arguments.runs + 1,
        "network": {"blocks": 1, "channels": 8},
        "search": {"simulations": 2},
        "selfplay": {"num_games": arguments.games * share, "parallel_games": 4},
        "train": {"batch_size": 16 * share, "replay_ratio": 1.0},
        "evaluate": {"every": 0, "opponents": [], "solver_positions": 0},
        "report": {"tensorboard": False, "summary_frequency": 1000},
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "config.json").write_text(json.dumps(settings))
        command = [
            sys.executable,
            str(ROOT / "benchmarks" / "programs" / "waiting_rank.py"),
            str(folder / "waits"),
            str(arguments.batch_s),
            str(arguments.step_s / 16),
            "--config_file",
            str(folder / "config.json"),
            "--logdir",
            str(folder / "run"),
        ]
        launch(ranks, command, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
        waits = [json.loads(line) for line in (folder / "waits").read_text().splitlines()]
        lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    records = [line for line in lines if line["kind"] == "iteration"]
    iterations = [terms(record, mine, ranks) for record, mine in zip(records[1:], waits[1:])]
    return {name: spread([one[name] for one in iterations]) for name in iterations[0]}


def terms(record, waits, ranks):
    """Return the figures of one iteration from its record and the means over ranks of what was waited for."""
    whole, cores = waits["iteration_s"], len(os.sched_getaffinity(0))
    compute, allreduce = waits.get("compute_s", 0.0), waits.get("allreduce_s", 0.0)
    useful, cpu = waits["engine_s"] + compute, {phase: waits[f"{phase}_cpu_s"] for phase in PHASES}
    values = {
        "search_s": record["play_s"] - record["play_idle_s"] - waits["engine_s"],
        "play_tail_s": record["play_idle_s"],
        "exchange_s": record["exchange_s"],
        "allreduce_s": allreduce,
        "train_rest_s": record["train_s"] - compute - allreduce,
        "broadcast_s": record["broadcast_s"],
        "save_s": record["save_s"],
        "report_s": whole - sum(record[f"{phase}_s"] for phase in PHASES),
    }
    own = alone(values, cpu, ranks / cores)
    values |= {"iteration_s": whole, "useful_s": useful, "useful_share": useful / whole}
    values |= {"useful_share_own_core": useful / (useful + sum(own.values()))}
    values |= {"games_per_s": record["num_games"] / whole, "play_tail_max_s": record["play_idle_max_s"]}
    values |= {"queued_s": waits["queued_s"], "processor_load": ranks * sum(cpu.values()) / whole / cores}
    return values | {f"{term}_own_core": seconds for term, seconds in own.items()}


def alone(values, cpu, ranks_a_core):
    """Return the terms as ranks with a core each would have them.

    Ranks in a phase do the same at the same time, so each waits while its core does the same for its neighbours: of a
    phase's terms the processor seconds of those are taken off, but never the rank's own. cpu: {phase: seconds of one}.
    """
    own = {term: values[term] for term in TERMS}
    for phase, names in PHASES.items():
        queue = min(max(0.0, ranks_a_core - 1) * cpu[phase], max(0.0, sum(own[name] for name in names) - cpu[phase]))
        for name in names:
            taken = min(queue, max(0.0, own[name]))
            own[name], queue = own[name] - taken, queue - taken
    return own


def predict(table, suffix, batch_s):
    """Return (useful share at FAR ranks, {term: (seconds there, a, b, c)}) of the weak table's terms + `suffix`."""
    fits = {}
    for term in TERMS:
        a, b, c = fit(list(table), [figures[f"{term}{suffix}"]["median"] for figures in table.values()])
        there = a + b * math.log2(FAR) + c * FAR
        fits[term] = (min(there, batch_s) if term == "play_tail_s" else there, a, b, c)
    useful = statistics.median(figures["useful_s"]["median"] for figures in table.values())
    return useful / (useful + sum(values[0] for values in fits.values())), fits


def fit(ranks, seconds):
    """Return a, b, c >= 0 with least squared error of a + b log2 N + c N."""
    columns = np.array([[1.0, math.log2(n), n] for n in ranks])
    target, best = np.array(seconds), (np.inf, np.zeros(3))
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(3), k) for k in (1, 2, 3)):
        found = np.zeros(3)
        found[list(chosen)] = np.linalg.lstsq(columns[:, chosen], target, rcond=None)[0]
        error = float(((columns @ found - target) ** 2).sum())
        if (found >= 0).all() and error < best[0]:
            best = error, found
    return tuple(float(x) for x in best[1])


def row(ranks, figures):
    return f"  {ranks} ranks: " + ", ".join(
        f"{name} {figures[name]['median']:.3g}" for name in ("iteration_s", *NAMES, *TERMS)
    )


def paragraph(models):
    """Return how the share at FAR ranks is predicted, and what it is."""
    (measured, fits), (own_core, own_fits) = models
    lines = [
        f"  Predicted useful_share at {FAR:,} ranks, weak: {measured:.3f} as measured here, {own_core:.3f} with a "
        "core for each rank.",
        "  How: each term's medians are fitted by a + b log2 N + c N with a, b, c >= 0 (least squares; b: the",
        "  depth of a tree of messages, c: what root or one machine does for each rank in turn), and the sum of",
        f"  the terms at N = {FAR:,} is set beside the useful seconds of an iteration. Ranks that share cores",
        "  queue for them: for the second figure the processor seconds of a core's other ranks are first taken",
        "  off the terms of their phase. All ranks share one machine: no network's latency or bandwidth is in it.",
        "  Play's tail is one batch at most, by the way in which ranks agree to stop.",
        f"  {'term':<14}{'a':>10}{'b':>10}{'c':>11}{'there':>10}   own core:",
    ]
    for term, (there, a, b, c) in fits.items():
        far, own_a, own_b, own_c = own_fits[term]
        lines.append(
            f"  {term:<14}{a:>10.4f}{b:>10.4f}{c:>11.6f}{there:>10.3f}   "
            f"{own_a:>10.4f}{own_b:>10.4f}{own_c:>11.6f}{far:>10.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
