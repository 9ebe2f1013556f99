"""How fast games of chess are imported, on one core, step by step; and games of an engine against itself to import.

    python benchmarks/import_games.py games.pgn --make 20000 --nodes 2000

`--make N` writes N games to a file that is not there. An engine that speaks UCI (by default Stockfish, Debian's package
stockfish) plays both sides after some random moves, with its values as comments; `--engine random` plays random moves.
Several of these programs with other seeds share the work: `--seed 1`, `--seed 2`, ... Games/s are of this process's
own time, so that other programs on the machine do not count. Each rank of `import` imports as many.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import make_parser, spread, tell

from az_mpi import games
from az_mpi.games.chess_notation import uci
from az_mpi.records import game_files
from az_mpi.records.game_records import GameRecord, Thought, texts
from az_mpi.records.pawns import value_of
from az_mpi.records.replaying import MoveWords, replay
from az_mpi.selfplay.record import game_ids
from az_mpi.storage import segment

GAME = games.make("chess")
UNIT_BYTES = 2**21  # as `import` has it


def main():
    parser = make_parser(__doc__)
    parser.add_argument(
        "file", nargs="?", type=Path, help="a file of games in PGN; by default one that is removed again"
    )
    parser.add_argument("--make", type=int, metavar="N", help="make the file of N games, if it is not there")
    parser.add_argument("--engine", default="stockfish", help="a program that speaks UCI, or random")
    parser.add_argument("--nodes", type=int, default=2000, help="of the engine for each move")
    parser.add_argument("--random_plies", type=int, default=8, help="at the beginning of each game")
    parser.add_argument("--seed", type=int, default=1, help="of the random moves")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "games.pgn"
        if arguments.make and not path.exists():
            make(arguments, path)
        rows = measured(path, Path(folder))
    tell("import", {name: spread([value]) for name, value in rows.items()}, arguments.json)


def make(arguments, path):
    """Write the games."""
    rng = np.random.default_rng(arguments.seed)
    engine = None if arguments.engine == "random" else Engine(arguments.engine, arguments.nodes)
    with open(path, "w") as file:
        for number in range(arguments.make):
            record = played(engine, arguments.random_plies, rng)
            file.writelines(texts(".pgn", GAME, [record], number + 1))


def played(engine, random_plies, rng):
    """Return a game by an engine after random moves, or of random moves alone."""
    states, moves, words, thoughts = GAME.initial(1), [], [], []
    while not GAME.terminal(states)[0][0]:
        word, value = engine.move(words) if engine else ("", 0.0)
        if engine is None or len(moves) < random_plies:
            action = int(rng.choice(np.flatnonzero(GAME.legal(states)[0])))
        else:
            action = GAME.text_to_action(states[0], word)
        moves.append(action)
        words.append(uci(GAME, states[0], action, chess960=False))
        thoughts.append(Thought(value))
        states = GAME.play(states, np.array([action]))
    value = float(GAME.terminal(states)[1][0])
    return GameRecord(moves, value if GAME.to_play(states)[0] == 0 else -value, ("engine", "engine"), "", thoughts)


class Engine:
    """A program that speaks UCI."""

    def __init__(self, name, nodes):
        self.process = subprocess.Popen([name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.nodes = nodes

    def move(self, words):
        """Return (the move that it plays after these, its value for the player to move)."""
        print(f"position startpos moves {' '.join(words)}\ngo nodes {self.nodes}", file=self.process.stdin, flush=True)
        value = 0.0
        for line in self.process.stdout:
            found = line.split()
            if "score" in found:
                kind, number = found[found.index("score") + 1 :][:2]
                value = value_of(int(number) / 100) if kind == "cp" else 1.0 if int(number) > 0 else -1.0
            if found[:1] == ["bestmove"]:
                return found[1], value
        raise SystemExit("the engine has ended")


def measured(path, folder):
    """Return seconds of this process by step, and games and positions per second."""
    file, words, spent, num = game_files.look(path), MoveWords(GAME), Counter(), Counter()
    read = game_files.FORMATS[file.format].read
    parts = [part for unit in game_files.units([file.num_bytes], UNIT_BYTES) for part in unit]
    for k, part in enumerate([parts[0], *parts]):  # the first time the kernels are compiled
        times = [time.process_time()]
        written = [read(text, GAME) for text, _ in game_files.games_in(file, part)]
        times.append(time.process_time())
        record, faults = replay(GAME, written, words)
        times.append(time.process_time())
        record.games["id"] = game_ids(0, 1, np.arange(len(record.games)))
        record.positions["game"] = np.repeat(record.games["id"], record.games["length"])
        segment.write(folder, 0, GAME, record, {}, folder / f"{k}.h5")
        times.append(time.process_time())
        if k:
            spent.update(dict(zip(("read_s", "play_s", "write_s"), np.diff(times).tolist())))
            num.update({"games": len(record.games), "positions": len(record.positions)})
            num["left_out"] += len(faults) - faults.count("")
    total = sum(spent.values())
    rates = {"games_per_s": num["games"] / total, "positions_per_s": num["positions"] / total}
    return {**num, **spent, **rates}


if __name__ == "__main__":
    main()
