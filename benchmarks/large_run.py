"""A run with millions of games: what a start looks up in its folder, and what `verify` and `report` take.

    python benchmarks/large_run.py                                            # 10,000 segments of 1,000 games: 2.4 GB
    python benchmarks/large_run.py --segments 1000 --games 100

Makes the folder of a run of tic-tac-toe, one segment an iteration, its metrics and a checkpoint. Seconds are of
processor time, all threads and processes together. `find_s`: a start reads how many positions each segment has.
`first_links_s`: its first exchange makes games.h5; `links_s`: a later one renews it. `status` reads one small file,
however long a run is.
"""

import hashlib
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import h5py
import numpy as np
from common import make_parser, spread, tell
from segments import PROVENANCE, random_games

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.network import resnet
from az_mpi.selfplay.record import game_ids
from az_mpi.storage import checkpoint, run_folder, segment

ROOT = Path(__file__).resolve().parents[1]
PHASES = ("play", "exchange", "train", "broadcast", "save", "report")


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--games", type=int, default=1000, help="in each segment")
    parser.add_argument("--folder", type=Path, help="an empty folder, on the file system to measure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run = Path(folder) / "run"
        make(run, arguments.segments, arguments.games)
        figures = {"find_s": seconds(lambda: segment.find(run / "games"))}
        links = segment.Links(run / "games", run / "games.h5")
        figures["first_links_s"] = seconds(links.renew)
        figures["links_s"] = seconds(links.renew)
        for name in ("verify", "report"):
            figures[f"{name}_s"] = command(name, run)
    title = f"a run of {arguments.segments:,} segments, {arguments.segments * arguments.games:,} games"
    tell(title, {name: spread([value]) for name, value in figures.items()}, arguments.json)


def make(run, num_segments, num_games):
    """Make the folder of a run after `num_segments` iterations."""
    config = configuration.load(ROOT / "configs" / "smoke.json", {"iterations": num_segments})
    run_folder.prepare(run, config, ["benchmark"], fresh=True)
    game, made = games.make(config.game), 0
    record = random_games(game, num_games)
    lengths = record.games["length"]
    with open(run / "metrics.jsonl", "w") as metrics:
        for iteration in range(num_segments):
            record.games["id"] = game_ids(iteration, 1, np.arange(num_games))
            record.games["iteration"], record.positions["game"] = iteration, np.repeat(record.games["id"], lengths)
            made += like(run / "games", iteration, game, record)
            metrics.write(json.dumps(measured(iteration + 1, num_games, made)) + "\n")
    segment.link_all(run / "games", run / "games.h5")
    model = resnet.build(game, config.network, config.seed).state_dict()
    progress = checkpoint.Progress(num_segments, num_games=num_segments * num_games, num_positions=made)
    checkpoint.save(run / "checkpoints", checkpoint.Checkpoint(progress, model, {}), keep=1)


def like(folder, iteration, game, record):
    """Write a segment whose games differ from those of the folder's first one in their ids and iteration alone; return
    its number of positions. The program's writer makes the first one; it takes several times as long."""
    first, path = segment.path_of(folder, 0, 0), segment.path_of(folder, iteration, 0)
    if not iteration:
        return segment.write(folder, 0, game, record, PROVENANCE).num_positions
    content = first.read_bytes()
    end = content.index(b"az_mpi segment counts ")  # behind it: the counts and the sum, as text
    with h5py.File(memory := io.BytesIO(content[:end]), "r+") as file:
        file.attrs["iteration"] = iteration
        file["games/id"][:], file["games/iteration"][:] = record.games["id"], iteration
        file["positions/game"][:] = record.positions["game"]
    body = memory.getvalue() + content[end:-64]
    mark = body.rindex(b"az_mpi segment sha256 ")
    path.write_bytes(body + hashlib.sha256(body[:mark]).hexdigest().encode())
    return len(record.positions)


def measured(iteration, num_games, made):
    """Return an iteration's record for metrics.jsonl."""
    seconds = {f"{name}{kind}_s": 1.0 for name in PHASES for kind in ("", "_idle", "_idle_max")}
    counts = {"num_games": num_games, "num_positions": 8 * num_games, "num_positions_stored": made, "num_steps": 1}
    rates = {"games_per_s": 100.0, "simulations_per_s": 1e4, "first_player_score": 0.6, "mean_length": 8.0}
    by_rank = {"games_by_rank": [num_games], "positions_by_rank": [8 * num_games], "playing_s_by_rank": [1.0]}
    when = {"kind": "iteration", "time": time.time(), "step": iteration, "iteration": iteration}
    return when | counts | rates | by_rank | seconds | {"policy_loss": 1.0, "value_loss": 0.5}


def seconds(action):
    """Return the processor time of a call."""
    begun = time.process_time()
    action()
    return time.process_time() - begun


def command(name, run):
    """Return the processor time of `python -m az_mpi NAME RUN`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "az_mpi", name, str(run)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} ended with status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
