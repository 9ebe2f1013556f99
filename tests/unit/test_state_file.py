"""The state file of compare and scaling: what is refused, with the folder's name."""

import errno

import pytest

from az_mpi.core import files
from az_mpi.core.problems import Refusal
from az_mpi.plan import state_file


@pytest.mark.parametrize("content", ["{", "[]", "{}", "\0"])
def test_a_damaged_state_is_refused_and_kept(content, tmp_path):
    (tmp_path / "compare.json").write_text(content)
    with pytest.raises(Refusal, match="--logdir .*: compare.json is damaged"):
        state_file.read(tmp_path / "compare.json", "comparison")
    assert (tmp_path / "compare.json").read_text() == content


def test_a_logdir_that_cannot_be_used_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Refusal, match=f"^--logdir {folder}: Not a directory"):
            state_file.read(folder / "compare.json", "comparison")

    def forbidden(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "is_there", forbidden)
    with pytest.raises(Refusal, match=f"^--logdir {tmp_path}: Permission denied"):
        state_file.read(tmp_path / "compare.json", "comparison")
