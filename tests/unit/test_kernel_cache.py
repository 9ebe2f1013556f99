"""Numba's cache of compiled kernels can only save time: whatever is wrong with it, a kernel is compiled and runs."""

import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import az_mpi
from az_mpi.core import kernel_cache, own_modules

ROOT = Path(__file__).parents[2]
TEXT = """
from numba import njit

@njit(cache=True)
def double(x):
    return plus(x, x)

@njit(cache=True)
def plus(x, y):
    return x + y
"""


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty folder for compiled kernels."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    monkeypatch.setattr(kernel_cache, "failure", None)
    return folder


def test_the_caches_name_depends_on_every_file_that_defines_kernels():
    """Else code that was compiled from an older file of a kernel that is called would be used."""
    package = ROOT / "az_mpi"
    listed = {path for pattern in az_mpi.KERNELS for path in package.glob(pattern)}
    makers = re.compile(r"^\s*@(njit|inlined|inner|uncounted|intrinsic|overload|cfunc)\b", re.MULTILINE)
    defining = {path for path in package.rglob("*.py") if makers.search(path.read_text())}
    assert len(defining) > 20 and not defining - listed
    assert all(list(package.glob(pattern)) for pattern in az_mpi.KERNELS)


def forget(path):
    """Let this process load a file as a new one would: without its modules."""
    own_modules.load.cache_clear()
    importlib.invalidate_caches()
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == str(path):
            del sys.modules[name]


@pytest.fixture
def use(cache, tmp_path, monkeypatch):
    """Return use(path, as_module=False, x=3): load a file in the way of game=FILE or game=MODULE, call its kernel and
    return (the result, whether its code came from the cache)."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def use(path, as_module=False, x=3):
        forget(path)
        monkeypatch.syspath_prepend(str(path.parent))
        module, _ = own_modules.load(path.stem if as_module else str(path))
        assert Path(module.__file__) == path
        result = module.double(x)
        found = bool(module.double.stats.cache_hits)
        forget(path)
        return result, found

    return use


@pytest.fixture
def mine(tmp_path):
    """A file of a user's own with kernels."""
    path = tmp_path / "own" / "my_kernels.py"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("first", [False, True], ids=["as a file", "as a module"])
def test_a_file_that_is_loaded_under_a_second_name_is_compiled_again_and_each_name_keeps_its_code(use, mine, first):
    assert use(mine, first) == (6, False)
    assert use(mine, not first) == (6, False)
    assert use(mine, first) == use(mine, not first) == (6, True)


def test_a_file_that_was_moved_is_compiled_again(use, mine, tmp_path):
    use(mine)
    moved = shutil.move(mine, tmp_path / "my_kernels.py")
    assert use(moved) == (6, False) and use(moved) == (6, True)


def test_the_code_of_an_older_version_of_a_file_is_removed(use, mine, cache):
    use(mine)
    before = {path.name for path in cache.rglob("my_kernels*")}
    mine.write_text("\n" + TEXT.replace("x + y", "10 * x + y"))
    assert use(mine) == (33, False) and use(mine) == (33, True)
    after = {path.name for path in cache.rglob("my_kernels*")}
    assert len(after) == len(before) and not after & before


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "content",
    [b"", b"nothing of Numba's", b"\x80\x04cmissing_module\nname\n."],
    ids=["empty", "noise", "a name that is not there"],
)
def test_damaged_files_are_replaced(use, mine, cache, suffix, content):
    use(mine)
    damaged = list(cache.rglob(f"*.{suffix}"))
    for path in damaged:
        path.write_bytes(content)
    assert damaged and use(mine) == (6, False)
    assert use(mine) == (6, True)


def test_code_for_other_types_is_in_files_of_its_own(use, mine, cache):
    """Two processes that compile it for different types at the same time cannot take each other's code."""
    use(mine, x=3)
    whole = {path.name for path in cache.rglob("my_kernels*")}
    shutil.rmtree(cache)
    assert use(mine, x=1.5) == (3.0, False)
    assert whole.isdisjoint(path.name for path in cache.rglob("my_kernels*"))


@pytest.mark.process
def test_code_of_other_sources_of_the_package_is_not_used(mine, tmp_path):
    """A kernel of a user's own may call one of this package, whose change Numba would not notice."""
    program = (
        "import sys, numba; from az_mpi.core import kernel_cache; sys.path.insert(0, sys.argv[1]); "
        "kernel_cache.install(sys.argv[2]); import my_kernels; "
        "print(my_kernels.double(3), sum(my_kernels.double.stats.cache_hits.values()))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(sources):
        return subprocess.run(
            [sys.executable, "-c", program, mine.parent, sources],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()

    assert [run("one"), run("one"), run("two"), run("one")] == [["6", "0"], ["6", "1"], ["6", "0"], ["6", "0"]]


@pytest.mark.process
def test_kernels_run_where_nothing_can_be_written_and_the_reason_is_logged_once(mine, tmp_path):
    """With a limit of 0 bytes for the size of files every write fails, on any file system and for root too."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); import az_mpi; "
        "sys.path.insert(0, sys.argv[1]); from my_kernels import double; print(double(3), double(1.5))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program, mine.parent], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout == "6 3.0\n"
    assert done.stderr.count(str(tmp_path / "cache")) == done.stderr.count("File too large") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr and "Traceback" not in done.stderr


def test_kernels_run_where_no_folder_can_be_made(use, mine, cache, tmp_path, monkeypatch, caplog):
    """No folder can be made where NUMBA_CACHE_DIR points, beside the file, or in the home."""
    (mine.parent / "__pycache__").touch()
    cache.touch()
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    logging.getLogger("az_mpi").addHandler(logging.NullHandler())
    assert use(mine) == use(mine) == (6, False)
    [said] = caplog.messages
    assert str(cache) in said and "NUMBA_CACHE_DIR" in said and kernel_cache.failure


def test_the_trial_reports_whether_kernels_can_be_cached_and_leaves_nothing(cache):
    assert kernel_cache.trial() is None and list(cache.iterdir()) == []
    cache.rmdir()
    cache.touch()
    assert kernel_cache.trial() == os.strerror(17)


@pytest.mark.process
def test_a_program_chooses_its_folder_itself_unless_the_user_has(tmp_path):
    """A pack that `launch` starts has its own kernels, and not those in the checkout of `launch`."""
    theirs = str(tmp_path / "theirs")

    def chosen(**given):
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | given
        program = "import az_mpi, os; print(os.environ['NUMBA_CACHE_DIR'])"
        command = [sys.executable, "-c", program]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    assert chosen(NUMBA_CACHE_DIR=theirs).strip() == theirs
    assert chosen(NUMBA_CACHE_DIR=theirs, AZ_MPI_KERNELS=theirs) == chosen() != chosen(NUMBA_CACHE_DIR=theirs)


@pytest.mark.process
@pytest.mark.parametrize("before", ["os", "numba"])
def test_kernels_are_cached_whether_numba_is_imported_before_or_after_the_package(mine, tmp_path, before):
    program = (
        f"import {before}, os, sys; os.environ['NUMBA_CACHE_DIR'] = sys.argv[2]; import az_mpi; "
        "sys.path.insert(0, sys.argv[1]); import my_kernels; print(my_kernels.double(3))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-B", "-c", program, mine.parent, tmp_path / "cache"]
    done = subprocess.run(command, env=environment | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    assert done.stdout == b"6\n" and not (mine.parent / "__pycache__").exists()
    [double, _, plus, _] = sorted(path.name for path in (tmp_path / "cache").rglob("my_kernels*"))
    assert double.count("-") == plus.count("-") == 3  # names of this package, not of Numba's
