"""What is packed, and which file a start takes. tests/mpi/test_packed.py starts jobs from packs."""

import errno
import os
from types import SimpleNamespace

import pytest
from helpers import make_config

from az_mpi import __main__ as commands
from az_mpi.core.problems import Refusal
from az_mpi.launch import launcher, packed
from az_mpi.storage import run_folder


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A checkout of few files, of which one can be packed; returns its folder."""
    for name in ("run_dist.py", "az_mpi/search/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(packed, "CHECKOUT", tmp_path)
    monkeypatch.setattr(packed, "contents", lambda: [packed.Member(tmp_path / "run_dist.py", "program/run_dist.py")])
    return tmp_path


def test_a_pack_holds_the_program_and_its_packages_without_the_tools_that_test_it():
    names = {member.name for member in packed.contents()}
    assert {"program/run_dist.py", "program/az_mpi/loop.py", "program/configs/smoke.json"} <= names
    assert any(name.endswith("/site-packages/numpy/__init__.py") for name in names)
    assert not any("/site-packages/pytest/" in name or "/__editable__.az_mpi" in name for name in names)


def test_the_beginning_of_a_pack_has_all_its_values_and_ends_where_it_says(small):
    text = packed.header(packed.contents(), "pack-x").decode()
    assert f"header_bytes={len(text.encode())}\n" in text and "@" not in text.replace("$@", "")


def test_a_pack_is_current_until_a_file_changes(small):
    path = small / "one.pack"
    assert not packed.is_current(path)
    packed.write(path)
    assert packed.is_current(path) and os.access(path, os.X_OK)
    (small / "run_dist.py").write_text("x = 22\n")
    assert not packed.is_current(path) and packed.is_pack(path)
    packed.write(path)  # an older pack is replaced
    assert packed.is_current(path)


def test_a_file_that_is_no_pack_is_not_replaced(small, capsys):
    (small / "mine").write_text("text")
    assert commands.obey(["pack", str(small / "mine")]) == 2
    assert "is no pack" in capsys.readouterr().err and (small / "mine").read_text() == "text"
    with pytest.raises(Refusal):
        packed.write(small / "missing" / "folder.pack")


def test_a_path_that_cannot_be_read_is_refused_by_pack_and_launch(small, capsys, monkeypatch):
    (small / "folder").mkdir()
    assert commands.obey(["pack", str(small / "folder")]) == 2
    options = SimpleNamespace(packed=small / "folder", dry_run=False, node_index=None)
    with pytest.raises(Refusal, match="folder: Is a directory"):
        launcher.packed_program(options, [])
    assert "folder: Is a directory" in capsys.readouterr().err

    def forbidden(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (small / "mine").write_text("text")
    monkeypatch.setattr(packed, "is_pack", forbidden)
    for use in (packed.write, packed.is_current):
        with pytest.raises(Refusal, match="mine: Permission denied"):
            use(small / "mine")


def test_compiled_kernels_of_the_checkout_are_those_of_the_copy(small):
    here = small / "az_mpi" / "search"
    folder = small / "az_mpi" / "__pycache__" / "numba-1"
    (folder / packed._of_numba(small / "elsewhere" / "az_mpi" / "search")).mkdir(parents=True)
    packed.settle(str(small / "elsewhere"))
    assert [place.name for place in folder.iterdir()] == [packed._of_numba(here)]


def test_launch_starts_the_ranks_from_a_pack(tmp_path, capsys):
    words = [
        "--np",
        "2",
        "--dry_run",
        "--packed",
        str(tmp_path / "a pack"),
        "--",
        "--config_file",
        "configs/smoke.json",
    ]
    assert launcher.main(words) == 0
    assert capsys.readouterr().out.endswith(f" '{tmp_path}/a pack' --config_file configs/smoke.json\n")
    assert not (tmp_path / "a pack").exists()


def test_a_run_from_a_pack_records_the_commit_of_its_checkout(monkeypatch):
    monkeypatch.setenv("AZ_MPI_COMMIT", "abc")
    assert run_folder.describe(make_config(), ["node1"])["git_commit"] == "abc"
    monkeypatch.setenv("AZ_MPI_COMMIT", "")
    assert run_folder.commit() is None
