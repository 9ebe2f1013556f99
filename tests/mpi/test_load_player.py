"""az_mpi.load_player: the network of a real run plays in a program that never loads MPI."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from jobs import ROOT

import az_mpi
from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.storage import checkpoint

pytestmark = pytest.mark.mpi

TICTACTOE = games.make("tictactoe")
TICTACTOE_MOVES = [column + row for column in "abc" for row in "123"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of two iterations, without mpirun."""
    folder = tmp_path_factory.mktemp("player") / "run"
    command = [
        sys.executable,
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        folder,
        "--set",
        "report.tensorboard=false",
    ]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, capture_output=True, text=True)
    return folder


def after(*moves):
    states = TICTACTOE.initial(1)
    for move in moves:
        states = TICTACTOE.play(states, np.array([TICTACTOE.text_to_action(states[0], move)]))
    return states[0]


def test_the_programs_in_the_documents_run_without_mpi(run):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL)
    said = []
    for program in programs:
        program = program.replace("runs/connect4_quick", str(run)).replace("400", "20")
        program += "\nimport sys\nprint({'mpi4py', 'horovod'} & set(sys.modules))\n"
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
        *lines, loaded = done.stdout.splitlines()
        assert loaded == "set()"
        said.append(lines)
    (*moves, _, _, _), own = said
    assert 5 <= len(moves) <= 9
    after(*(line.split()[0] for line in moves))
    assert [line.split()[0] in TICTACTOE_MOVES for line in own] == [True, True]


def test_a_loaded_player_finds_wins_and_repeats_its_searches(run):
    player = az_mpi.load_player(run, engine="torch", precision="fp32")
    wins = after("a1", "a2", "b1", "b2")  # X takes c1
    found = player.search(wins, simulations=100)
    assert (found.move, found.action, found.value) == ("c1", 8, 1.0)
    assert found.policy.dtype == np.float32 and found.policy.tolist() == [0] * 8 + [1]
    start = player.search(TICTACTOE.initial(1)[0], simulations=300)
    assert start.policy.sum() == pytest.approx(1) and abs(start.value) < 0.5 and start.policy[start.action] > 1 / 9
    again = player.search(TICTACTOE.initial(1)[0], simulations=300)
    assert (again.policy == start.policy).all() and again[1:] == start[1:]
    assert start.visits.sum() in (299, 300) and start.variation[0] == start.move and len(start.variation) > 1
    assert player.search(wins).policy.sum() == pytest.approx(1)  # as many simulations as the run's own searches
    with pytest.raises(ValueError, match="over"):
        player.search(after("a1", "a2", "b1", "b2", "c1"))


def test_the_named_network_plays(run):
    """These are the newest checkpoint, an older one and the best network, each with its own weights."""
    states = np.stack([TICTACTOE.initial(1)[0], after("b2"), after("a1", "b2")])
    said = {}
    for place in ("", "checkpoints/000001", "checkpoints/000002", "best/000002.safetensors"):
        logits, value = az_mpi.load_player(str(run / place), engine="torch", precision="fp32").evaluate(states)
        assert logits.shape == (3, 9) and value.shape == (3,)
        said[place] = logits.tolist()
    assert said[""] == said["checkpoints/000002"] == said["best/000002.safetensors"] != said["checkpoints/000001"]


def test_a_path_without_a_network_is_refused(run, tmp_path):
    with pytest.raises(Refusal, match="is not a run's folder, nor in one"):
        az_mpi.load_player(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "best" / "000002.safetensors").write_bytes(b"torn")
    with pytest.raises(Refusal, match="cannot be read"):
        az_mpi.load_player(copy / "best" / "000002.safetensors")
    newest = copy / "checkpoints" / "000002"
    (newest / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(Refusal, match="SHA-256"):
        az_mpi.load_player(newest)
    az_mpi.load_player(copy)  # with the one before it
    for path in checkpoint.find(copy / "checkpoints"):
        shutil.rmtree(path)
    with pytest.raises(Refusal, match="no whole checkpoint"):
        az_mpi.load_player(copy)
    assert not hasattr(az_mpi, "load_something")


def test_a_run_of_an_earlier_version_is_loaded():
    player = az_mpi.load_player(ROOT / "tests/data/run_of_0823929", engine="torch")
    assert 0 <= player.search(player.game.initial(1)[0], simulations=5).action < player.game.num_actions
