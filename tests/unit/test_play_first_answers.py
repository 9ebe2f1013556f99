"""The first commands of `gtp` and `uci` are answered before anything large is loaded, and failures are reported."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import make_run

from az_mpi import games
from az_mpi.__main__ import main as program
from az_mpi.core.registry import GAMES
from az_mpi.play.uci import variant_named
from az_mpi.player import network_paths

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
LARGE = ("numpy", "numba", "torch", "openvino", "safetensors", "h5py", "pydantic")
# What the interpreter loads before the program. {what}: what an import of one of LARGE does.
SITE = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            {what}
sys.meta_path.insert(0, Wall())
"""
FAILS, BLOCKS = "raise ImportError(f'no {name} here')", "import time; time.sleep(1000)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("first") / "run", "mnk(m=4,n=4,k=3)")


def start(folder, command, run, asked, what=""):
    """Run a command to its end. what: what its imports of LARGE do."""
    if what:
        (folder / "sitecustomize.py").write_text(SITE.format(names=LARGE, what=what))
    return subprocess.run(
        [sys.executable, "-m", "az_mpi", command, str(run)],
        cwd=ROOT,
        input=asked,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"},
    )


@pytest.mark.parametrize("what", [FAILS, BLOCKS])
def test_uci_answers_uci_where_nothing_large_can_be_loaded(tmp_path, run, what):
    done = start(tmp_path, "uci", run, "uci\nsetoption name Simulations value 9\nquit\n", what)
    name, *options, last = done.stdout.splitlines()
    assert (done.returncode, last) == (0, "uciok") and name.startswith("id name az_mpi")
    assert "option name UCI_Variant type combo default mnk var mnk" in options


def test_gtp_answers_commands_that_need_no_game_where_every_large_import_blocks(tmp_path, run):
    said = "name\nprotocol_version\n1 version\nknown_command genmove\nknown_command no\n7 list_commands\nwhat\nquit\n"
    done = start(tmp_path, "gtp", run, said, BLOCKS)
    first, second, version, known, unknown, commands, wrong, last, _ = done.stdout.split("\n\n")
    assert (first, second, known, unknown, last) == ("= az_mpi", "= 2", "= true", "= false", "= ")
    assert version.startswith("=1 ") and "genmove" in commands.splitlines() and wrong == "? unknown command"


@pytest.mark.parametrize(
    "command, asked, answer",
    [
        ("gtp", "3 showboard\nname\n", "?3 {run} cannot be loaded: no "),
        ("uci", "isready\nuci\n", "info string {run} cannot be loaded: no "),
    ],
)
def test_a_library_that_cannot_be_loaded_is_reported_and_ends_the_engine(tmp_path, run, command, asked, answer):
    done = start(tmp_path, command, run, asked, FAILS)
    assert done.returncode == 70 and done.stdout.startswith(answer.format(run=run)) and done.stdout.count("run") == 1
    assert "ImportError" in done.stderr


@pytest.mark.parametrize("command, asked", [("gtp", "name\nshowboard\n"), ("uci", "uci\nisready\n")])
def test_a_damaged_checkpoint_is_reported_and_ends_the_engine_with_2(tmp_path, run, command, asked):
    broken = Path(shutil.copytree(run, tmp_path / "broken"))
    (broken / "checkpoints/000001/model.safetensors").write_bytes(b"torn")
    done = start(tmp_path, command, broken, asked)
    last = [line for line in done.stdout.splitlines() if line][-1]
    assert done.returncode == 2 and "holds no whole checkpoint" in last and last[0] in "?i"
    assert "holds no whole checkpoint" in done.stderr and "Traceback" not in done.stderr
    assert ("uciok" if command == "uci" else "= az_mpi") in done.stdout


@pytest.mark.parametrize("command", ["gtp", "uci"])
def test_a_wrong_run_is_refused_before_the_first_command(tmp_path, run, command, capsys):
    empty = Path(shutil.copytree(run, tmp_path / "empty"))
    shutil.rmtree(empty / "checkpoints/000001")
    wrong = [
        [str(tmp_path)],
        [str(empty)],
        [str(run), "--checkpoint", "000009"],
        [f"{tmp_path}/none.onnx"],
        ["zoo:nothing"],
    ]
    for arguments in wrong:
        assert program([command, *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.strip() and "Traceback" not in said.err


def test_the_game_of_a_network_is_read_without_loading_it(tmp_path, run):
    assert network_paths.game_named(run) == "mnk(m=4,n=4,k=3)"
    assert network_paths.game_named(run / "checkpoints/000001") == "mnk(m=4,n=4,k=3)"
    assert network_paths.game_named(Path("zoo:breakthrough6")).startswith("breakthrough(")
    assert network_paths.game_named(ROOT / "tests/data/run_of_0823929") == "tictactoe"
    damaged = Path(shutil.copytree(run, tmp_path / "damaged"))
    (damaged / "config.json").write_text("{")
    assert network_paths.game_named(damaged) == ""
    (damaged / "starts").mkdir()
    (damaged / "starts/001.json").write_text(json.dumps({"config": {"game": "connect4"}}))
    assert network_paths.game_named(damaged) == "connect4"


def test_the_variant_in_uci_is_the_name_of_the_game():
    names = {
        "openspiel:chess(max_plies=300)": "chess",
        "breakthrough(rows=6)": "breakthrough",
        "/a b/x.py:Own": "Own",
        "openspiel:breakthrough": "openspiel:breakthrough",
    }
    assert {name: variant_named(name) for name in names} == names


@pytest.mark.parametrize(
    "name",
    [
        *GAMES.names,
        "mnk(m=15,n=15,k=5)",
        "hex(size=5,swap=True)",
        "examples/own_game.py:Hex(size=3)",
        "openspiel:chess",
        "openspiel:breakthrough",
    ],
)
def test_the_variant_offered_before_a_game_is_loaded_is_the_loaded_games(name):
    """As a UCI opponent, another az_mpi compares it with the game that it has loaded."""
    if "openspiel" in name:
        pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    from az_mpi.games.uci_moves import uci_moves

    assert variant_named(name) in uci_moves(games.make(name)).variants


def test_commands_during_the_loading_are_answered(tmp_path, run):
    (tmp_path / "sitecustomize.py").write_text(SITE.format(names=LARGE, what=BLOCKS))
    process = subprocess.Popen(
        [sys.executable, "-m", "az_mpi", "gtp", str(run)],
        cwd=ROOT,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for asked, answer in (("name", "= az_mpi\n"), ("protocol_version", "= 2\n")):
        process.stdin.write(f"{asked}\n")
        process.stdin.flush()
        assert (process.stdout.readline(), process.stdout.readline()) == (answer, "\n")
        if asked == "name":
            assert process.stderr.readline().startswith("loading ")  # said by the thread that loads
    process.communicate("quit\n")
    assert process.returncode == 0
