"""Self-play of az_mpi and of another program alternately, on the same cores.

    python benchmarks/others/turns.py --run runs/connect4_quick --cores 2 'other_program --threads 2'

The other program is any command of the shell that plays for ever and says now and then how far it is: by lines of JSON,

    {"simulations": 12345, "moves": 123, "evaluations": 6789}

with totals since it began (any of them may be missing; "source" tells several processes apart), or by lines that
--pattern matches, a regular expression with groups of these names. Both sides are given the same cores. Each runs for
--warm_up seconds after its first line, so that games are spread over all plies; then one runs while the other one is
stopped, alternately. A turn's rate is that between the first and the last line of each source in it. Compare equal
networks at equal stages of training: what is played decides how many simulations need an evaluation.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import make_parser, mpirun, spread, tell

NAMES = "simulations", "moves", "evaluations"
STALE_S = 0.3  # after a turn begins: lines from before it may still come
ROOT = Path(__file__).resolve().parents[2]


class Side:
    """A command of the shell on some cores, of which all processes but the shell can be stopped."""

    def __init__(self, command, cores, pattern):
        self.command, self.pattern, self.lines = command, pattern, []  # (seconds, source, {name: total})
        # With "exit" the shell stays, and what it started is its child.
        self.process = subprocess.Popen(
            f"{command}\nexit",
            shell=True,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if counts := self._counts(line):
                source = counts.pop("source", 0)
                self.lines.append((time.monotonic(), source, counts))

    def _counts(self, line):
        if self.pattern:
            found = re.search(self.pattern, line)
            return {name: float(text.replace(",", "")) for name, text in found.groupdict().items()} if found else {}
        with suppress(ValueError):
            told = json.loads(line)
            return {key: told[key] for key in (*NAMES, "source") if key in told} if isinstance(told, dict) else {}
        return {}

    def warm_up(self, seconds):
        """Let it run until it has said something, and for so long after that."""
        while not self.lines:
            self.check()
            time.sleep(0.1)
        self.turn(seconds)

    def check(self):
        """End this program if the command has ended."""
        if self.process.poll() is not None:
            sys.exit(f"{self.command}\n  ended with status {self.process.returncode}")

    def turn(self, seconds):
        """Let it run for so long; return {name: rate per second}, {} if it said too little."""
        self.send(signal.SIGCONT)
        begun = time.monotonic()
        time.sleep(seconds)
        self.send(signal.SIGSTOP)
        self.check()
        lines, rates = [line for line in self.lines if line[0] > begun + STALE_S], dict.fromkeys(NAMES, 0.0)
        for source in {line[1] for line in lines}:
            (first, _, before), *_, (last, _, after) = [line for line in lines if line[1] == source] * 2
            for name in NAMES:
                if name in after and last > first:
                    rates[name] += (after[name] - before[name]) / (last - first)
        return {name: rate for name, rate in rates.items() if rate}

    def send(self, number):
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(number)

    def end(self):
        self.send(signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def main():
    parser = make_parser(__doc__)
    parser.add_argument("other", help="the other program, a command of the shell")
    parser.add_argument("--pattern", help="of the other program's lines, with groups such as (?P<simulations>[0-9,]+)")
    parser.add_argument("--run", type=Path, help="as for benchmarks/selfplay.py")
    parser.add_argument("--config_file", type=Path, default=ROOT / "benchmarks" / "connect4.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for run_dist.py")
    parser.add_argument("--engine", default="auto", help="as for benchmarks/selfplay.py")
    parser.add_argument("--cores", type=int, default=1, help="for each side; az_mpi has a rank on each")
    parser.add_argument("--warm_up", type=float, default=60.0, metavar="S")
    parser.add_argument("--turn_s", type=float, default=10.0, metavar="S")
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    cores = set(sorted(os.sched_getaffinity(0))[: arguments.cores])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no stopped processes
    with ExitStack() as stack:
        sides = {"az_mpi": Side(ours(arguments), cores, None), "other": Side(arguments.other, cores, arguments.pattern)}
        for side in sides.values():
            stack.callback(side.end)
            side.warm_up(arguments.warm_up)
        turns = [{name: side.turn(arguments.turn_s) for name, side in sides.items()} for _ in range(arguments.turns)]
    rows = figures(turns)
    if not rows:
        sys.exit("neither side said anything that the other one said too: let it print totals, or give longer turns")
    tell(f"self-play alternately on {arguments.cores} core(s)", rows, arguments.json)


def ours(arguments):
    """Return the command of our side."""
    words = [
        *mpirun(arguments.cores),
        sys.executable,
        ROOT / "benchmarks" / "selfplay.py",
        "--counts",
        "--seconds",
        arguments.warm_up / 2,
        "--config_file",
        arguments.config_file,
        "--engine",
        arguments.engine,
    ]
    words += ["--run", arguments.run] if arguments.run else []
    for setting in arguments.set:
        words += ["--set", setting]
    return " ".join(f"'{word}'" for word in words)


def figures(turns):
    """Return the rows of figures: what both sides said in all turns."""
    rows = {}
    for name in NAMES:
        if all(name in turn[side] for turn in turns for side in turn):
            one, other = ([turn[side][name] for turn in turns] for side in ("az_mpi", "other"))
            rows |= {
                f"az_mpi {name}/s": spread(one),
                f"other {name}/s": spread(other),
                f"ratio of {name}/s": spread([a / b for a, b in zip(one, other)]),
            }
    return rows


if __name__ == "__main__":
    main()
