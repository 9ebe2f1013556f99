"""Users' files and modules in whole jobs: ranks that lack one or have another one, and resumed runs."""

import inspect
import json
import os
import shutil
import time

import psutil
import pytest
from helpers import Corridor
from jobs import ROOT, ids

pytestmark = pytest.mark.mpi

OWN = """
from az_mpi.games import mnk

class Rules(mnk.Rules):
    def __init__(self):
        super().__init__()
        self.name = "own"
"""
QUICK = [
    "--set",
    "evaluate.every=0",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "iterations=1",
    "--num_games",
    "8",
]


@pytest.fixture
def run_dist(mpirun, tmp_path):
    """Return run(*options, status=0, game=...): train configs/smoke.json on two ranks."""

    def run(*options, status=0, game=f"{tmp_path}/own.py:Rules"):
        return mpirun(
            2,
            "run_dist.py",
            "--config_file",
            "configs/smoke.json",
            "--logdir",
            tmp_path / "run",
            *QUICK,
            "--set",
            f"game={game}",
            *options,
            status=status,
        )

    return run


def test_ranks_whose_sources_differ_are_named(program, tmp_path):
    program(3, "agreement_checks", tmp_path)


@pytest.mark.parametrize("there", [True, False], ids=["another", "missing"])
def test_a_module_that_a_rank_lacks_is_refused_before_play(mpirun, tmp_path, there):
    """Each rank has its own folder of modules, as hosts without a shared file system have."""
    for rank in (0, 1):
        (tmp_path / str(rank)).mkdir()
        if there or rank == 0:
            (tmp_path / str(rank) / "own_rules.py").write_text(OWN + f"# {rank}\n" * rank)
    (tmp_path / "start.py").write_text(
        "import os, runpy, sys\n"
        f"sys.path.insert(0, os.path.join({str(tmp_path)!r}, os.environ['OMPI_COMM_WORLD_RANK']))\n"
        "runpy.run_path('run_dist.py', run_name='__main__')\n"
    )
    options = ["--config_file", "configs/smoke.json", "--logdir", tmp_path / "run", *QUICK]
    done = mpirun(2, tmp_path / "start.py", *options, "--set", "game=own_rules:Rules", status=2)
    said = "own_rules is not the file that root has" if there else "No module named 'own_rules'"
    assert done.stderr.count(said) == 1 and done.stderr.count("on rank 1 of 2") == 1
    assert "Traceback" not in done.stderr and not (tmp_path / "run").exists()


