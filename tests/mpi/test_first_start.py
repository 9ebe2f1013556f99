"""The first start compiles the kernels, once for all ranks and before the first game, and prints that."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from jobs import PROGRAMS

pytestmark = pytest.mark.mpi


def copy_without_some(folder):
    """Copy the kernels that other tests have compiled, but those of rules and self-play, and no marks of whole sets.

    To compile all of them would take a minute."""
    missing = shutil.ignore_patterns("compiled-*", "selfplay_*", "games_*", "checked")
    with suppress(shutil.Error):  # a file that another test has just replaced
        shutil.copytree(Path(os.environ["NUMBA_CACHE_DIR"]), folder, ignore=missing)


def test_the_first_start_compiles_on_one_rank_and_the_second_compiles_nothing(mpirun, tmp_path, monkeypatch):
    copy_without_some(tmp_path / "cache")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))

    def start(name, *options):
        """Train in a new folder; return what was said, and how many functions each rank compiled, without those inside
        of others, which are Numba's own."""
        counts = tmp_path / f"counts {name}"
        counts.mkdir()
        done = mpirun(
            2,
            PROGRAMS / "compile_counts.py",
            counts,
            "--config_file",
            "configs/smoke.json",
            "--logdir",
            tmp_path / name,
            *options,
        )
        lines = [(counts / str(rank)).read_text().splitlines() for rank in range(2)]
        return done.stdout, [sum("<locals>" not in line for line in names) for names in lines]

    said, compiled = start("first")
    assert min(compiled) == 0 and max(compiled) > 20
    assert said.count("compiling the kernels") > 5
    assert said.rindex("compiling the kernels") < said.index("iteration 1 of 2")
    said, compiled = start("second", "--set", "iterations=1", "--set", "evaluate.opponents=[]")
    assert compiled == [0, 0]
    assert "compiling" not in said
