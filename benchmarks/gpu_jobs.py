"""Whole jobs on the GPUs of one machine: at most four minutes, one JSON object with a verdict.

    python benchmarks/gpu_jobs.py            # all GPUs that CUDA_VISIBLE_DEVICES names

`tests`: the tests that need a GPU. `fused`, `plain`: self-play of one rank with and without fused convolutions.
`beside`: one rank trains on a GPU while two ranks on processors play. `ddp` and `horovod`: a rank a GPU, up to eight;
horovod only where it was built with NCCL. `killed`: two ranks, of which one is killed after the first iteration.
`scaling`: ddp with 1, 2, 4 and 8 ranks, games and batch in proportion. Parts that need more GPUs, or something that is
not built, are left out with the reason. A part that fails or takes too long is told with its reason.

Without a GPU, or with --tiny, all sizes are tiny: that shows that the jobs run, and judges nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import psutil
import torch
from common import machine
from one_gpu import LIMIT_S, part

ROOT = Path(__file__).resolve().parents[1]
MPIRUN = Path(sys.executable).parent / "mpirun"
GOALS: dict[str, Any] = {
    "scaling": 0.9,
    "killed": "continuing after the loss of 1 of 2 ranks",
}  # efficiency at the largest size; words
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Self-play whose engine does not fuse: what follows are the options of selfplay.py.
PLAIN = f"""
import runpy, sys
sys.path[:0] = [{str(ROOT / "benchmarks")!r}, {str(ROOT)!r}]
from az_mpi.network.engines import cuda_engine
cuda_engine.fused = lambda network, example: network
runpy.run_path({str(ROOT / "benchmarks/selfplay.py")!r}, run_name="__main__")
"""


class NotHere(Exception):
    """A part needs what this machine has not."""


class Jobs:
    """The parts, by name. num_gpus: of this machine."""

    def __init__(self, num_gpus, is_tiny, end):
        self.num_gpus, self.is_tiny, self.end = num_gpus, is_tiny, end

    def tests(self):
        self.need(1)
        words = [sys.executable, "-m", "pytest", "tests/mpi/test_gpu.py", "-q"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=self.left_s(0.3))
        return {"says": done.stdout.strip().splitlines()[-1:], "status": done.returncode}

    def fused(self, plain=False):
        file = ROOT / ("configs/smoke.json" if self.is_tiny else "benchmarks/connect4.json")
        program = ["-c", PLAIN] if plain else [ROOT / "benchmarks/selfplay.py"]
        words = [sys.executable, *program, "--json", "--all_cores", "--config_file", file]
        words += ["--seconds", 0.5 if self.is_tiny else 5, "--runs", 1]
        return part(words, self.left_s(0.3))

    def plain(self):
        self.need(1)
        return self.fused(plain=True)

    def beside(self):
        program = self.program(3, ["train.ranks=1"])
        hidden = ["-np", "2", "env", "CUDA_VISIBLE_DEVICES=", *program]
        return self.job(["-np", "1", *program, ":", *hidden], 3)

    def ddp(self):
        return self.job(["-np", str(self.ranks()), *self.program(self.ranks(), ["train.backend=ddp"])], self.ranks())

    def horovod(self):
        import horovod.torch as hvd

        if not self.is_tiny and not hvd.nccl_built():
            raise NotHere("Horovod was built without NCCL: make setup HOROVOD_GPU_OPERATIONS=NCCL")
        program = self.program(self.ranks(), ["train.backend=horovod"])
        return self.job(["-np", str(self.ranks()), *program], self.ranks())

    def killed(self):
        self.need(2)
        return self.job(["--with-ft", "ulfm", "-np", "2", *self.program(2, ["train.backend=ddp"])], 2, kills=True)

    def scaling(self):
        sizes = [n for n in (1, 2, 4, 8) if n <= self.ranks()]
        rows = {}
        for n in sizes:
            rows[n] = self.job(["-np", str(n), *self.program(n, ["train.backend=ddp"])], n)
        rates = {n: row["games_per_s"] for n, row in rows.items()}
        efficiency = {n: rate / (n * rates[sizes[0]] / sizes[0]) for n, rate in rates.items()}
        return {"rows": rows, "games_per_s": rates, "efficiency": efficiency}

    def ranks(self):
        self.need(2)
        return 2 if self.is_tiny else min(self.num_gpus, 8)

    def need(self, num_gpus):
        if num_gpus > self.num_gpus and not self.is_tiny:
            raise NotHere(f"needs {num_gpus} GPUs, here are {self.num_gpus}")
        if self.is_tiny and num_gpus == 1:
            raise NotHere("needs a GPU")

    def left_s(self, share):
        return max(share * (self.end - time.monotonic()), 1.0)

    def program(self, num_ranks, settings):
        """Return the words of a training whose games and batch are in proportion to its ranks."""
        file, games, batch = ("smoke", 8, 16) if self.is_tiny else ("connect4", 2048, 512)
        settings = [
            *settings,
            f"selfplay.num_games={games * num_ranks}",
            f"train.batch_size={batch * num_ranks}",
            "iterations=3",
            "evaluate.every=0",
            "report.tensorboard=false",
            "selfplay.parallel_games=0",
        ]
        self.folder = Path(tempfile.mkdtemp(prefix="gpu_jobs-")) / "run"
        words = [sys.executable, "run_dist.py", "--config_file", f"configs/{file}.json", "--logdir", str(self.folder)]
        return [*words, *(word for setting in settings for word in ("--set", setting))]

    def job(self, words, num_ranks, kills=False):
        """Run mpirun and return its figures, of the iterations after the first one. kills: a rank, after that one."""
        command = [str(MPIRUN), "-H", f"localhost:{num_ranks}", "--bind-to", "none", *words]
        begun, limit_s = time.monotonic(), self.left_s(0.4)
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | AS_ROOT, stdout=output, stderr=subprocess.STDOUT
            )
            victim = None
            while process.poll() is None and time.monotonic() - begun < limit_s:
                time.sleep(0.1)
                if kills and victim is None and self.iterations():
                    victim = self.last_rank(process.pid)
                    victim.kill()
            if process.poll() is None:
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    one.kill()
                return {"command": " ".join(command), "failed": f"it took more than {limit_s:.0f} s"}
            output.seek(0)
            said = output.read()
        rows = self.iterations()[1:]
        found: dict[str, Any] = {
            "command": " ".join(command),
            "seconds": time.monotonic() - begun,
            "status": process.returncode,
        }
        if process.returncode or not rows:
            return found | {"failed": f"exit status {process.returncode}", "says": said[-1000:]}
        found["summed_by"] = said.partition("az_mpi on ")[2].partition(";")[0]
        found["games_per_s"] = sum(row["num_games"] for row in rows) / sum(map(seconds, rows))
        found["train_share"] = sum(row["train_s"] for row in rows) / sum(map(seconds, rows))
        return found | ({"continued": GOALS["killed"] in said} if kills else {})

    def iterations(self):
        """Return the records of the job's iterations."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [row for row in map(json.loads, lines) if row["kind"] == "iteration"]

    def last_rank(self, mpirun):
        return [one for one in psutil.Process(mpirun).children(recursive=True) if "run_dist.py" in one.cmdline()][-1]


