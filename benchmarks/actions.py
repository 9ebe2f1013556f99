"""The memory of one rank by the number of the game's actions, at the default configuration.

    python benchmarks/actions.py

For games made up for the purpose (benchmarks/wide_game.py), each in a process of its own:

- trees_reserved_mib: the trees' arrays, of which memory is taken only where they are written to.
- trees_mib, player_mib: the pages of the trees' arrays in memory after `parallel_games` games were played to their ends
  at once, and the rest of the growth of the resident memory: the moves of games that are not over.
- window_mib: growth while copies of these games become samples in a window, until it has been full for long.
- exchange_mib: what it takes beyond that to make and take in the samples of these games at once.
- cache_mib: the arrays of the evaluation cache, all of which a long iteration fills; cache_positions: what they hold.
"""

import argparse
import ctypes
import json
import mmap
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import make_parser, spread, take_one_core, tell
from wide_game import SIZES

from az_mpi.config import load as configuration
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.network.heads.value import Value
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import Record, game_ids
from az_mpi.train import replay

MIB = 2**20


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--actions", nargs="+", type=int, default=list(SIZES), choices=SIZES)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(SIZES[arguments.only])))
        return
    rows = {}
    for num in arguments.actions:
        command = [sys.executable, __file__, "--only", str(num)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows |= {f"{num}.{name}": spread([value]) for name, value in json.loads(done.stdout).items()}
    tell("memory of a rank by actions, defaults", rows, arguments.json)


class Blank(Engine):
    """Answers 0 at once."""

    def __init__(self, game):
        self.num_actions = game.num_actions

    def evaluate(self, planes):
        n = len(planes)
        return {"policy": np.zeros((n, self.num_actions), np.float32), "value": np.zeros(n, np.float32)}


def measure(game):
    """Return the figures of one game. In a new process: freed memory would hide what is taken later."""
    take_one_core()
    config = configuration.validate({"game": "connect4"}, "the defaults")
    warm_up(game)
    before, player = memory("VmRSS"), Player(config, game, UniformEvaluator(game), rank=0)
    record = played(player, len(player.live))
    trees = sum(map(touched, player.search.trees))
    figures = {"trees_reserved_mib": sum(part.nbytes for part in player.search.trees) / MIB, "trees_mib": trees}
    figures["player_mib"] = memory("VmRSS") - before - size(record) - trees
    del player
    heads = {"value": Value(game, channels=8)}
    window, before, peaks, made = replay.Replay(game, heads), memory("VmRSS"), [], 0
    while made < 2 * config.replay.window_max:
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM, the peak, to what is there now
        window.add(replay.to_samples(record, game, heads, config.train, made))
        made += len(record.positions)
        window.forget(made - config.replay.window_max)
        peaks.append(memory("VmHWM") - memory("VmRSS"))
    figures |= {"window_mib": memory("VmRSS") - before, "exchange_mib": max(peaks)}
    table = CachedEvaluator(game, Blank(game), config.network.cache_bytes)._table
    held = min(table.keys.size, len(table.logit) // game.num_legal)
    return figures | {"cache_mib": sum(part.nbytes for part in table) / MIB, "cache_positions": held}


def warm_up(game):
    """Compile what is measured."""
    config = configuration.validate(
        {"game": "connect4", "search": {"simulations": 4}, "selfplay": {"parallel_games": 2, "max_plies": 3}},
        "the defaults",
    )
    window, record = replay.Replay(game, {}), played(Player(config, game, UniformEvaluator(game), rank=0), 2)
    window.add(replay.to_samples(record, game, {}, config.train, 0))


def played(player, num_games):
    """Return the record of as many games as are played at once."""
    player.start(player.free(), game_ids(0, 0, np.arange(num_games)), 0)
    parts = []
    while player.live.any():
        player.step()
    parts.append(player.take())
    return Record.join(player.game, parts)


def size(record):
    return sum(rows.nbytes for rows in (record.games, record.positions, record.policy)) / MIB


def memory(name):
    """Return a line of /proc/self/status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def touched(array):
    """Return how much of an array is in memory, in MiB: of a page that was never written to there is nothing."""
    first = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    length = array.ctypes.data + array.nbytes - first
    pages = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
    place = ctypes.c_void_p(first), ctypes.c_size_t(length), ctypes.c_void_p(pages.ctypes.data)
    if ctypes.CDLL(None).mincore(*place):
        raise OSError("mincore failed")
    return float((pages & 1).sum()) * mmap.PAGESIZE / MIB


if __name__ == "__main__":
    main()
