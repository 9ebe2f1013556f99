"""Segments and the replay window against raw h5py and raw numpy on the same arrays.

    python benchmarks/segments.py                     # in a temporary folder; --folder: on another file system

- write: `segment.write` (compressed, with checksums, synchronised) against h5py writing the same columns plain.
  `ratio` is the first's rate over the second's, `synced_ratio` that over h5py with the fsync which a segment has.
- read: `segment.read` against h5py reading the plain file's columns: `read_ratio`.
- sample: `Replay.sample`, which decodes planes and turns them through a symmetry, against numpy's `rows[indices]`:
  `sample_ratio`.
- links: the seconds of `segment.link_all`, which follows each new segment, where there are 1,000 and 10,000.

Bytes are those of the arrays; `segment_bytes` and `plain_bytes` are the files'. One core.

Games are random Connect Four; sides take turns in each of the runs, so that a machine whose speed drifts slows both.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import h5py
import numpy as np
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config import schema
from az_mpi.network.heads.value import Value
from az_mpi.selfplay.record import GAME, POLICY, Record, game_ids, position_dtype
from az_mpi.storage import segment
from az_mpi.train import replay
from az_mpi.train.replay import Replay, sample_dtype

LINKS = (1_000, 10_000)
PROVENANCE = {"weights": "0" * 64, "host": "benchmark", "ranks": 1}


def main():
    parser = make_parser(__doc__, runs=9)
    parser.add_argument("--num_games", type=int, default=1000, help="of a segment")
    parser.add_argument("--window", type=int, default=500_000, help="positions to sample from")
    parser.add_argument("--batch_size", type=int, default=1024, help="positions of a sample")
    parser.add_argument("--folder", type=Path, help="where the segments are written")
    arguments = parser.parse_args()
    take_one_core()
    game = games.make("connect4")
    record = random_games(game, arguments.num_games)
    window, rows = filled(game, record, arguments.window)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = Path(folder)
        for n in LINKS:
            make_names(folder / str(n), n)
        runs = range(arguments.runs + 1)  # the first compiles kernels
        figures = [measure(folder, game, record, window, rows, arguments.batch_size) for _ in runs]
    tell(
        f"segments connect4, {arguments.num_games:,} games, window {arguments.window:,}, h5py {h5py.__version__}",
        {name: spread([f[name] for f in figures[1:]]) for name in figures[0]},
        arguments.json,
    )


def filled(game, record, num_positions):
    """Return a window of about that many positions, copies of those of a record, and these as plain rows with dense
    policies."""
    heads, settings, made = {"value": Value(game, channels=8)}, schema.Train(), 0
    window = Replay(game, heads)
    while made < num_positions:
        window.add(replay.to_samples(record, game, heads, settings, made))
        made += len(record.positions)
    plain = np.dtype([*sample_dtype(game, heads).descr, ("policy", "<f4", (game.num_actions,))])
    rows = np.zeros(len(record.positions), plain)
    rows["policy"] = record.dense_policy(game.num_actions)
    return window, np.resize(rows, made)


def random_games(game, n):
    """Return a record of n games of random moves, with policies over the legal moves."""
    rng = np.random.default_rng(0)
    states, live, rows = game.initial(n), np.arange(n), []
    while len(live):
        legal = game.legal(states)
        policy = rng.random(legal.shape, np.float32) * legal
        action = policy.argmax(axis=1)
        rows.append((live, states, action, policy))
        states = game.play(states, action)
        over = game.terminal(states)[0]
        states, live = states[~over], live[~over]
    slot, states, action, policy = (np.concatenate(parts) for parts in zip(*rows))
    order = np.argsort(slot, kind="stable")  # game by game, ply by ply
    slot, states, action, policy = slot[order], states[order], action[order], policy[order]
    lengths = np.bincount(slot, minlength=n)
    ply = np.concatenate([np.arange(length) for length in lengths])
    played = np.zeros(n, GAME)
    played["id"], played["length"], played["outcome"] = game_ids(0, 1, np.arange(n)), lengths, rng.integers(-1, 2, n)
    positions = np.zeros(len(slot), position_dtype(game))
    positions["game"], positions["ply"], positions["state"] = played["id"][slot], ply, states
    positions["action"], positions["weight"] = action, 1
    positions["value"] = played["outcome"][slot] * np.where(ply % 2, -1, 1)
    positions["root_value"] = rng.uniform(-1, 1, len(slot))
    entries = policy > 0
    positions["policy_count"] = entries.sum(axis=1)
    targets = np.empty(entries.sum(), POLICY)
    targets["action"], targets["probability"] = entries.nonzero()[1], (policy / policy.sum(axis=1)[:, None])[entries]
    return Record(played, positions, targets)


def make_names(folder, n):
    """Make a folder of n empty files that have segments' names."""
    folder.mkdir()
    for k in range(n):
        (folder / f"{k:06d}-000.h5").touch()


def measure(folder, game, record, window, rows, batch):
    """Return the figures of one turn of everything."""
    positions, rng, plain = len(record.positions), np.random.default_rng(0), folder / "plain.h5"
    num_bytes = sum(column.nbytes for column in columns(record).values())
    path, write_s = timed(lambda: segment.write(folder, 0, game, record, PROVENANCE).path)
    _, plain_write_s = timed(lambda: write_plain(plain, record))
    _, synced_write_s = timed(lambda: write_plain(plain, record, sync=True))
    _, read_s = timed(lambda: segment.read(path, game))
    _, plain_read_s = timed(lambda: read_plain(plain))
    draws = max(1, 200_000 // batch)
    _, sample_s = timed(lambda: [window.sample(rng, batch) for _ in range(draws)])
    _, raw_sample_s = timed(lambda: [rows[rng.integers(len(rows), size=batch)] for _ in range(draws)])
    figures = {
        "write_positions_per_s": positions / write_s,
        "write_bytes_per_s": num_bytes / write_s,
        "plain_write_positions_per_s": positions / plain_write_s,
        "plain_write_bytes_per_s": num_bytes / plain_write_s,
        "ratio": plain_write_s / write_s,
        "synced_ratio": synced_write_s / write_s,
        "segment_bytes": path.stat().st_size,
        "plain_bytes": plain.stat().st_size,
        "read_positions_per_s": positions / read_s,
        "read_bytes_per_s": num_bytes / read_s,
        "read_ratio": plain_read_s / read_s,
        "sample_positions_per_s": draws * batch / sample_s,
        "raw_sample_positions_per_s": draws * batch / raw_sample_s,
        "sample_ratio": raw_sample_s / sample_s,
    }
    path.unlink()
    for n in LINKS:
        _, figures[f"link_{n}_s"] = timed(lambda n=n: segment.link_all(folder / str(n), folder / "games.h5"))
    return figures


def columns(record):
    """Return {name: array} of what a segment holds, each array by itself in memory."""
    parts = {"games": record.games, "positions": record.positions, "policy": record.policy}
    return {f"{group}/{name}": rows[name] for group, rows in parts.items() for name in rows.dtype.names}


def write_plain(path, record, sync=False):
    """Write the columns as plain h5py does it: one piece each, no compression, no checksums; return the path."""
    with h5py.File(path, "w") as file:
        for name, column in columns(record).items():
            file[name] = column
    if sync:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return path


def read_plain(path):
    """Read every column of a plain file."""
    with h5py.File(path, "r") as file:
        return [column[:] for group in file.values() for column in group.values()]


def timed(call):
    """Return (what a call returns, the seconds it took)."""
    begun = time.perf_counter()
    result = call()
    return result, time.perf_counter() - begun


if __name__ == "__main__":
    main()