def seconds(row):
    """Return the seconds of an iteration."""
    phases = ("play_s", "exchange_s", "train_s", "broadcast_s", "save_s")
    return sum(row.get(phase, 0.0) for phase in phases)


def attempted(make):
    """Return the figures of a part, or why there are none."""
    try:
        return make()
    except NotHere as error:
        return {"left out": str(error)}
    except Exception as error:  # the other parts are wanted all the same
        return {"failed": f"{type(error).__name__}: {error}"}


def judged(parts):
    """Return lines: what failed or was left out, and whether each goal is reached."""
    words = ("failed", "left out")
    lines = [f"{name}: {word}: {found[word]}" for name, found in parts.items() for word in words if word in found]
    if "status" in parts["tests"]:
        lines.append(f"tests: {'passed' if parts['tests']['status'] == 0 else 'FAILED'}")
    if "continued" in parts["killed"]:
        lines.append(f"killed: {'the other rank continued' if parts['killed']['continued'] else 'NOT survived'}")
    if "efficiency" in parts["scaling"]:
        num_ranks, found = list(parts["scaling"]["efficiency"].items())[-1]
        word = "reached" if found >= GOALS["scaling"] else "not reached"
        lines.append(f"scaling: efficiency {found:.2f} on {num_ranks} GPUs, goal {GOALS['scaling']}: {word}")
    rates = [parts[name].get("simulations_per_s", {}).get("median") for name in ("fused", "plain")]
    if all(rates):
        ratio = rates[0] / rates[1]
        lines.append("simulations/s: fused {:,.0f}, plain {:,.0f} (A/B {:.2f})".format(*rates, ratio))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, which judge nothing")
    parser.add_argument(
        "--parts", default="tests,fused,plain,beside,ddp,horovod,killed,scaling", help="to run only some"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, which it does anyway")
    given = parser.parse_args()
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    is_tiny, end = given.tiny or not num_gpus, time.monotonic() + LIMIT_S
    jobs = Jobs(num_gpus, is_tiny, end)
    names = ("tests", "fused", "plain", "beside", "ddp", "horovod", "killed", "scaling")
    parts = {name: attempted(getattr(jobs, name)) if name in given.parts.split(",") else {} for name in names}
    gpus = [torch.cuda.get_device_name(k) for k in range(num_gpus)]
    found = {"benchmark": "jobs on GPUs", "gpus": gpus, "is_tiny": is_tiny, "machine": machine()} | parts
    verdict = (["tiny sizes or no GPU: nothing is judged"] if is_tiny else []) + judged(parts)
    print(json.dumps(found | {"seconds": LIMIT_S - end + time.monotonic(), "verdict": verdict}))
    sys.exit(any("failed" in part_ for part_ in parts.values()))


if __name__ == "__main__":
    main()