def test_a_run_with_a_users_game_is_resumed_and_read_without_its_source(run_dist, mpirun, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(OWN)
    assert "game own, seed" in run_dist().stdout
    run = tmp_path / "run"
    assert json.loads((run / "status.json").read_text())["game"] == "own.py:Rules"
    own.write_text(OWN + "# changed")
    refused = run_dist("--set", "iterations=2", status=2)
    assert refused.stderr.count("holds a run that was made with another source") == 1
    assert len(os.listdir(run / "starts")) == 1
    run_dist("--set", "iterations=2", "--allow_other_source")
    assert len(list(run.glob("sources/*/own.py"))) == 2 and (run / "checkpoints" / "000002").exists()
    own.unlink()
    for words in (
        ["run_dist.py", "--mode", "selfplay", "--logdir", run, "--num_games", "4"],
        ["-m", "az_mpi", "verify", run],
        ["-m", "az_mpi", "report", run],
    ):
        mpirun(1, *words)
    mpirun(2, "run_dist.py", "--logdir", run, "--set", "iterations=3")  # by the run's own configuration and copies
    assert (run / "checkpoints" / "000003").exists() and len(list(run.glob("sources/*/own.py"))) == 2
    own.write_text(OWN + "# changed")
    assert "complete" in run_dist("--set", "iterations=3").stdout  # the file is again the one that made the run
    page = (run / "report.html").read_text()
    assert "own.py:Rules" in page and "moves," in page and str(tmp_path / "own.py") not in page


def test_a_compiled_game_trains_from_a_file_a_module_and_the_runs_own_copy(mpirun, tmp_path, monkeypatch):
    """Numba's cache of a file names the module that the file was loaded as."""
    path = tmp_path / "own_mnk.py"
    shutil.copy(ROOT / "az_mpi/games/mnk.py", path)
    # jobs.command sets PYTHONPATH.
    (tmp_path / "start.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "runpy.run_path('run_dist.py', run_name='__main__')\n"
    )
    train = [tmp_path / "start.py", "--config_file", "configs/smoke.json", *QUICK]
    for number, game in enumerate([f"{path}:Rules", "own_mnk:Rules", f"{path}:Rules"]):
        mpirun(1, *train, "--logdir", tmp_path / str(number), "--set", f"game={game}")
    path.unlink()
    done = mpirun(1, "run_dist.py", "--mode", "selfplay", "--logdir", tmp_path / "0")
    assert "games" in done.stdout


def test_a_callback_with_wrong_arguments_is_refused_before_play(run_dist, tmp_path):
    (tmp_path / "own.py").write_text(
        "from az_mpi.telemetry.callbacks import Callback\nclass Seen(Callback):\n"
        "    def __init__(self, every):\n        pass\n"
    )
    for arguments, said in (("", "Seen needs every"), ("(evry=3)", "did you mean every?")):
        done = run_dist("--set", f'callbacks=["{tmp_path}/own.py:Seen{arguments}"]', status=2, game="tictactoe")
        assert done.stderr.count(said) == 1 and not (tmp_path / "run").exists()


def test_callbacks_and_sinks_are_called_on_after_root_is_lost(start_mpirun, tmp_path):
    """From then on the new root's callback gets the iterations, and each rank's callback the games that it finishes."""
    run, callback, sink = tmp_path / "run", "own_callback.py:Openings", "own_sink.py:Csv"
    process = start_mpirun(
        3,
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        run,
        *QUICK,
        "--num_games",
        3000,
        "--set",
        "exchange.every_s=0.5",
        "--max_steps",
        20,
        "--set",
        f'callbacks=["{ROOT}/examples/{callback}"]',
        "--set",
        f'report.sinks=["{ROOT}/examples/{sink}"]',
        options=["--with-ft", "ulfm"],
        fork=True,
    )
    while not list(run.glob("games/*.h5")) or not (run / "openings-0.jsonl").exists():  # root's callback has had a game
        assert process.poll() is None
        time.sleep(0.05)
    [root] = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if child.environ().get("OMPI_COMM_WORLD_RANK") == "0" and "run_dist.py" in child.cmdline()
    ]
    root.kill()
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0 and "continuing after the loss of 1 of 3 ranks" in output, output
    lines = {
        rank: [json.loads(line) for line in (run / f"openings-{rank}.jsonl").read_text().splitlines()]
        for rank in range(3)
    }
    assert set(ids(run)) <= {line["game"] for rank in range(3) for line in lines[rank] if "game" in line}
    told = {rank: [line for line in lines[rank] if "num_games" in line] for rank in range(3)}
    assert [len(told[rank]) for rank in range(3)] == [0, 1, 0]
    assert len((run / "iterations.csv").read_text().splitlines()) == 2


def test_a_game_without_an_end_is_played_to_max_plies_and_reported_once(run_dist, tmp_path):
    head = "import numpy as np\n\nfrom az_mpi.games.base import Game\n\n\n"
    (tmp_path / "own.py").write_text(head + inspect.getsource(Corridor))
    done = run_dist("--set", "iterations=2", "--set", "search.simulations=32", game=f"{tmp_path}/own.py:Corridor")
    said = done.stdout + done.stderr
    assert "complete: iteration 2 of 2" in said
    assert said.count("the rules of corridor do not end a game at max_plies = 6") == 1


WRONG_LATER = """
import numpy as np

from az_mpi.games import mnk

class Rules(mnk.Rules):
    def {method}(self, states{more}):
        result = super().{method}(states{more})
        late = np.bitwise_count(states).sum(axis=1).max() > 3
        return {wrong} if late else result
"""


@pytest.mark.parametrize(
    "method, more, wrong, said",
    [
        ("play", ", actions", "np.hstack([result, result])", "play returned uint16 ("),
        ("legal", "", "result[9]", "IndexError"),
    ],
)
def test_rules_that_break_in_play_end_the_job_with_status_2(run_dist, tmp_path, method, more, wrong, said):
    """One rank meets the mistake while the other plays. There is no traceback and nothing to resume."""
    (tmp_path / "own.py").write_text(WRONG_LATER.format(method=method, more=more, wrong=wrong))
    done = run_dist(status=2)
    assert "Traceback" not in done.stderr and said in done.stderr
    assert f"the game tictactoe: {method} " in done.stderr and "in this state, player" in done.stderr


ONE_RANK_FAILS = """
import sys
from az_mpi.core.arguments import Parser
from az_mpi.core.problems import OwnCodeError
from az_mpi.mpi.frame import run_command

def do(world, given):
    if world.rank == 1:
        raise OwnCodeError("the rules are broken here")
    world.barrier()

sys.exit(run_command(Parser("probe", "about"), [], do))
"""


def test_a_command_ends_on_all_ranks_where_a_users_code_fails_on_one(mpirun):
    """The other ranks of a command such as a match wait in a collective that the failing rank never reaches."""
    done = mpirun(2, "-c", ONE_RANK_FAILS, status=2, timeout=60)
    assert "rank 1 of 2" in done.stderr and "the rules are broken here" in done.stderr
    assert "Traceback" not in done.stderr
