"""Self-play of one rank on one GPU, and pgx with mctx on the same GPU after it: at most four minutes, one JSON object.

    python benchmarks/one_gpu.py                                      # JAX, pgx and mctx are in this environment
    python benchmarks/one_gpu.py --jax_python jax-env/bin/python --run RUN      # RUN: a trained network of 5 x 64

Connect Four, searches of 100 simulations, all cores that the process may use, games at once as the program chooses.
`untrained`: 5 x 64, Gumbel search. `trained`: PUCT, with the network of --run, or without it with zoo:connect4, which
has 4 x 48. `pgx_mctx`: 5 x 64, Gumbel search, untrained, bf16, at the better of two numbers of games. `verdict` has
what the two marks of one rank ask for. A part that fails or takes too long is told with its reason.

Without a GPU, or with --tiny, all sizes are tiny: that shows that the parts run, and judges nothing.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import machine, make_parser

HERE = Path(__file__).resolve().parent
LIMIT_S = 235.0
GOALS = {"untrained": {"simulations_per_s": 4.5e6, "moves_per_s": 60_000}, "trained": {"simulations_per_s": 8e6}}
SHARES = {"untrained": 0.5, "trained": 0.5, "pgx_mctx": 1.0}  # of the time that is left: what a part may take at most


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--run", type=Path, help="the folder of a run of Connect Four, for `trained`")
    parser.add_argument("--jax_python", default=sys.executable, help="of an environment with JAX, pgx and mctx")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each of three turns of self-play (default 6)")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, which judge nothing")
    arguments = parser.parse_args()
    is_tiny = arguments.tiny or not torch.cuda.is_available()
    end = time.monotonic() + LIMIT_S
    parts = {
        name: part(command, SHARES[name] * (end - time.monotonic()))
        for name, command in commands(arguments, is_tiny).items()
    }
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    cores = len(os.sched_getaffinity(0))
    found = {"benchmark": "one GPU", "gpu": gpu, "is_tiny": is_tiny, "machine": machine() | {"usable_cores": cores}}
    verdict = ["tiny sizes or no GPU: nothing is judged"] if is_tiny else judged(parts)
    print(json.dumps(found | parts | {"seconds": LIMIT_S - end + time.monotonic(), "verdict": verdict}))
    sys.exit(any("failed" in found for found in parts.values()) and not is_tiny)


def commands(arguments, is_tiny):
    """Return {part: words of its command}."""
    selfplay = [sys.executable, HERE / "selfplay.py", "--json", "--all_cores", "--config_file", HERE / "connect4.json"]
    weights = ["--run", arguments.run] if arguments.run else ["--weights", "zoo:connect4"]
    pgx = [arguments.jax_python, HERE / "others" / "pgx_mctx.py", "--json"]
    if is_tiny:
        sizes, settings = ["--seconds", 0.5, "--runs", 1], ["search.simulations=8", "selfplay.parallel_games=16"]
        network = ["network.blocks=1", "network.channels=8"]
        pgx += ["--simulations", 8, "--batches", 4, 16, "--runs", 1]
    else:
        sizes = ["--seconds", arguments.seconds, "--runs", 3]
        settings = ["search.simulations=100", "selfplay.num_games=16384", "selfplay.parallel_games=0"]
        network = ["network.blocks=5", "network.channels=64"]
        pgx += ["--simulations", 100, "--batches", 4096, 16384, "--runs", 3, "--dtype", "bfloat16"]
    return {
        "untrained": [*selfplay, *sizes, *changes([*settings, *network, "search.algorithm=gumbel"])],
        "trained": [*selfplay, *sizes, *weights, *changes([*settings, "search.algorithm=puct"])],
        "pgx_mctx": pgx,
    }


def changes(settings):
    return [word for setting in settings for word in ("--set", setting)]


def part(command, seconds):
    """Return the figures of a part, or why there are none, after at most so many seconds."""
    words, begun = list(map(str, command)), time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, errors = process.communicate()
        return {"command": " ".join(words), "failed": f"it took more than {seconds:.0f} s", "stderr": errors[-1000:]}
    if process.returncode:
        why = f"exit status {process.returncode}: {errors.strip().rpartition(chr(10))[2]}"
        return {"command": " ".join(words), "failed": why, "stderr": errors[-1000:]}
    told = json.loads(said.splitlines()[-1])
    return {"command": " ".join(words), "seconds": time.monotonic() - begun} | figures(told)


def figures(told):
    """Return what a part tells under the same names for both programs."""
    if "rows" not in told:
        rows = {name: row for name, row in told.items() if isinstance(row, dict) and "median" in row}
        return {"title": told["benchmark"], "moves_per_s": rows.pop("positions_per_s"), **rows}
    best = max(told["rows"], key=lambda row: row["simulations_per_s"])
    names = {"simulations_per_s": "simulations_per_s", "moves_per_s": "positions_per_s"}
    rates = {ours: {"median": best[theirs]} for ours, theirs in names.items()}
    return {key: told[key] for key in ("jax", "pgx", "backend", "dtype")} | rates | {"rows": told["rows"]}


def judged(parts):
    """Return lines: each mark, and one rank beside pgx with mctx."""
    lines = [f"{name}: {found['failed']}" for name, found in parts.items() if "failed" in found]
    for name, goals in GOALS.items():
        for figure, goal in goals.items():
            if figure in parts[name]:
                measured = parts[name][figure]["median"]
                word = "reached" if measured >= goal else "not reached"
                lines.append(f"{parts[name]['title']}: {measured:,.0f} {figure}, goal {goal:,.0f}: {word}")
    other = parts["pgx_mctx"]
    if "failed" not in other and other["backend"] != "gpu":
        return [*lines, f"pgx and mctx ran on {other['backend']}: not compared"]
    for figure in ("simulations_per_s", "moves_per_s"):
        if figure in parts["untrained"] and figure in other:
            ours, theirs = (found[figure]["median"] for found in (parts["untrained"], other))
            lines.append(f"{figure}: az_mpi {ours:,.0f}, pgx and mctx {theirs:,.0f} (A/B {ours / theirs:.2f})")
    return lines


if __name__ == "__main__":
    main()
