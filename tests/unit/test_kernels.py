"""Compiling ahead of a run leaves nothing to be compiled later and keeps the code in a folder."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from az_mpi.core import kernel_cache
from az_mpi.core.problems import Refusal
from az_mpi.run import kernels

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

# Rehearses a game, then trains with it on this process's cores, and prints the kernels that got new types meanwhile.
NEW_TYPES = """
import sys
from numba.core.dispatcher import Dispatcher
from az_mpi.config import command_line, load as config; from az_mpi import games; from az_mpi.run import kernels
import run_dist

def types():
    found = {}
    for name, module in list(sys.modules.items()):
        for attribute, value in list(vars(module).items() if name.startswith(("az_mpi", "own_")) else ()):
            if isinstance(value, Dispatcher):
                found[f"{value.py_func.__module__}.{attribute}"] = len(value.signatures)
    return found

arguments = command_line.parse(sys.argv[1:])
configuration = config.load(arguments.config_file, arguments.overrides)
for parallel in (False, True):
    assert len(list(kernels.rehearse(configuration, games.make(configuration.game), parallel))) == kernels.PARTS
before = types()
assert len(before) > 20
assert run_dist.start(arguments) == 0
print("new types:", {name: (before.get(name), n) for name, n in types().items() if n != before.get(name, 0)})
"""

OWN = """
import numpy as np
from numba import njit
from az_mpi.games import mnk

class Rules(mnk.Rules):
    def legal(self, states):
        return _legal(states)

@njit(cache=True)
def _legal(states):
    legal = np.empty((len(states), 9), np.bool_)
    for b in range(len(states)):
        for cell in range(9):
            legal[b, cell] = ((states[b, 0] | states[b, 1]) >> cell) & 1 == 0
    return legal
"""


@pytest.mark.parametrize("game, engine", [("connect4", "openvino"), ("own", "torch")])
def test_a_run_calls_kernels_with_rehearsed_types_only(tmp_path, game, engine):
    (tmp_path / "own_game.py").write_text(OWN)
    game = f"{tmp_path}/own_game.py:Rules" if game == "own" else game
    settings = [f"game={game}", f"network.engine={engine}", "selfplay.max_plies=20"]
    command = [
        sys.executable,
        "-c",
        NEW_TYPES,
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        str(tmp_path / "run"),
        *(word for setting in settings for word in ("--set", setting)),
    ]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "new types: {}" in done.stdout


def test_both_searches_are_compiled_ahead_of_a_run(monkeypatch, tmp_path):
    rehearsed = tmp_path / "rehearsed"

    def rehearse(config, *_):
        with open(rehearsed, "a") as file:  # of several processes
            file.write(f"{config.search.algorithm}\n")
        return iter(())

    monkeypatch.setattr(kernels, "_mark", lambda config, game, parallel: tmp_path / config.search.algorithm)
    monkeypatch.setattr(kernels, "rehearse", rehearse)
    assert kernels.main(["tictactoe"]) == kernels.main(["tictactoe"]) == 0
    assert sorted(rehearsed.read_text().split()) == ["gumbel", "puct"]  # once each


def test_a_game_that_does_not_exist_is_refused_by_name():
    with pytest.raises(Refusal, match="did you mean"):
        kernels.main(["conect4"])


def test_a_kernel_that_could_not_be_cached_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_mark", lambda config, game, parallel: tmp_path / "mark")
    monkeypatch.setattr(kernels, "rehearse", lambda *_: iter(()))
    monkeypatch.setattr(kernel_cache, "failure", "No space left on device")
    assert kernels.main(["tictactoe"]) == 1 and not (tmp_path / "mark").exists()
    monkeypatch.setattr(kernel_cache, "failure", None)
    assert kernels.main(["tictactoe"]) == 0 and (tmp_path / "mark").exists()


def cache_folder(package, **variables):
    """Return where a package with our __init__.py keeps compiled kernels."""
    program = "import os, az_mpi; print(os.environ['NUMBA_CACHE_DIR'])"
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=package.parent,
        capture_output=True,
        text=True,
        env=environment | {name: str(value) for name, value in variables.items()},
        check=True,
    )
    return Path(done.stdout.strip())


def test_kernels_are_cached_in_a_folder_that_this_user_can_write(tmp_path):
    package, home, temporary = tmp_path / "az_mpi", tmp_path / "home", tmp_path / "tmp"
    (package / "core").mkdir(parents=True)
    temporary.mkdir()
    for name in ("__init__", "core/__init__", "core/exit_codes", "core/kernel_cache", "core/printing"):
        (package / f"{name}.py").write_text((ROOT / "az_mpi" / f"{name}.py").read_text())
    where = {"XDG_CACHE_HOME": home, "TMPDIR": temporary}
    assert cache_folder(package, NUMBA_CACHE_DIR=tmp_path / "given", **where) == tmp_path / "given"
    assert cache_folder(package, **where).parent == package / "__pycache__"
    (package / "__pycache__").rmdir()
    (package / "__pycache__").touch()  # no folder can be there, for root neither
    assert cache_folder(package, **where).parent == home / "az_mpi"
    (home / "az_mpi").rmdir()
    (home / "az_mpi").touch()
    found = cache_folder(package, **where).parent
    assert found.parent == temporary and stat.S_IMODE(found.stat().st_mode) == 0o700
    assert cache_folder(package, **where).parent == found  # the next rank, and the next start, find it again
    if os.geteuid() == 0:
        os.chown(found, 1, 1)  # another user's, who may have put anything there
        assert cache_folder(package, **where).parent != found
