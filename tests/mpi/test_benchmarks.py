"""Every benchmark runs with the smallest sizes. The tests assert only that it prints finite figures."""

import json
import math
import runpy
import subprocess
import sys

import pytest
from jobs import ROOT, command
from marks import slow

pytestmark = pytest.mark.mpi

BENCHMARKS = ROOT / "benchmarks"
# Options that make each of them small. A key begins with the name of its file. "mpirun": it is started on 2 ranks.
TINY = {
    "actions": "--actions 7",
    "analysis": "--network zoo:hex5 --simulations 20 --moves 4 --runs 1",
    "blocks": "--networks residual:1x8 bottleneck:1x8 --positions 40 --seconds 0.1 --runs 1",
    "blocks of a run": "--run tests/data/run_of_0823929 --networks global_pooling:1x8 --seconds 0.1 --runs 1",
    "copies": "--blocks 1 --channels 8 --batch_size 32 --replay_ratio 1 --pairs 1",
    "engines": "--game tictactoe --blocks 1 --channels 8 --batches 1 4 --runs 1",
    "exchange": "mpirun --runs 1",
    "faults": "--config_file configs/smoke.json --iterations 2",
    "file_system": "--ranks 1",
    "gpu_jobs": "--tiny --parts beside,killed",
    "gumbel_in_play": "--network zoo:hex5 --simulations 20 --games 2",
    "import_games": "--make 3 --engine random",
    "levels": "--network zoo:hex5 --simulations 4 --games 2 --levels 9 10",
    "large_run": "--segments 3 --games 20",
    "memory": "--engines torch --iterations 24 --settled 12",
    "one_gpu": "--tiny",
    "one_game": "--config_file configs/smoke.json --simulations 20 --seconds 0.3 --runs 1",
    "one_kind": "random --games 2",
    "perft": "--depth 3 --plies 2000 --runs 1",
    "precisions": "mpirun tests/data/run_of_0823929 --first fp32 --second auto --games 4 --simulations 4",
    "rules": "--games tictactoe othello(size=4) --blocks 1 --channels 8 --parallel_games 4 --seconds 0.2 --runs 1",
    "scaling": "--ranks 1,2 --games 4 --batch_s 0.01 --sample_s 0.001 --minutes 0.1 --repeats 1",
    "search": "--game tictactoe --trees 4 --simulations 4 --runs 1",
    "segments": "--num_games 20 --window 1000 --runs 1",
    "selfplay": "--config_file configs/smoke.json --set search.algorithm=gumbel --seconds 0.3 --runs 2",
    "selfplay of a shipped network": "--weights zoo:connect4 --all_cores --seconds 0.3 --runs 1",
    "selfplay without a network": "--engine none --seconds 0.3 --runs 1",
    "simulated_cluster": "tests/data/scaling_waiting --ranks 2,64",
    "startup": "--cold_runs 1 --runs 1",
    "test_sets": "mpirun zoo:connect4 tests/data/connect4_positions.txt --simulations 8 --policy",
    "train": "--game tictactoe --batch_size 32 --steps 2 --runs 1",
    "weights": "--networks 1x8 --steps 1 --runs 1",
}
IN_CI = {"exchange", "precisions", "search", "train"}
NAMES = {path.stem for path in BENCHMARKS.glob("*.py")} - {"common", "wide_game"}


def test_every_benchmark_has_small_options():
    assert NAMES <= {name.split()[0] for name in TINY} and IN_CI <= TINY.keys()


def test_every_benchmark_can_be_imported():
    lines = [f"import runpy, sys; sys.path.insert(0, {str(BENCHMARKS)!r})"]
    lines += [f"runpy.run_path({str(BENCHMARKS / f'{name}.py')!r})" for name in sorted(NAMES)]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        env=command(1, [])[1],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


# It prints 1,000 simulations a second, fewer where it has to wait for a core.
OTHER = """
import time
n = 0
while True:
    time.sleep(0.05)
    n += 50
    print(f"so far {n:,} simulations", flush=True)
"""


@pytest.mark.slow
def test_the_benchmark_alternates_between_another_program_and_az_mpi(tmp_path):
    (tmp_path / "other.py").write_text(OTHER)
    program = BENCHMARKS / "others" / "turns.py"
    options = [
        "--config_file",
        "configs/smoke.json",
        "--warm_up",
        "1",
        "--turn_s",
        "3",
        "--turns",
        "2",
        "--json",
        "--pattern",
        "so far (?P<simulations>[0-9,]+) simulations",
        f"{sys.executable} {tmp_path}/other.py",
    ]
    done = subprocess.run(
        [sys.executable, program, *options],
        cwd=ROOT,
        env=command(1, [])[1],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)
    other, ours = rows["other simulations/s"]["median"], rows["az_mpi simulations/s"]["median"]
    assert 200 < other <= 1050 and ours > 0
    assert rows["ratio of simulations/s"]["min"] <= ours / other * 1.5


@pytest.mark.parametrize(
    "ply, score, to_go",
    [
        (4, 18, 3),  # the player to move wins with the fourth stone and has two
        (0, 1, 41),  # the empty board: the first player wins with stone 21
        (1, -1, 40),  # after the best first move
        (40, 0, 2),
    ],
)
def test_moves_left_in_perfect_play_follow_from_ply_and_score(ply, score, to_go, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    assert runpy.run_path(str(BENCHMARKS / "test_sets.py"))["plies_to_go"](ply, score) == to_go


@pytest.mark.parametrize("name", [name if name in IN_CI else slow(name) for name in sorted(TINY)])
def test_benchmark_runs(mpirun, name):
    if name in ("blocks", "test_sets"):
        pytest.importorskip("bitbully", reason="the package bitbully is not installed")
    program, options = [BENCHMARKS / f"{name.split()[0]}.py", "--json"], TINY[name].split()
    if options[0] == "mpirun":
        said = mpirun(2, *program, *options[1:]).stdout
    else:
        done = subprocess.run(
            [sys.executable, *program, *options],
            cwd=ROOT,
            env=command(1, [])[1],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout
    figures = []
    json.loads(said.splitlines()[-1], object_hook=lambda row: figures.append(row.get("median", 0.0)))
    assert any(figures) and all(math.isfinite(figure) for figure in figures)
