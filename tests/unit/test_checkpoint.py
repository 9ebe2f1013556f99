"""A loaded checkpoint equals the saved one, and a damaged one is reported, skipped and kept."""

import errno
import gc
import hashlib
import json
import math
import os

import pytest
import torch
from checkpoints import FILES, assert_same, flip, make

from az_mpi.core import files
from az_mpi.storage import checkpoint


def test_a_loaded_checkpoint_equals_the_saved_one(tmp_path):
    """They are equal to the last bit, also with unusual numbers and tensors that are not contiguous."""
    saved = make(3)
    saved.model["stem.weight"][0, 0, 0, :3] = torch.tensor([3e38, -0.0, 1e-45])
    saved.model["turned"] = torch.arange(24.0).reshape(2, 3, 2, 2).to(memory_format=torch.channels_last)
    saved.optimizer["transposed"] = torch.arange(6.0).reshape(2, 3).t()
    saved.progress.samples_due = 0.1 + 0.2
    checkpoint.save(tmp_path, saved, keep=3)
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert_same(found, saved)
    assert lines == [] and sorted(p.name for p in (tmp_path / "000003").iterdir()) == sorted(FILES)


def test_saving_a_checkpoint_leaves_no_reference_cycles(tmp_path):
    """Only the collector of cycles frees those, and it runs once in hundreds of checkpoints."""
    state = make(1)
    checkpoint.to_bytes(state.model)
    gc.collect()
    gc.disable()
    try:
        checkpoint.to_bytes(state.model | state.optimizer, {"about": "this"})
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_sha256sum_accepts_the_checksums_of_a_checkpoint(tmp_path):
    checkpoint.save(tmp_path, make(1), keep=1)
    assert os.system(f"cd {tmp_path}/000001 && sha256sum --check --quiet --strict sha256") == 0


def test_an_optimizer_that_has_not_stepped_yet_is_saved_and_loaded(tmp_path):
    saved = make(0)
    saved.optimizer = {}
    checkpoint.save(tmp_path, saved, keep=1)
    assert_same(checkpoint.load_newest(tmp_path, set_aside=True)[0], saved)


def test_hours_of_a_start_that_saved_no_checkpoint_count(tmp_path):
    """The hours are those of the resumed state and of no other. Lines that are no records are skipped."""
    lines = [
        {"iteration": 3, "step": 9, "hours": 2.5},
        {"iteration": 3, "step": 12, "hours": 1.5},
        {"iteration": 3, "step": 12, "hours": "no"},
        {"iteration": 3, "step": math.inf},
        {"iteration": 3, "step": 12, "hours": math.inf},
        {"iteration": 3, "step": 12, "hours": math.nan},
        {"iteration": 3, "step": 12},
        [[[]]],
        {"iteration": 2, "step": 12, "hours": 9.0},
    ]
    rows = [{"kind": "checkpoint"} | line if isinstance(line, dict) else line for line in lines]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    text += '{"kind": "checkpoint", "iteration": 3, "step": 12, "hours": 1e9999}\n' + "[" * 100_000 + '"checkpoint"\n'
    (tmp_path / "metrics.jsonl").write_text(text + '{"kind": "checkpoint", "iter')
    progress = make(3).progress.copy(step=12, hours=1.25)
    assert checkpoint.hours_told(tmp_path / "checkpoints", progress) == 1.5
    assert checkpoint.hours_told(tmp_path / "checkpoints", progress.copy(step=13)) == 1.25
    assert checkpoint.hours_told(tmp_path / "nowhere" / "checkpoints", progress) == 1.25


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    for iteration in (1, 2, 3, 10, 11):
        checkpoint.save(tmp_path, make(iteration), keep=2)
    assert [p.name for p in checkpoint.find(tmp_path)] == ["000010", "000011"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000010", "000011"]
    assert checkpoint.load_newest(tmp_path, set_aside=True)[0].progress.iteration == 11


def test_a_checkpoint_being_removed_is_never_seen_in_part(tmp_path, monkeypatch):
    """The file system fails, or the job is killed, in the middle of its removal. The next start removes the rest."""
    checkpoint.save(tmp_path, make(1), keep=1)
    real = os.unlink

    def unlink(path, **where):
        if str(path).endswith("sha256"):
            raise OSError(errno.EIO, "made up")
        real(path, **where)

    monkeypatch.setattr(os, "unlink", unlink)
    checkpoint.save(tmp_path, make(2), keep=1)
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2
    assert [p.name for p in checkpoint.find(tmp_path)] == ["000002"]
    assert all(checkpoint.damage(path) is None for path in checkpoint.find(tmp_path))
    files.remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["000002"]


def test_a_folder_without_checkpoints_gives_none(tmp_path):
    assert checkpoint.load_newest(tmp_path, set_aside=True) == (None, [])
    assert checkpoint.load_newest(tmp_path / "nowhere", set_aside=True) == (None, [])


DAMAGE = {
    "flipped bit": flip,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "missing": lambda path: path.unlink(),
    "noise": lambda path: path.write_bytes(bytes(range(128, 256))),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(tmp_path, name, damage):
    for iteration in (1, 2):
        checkpoint.save(tmp_path, make(iteration), keep=3)
    damage(tmp_path / "000002" / name)
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert_same(found, make_like(found, 1))
    assert len(lines) == 1 and "000002" in lines[0] and "000002.damaged" in lines[0] and "\n" not in lines[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000001", "000002.damaged"]
    # The damage is reported once, and the number is free for the next checkpoint.
    assert checkpoint.load_newest(tmp_path, set_aside=True)[1] == []
    checkpoint.save(tmp_path, make(2, seed=9), keep=3)
    assert checkpoint.load_newest(tmp_path, set_aside=True)[0].progress.iteration == 2


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EACCES])
def test_a_checkpoint_that_cannot_be_read_now_is_left_where_it_is(tmp_path, monkeypatch, code):
    for iteration in (1, 2):
        checkpoint.save(tmp_path, make(iteration), keep=3)

    def refuse(path, *how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "READ_S", 0.0)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=os.strerror(code)):
        checkpoint.load_newest(tmp_path, set_aside=True)
    with pytest.raises(OSError, match=os.strerror(code)):
        checkpoint.damage(tmp_path / "000002")
    monkeypatch.undo()
    assert checkpoint.load_newest(tmp_path, set_aside=True)[0].progress.iteration == 2


def make_like(found, iteration):
    """Return what `make(iteration)` saved; its random optimiser part is taken over."""
    expected = make(iteration)
    expected.optimizer["stem.weight.exp_avg"] = found.optimizer["stem.weight.exp_avg"]
    return expected


def test_a_number_that_was_changed_by_hand_is_damage(tmp_path):
    """state.json can still be read, but is not the saved one."""
    checkpoint.save(tmp_path, make(4), keep=3)
    state = tmp_path / "000004" / "state.json"
    assert '"step": 40' in state.read_text()
    state.write_text(state.read_text().replace('"step": 40', '"step": 41'))
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and "state.json" in lines[0]


def test_a_checkpoint_with_the_checksums_of_another_is_damaged(tmp_path):
    """All files are whole, but they belong to two checkpoints."""
    for iteration in (1, 2):
        checkpoint.save(tmp_path, make(iteration, seed=iteration), keep=3)
    os.replace(tmp_path / "000001" / "model.safetensors", tmp_path / "000002" / "model.safetensors")
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and ["000002" in lines[0], "000001" in lines[1]] == [True, True]


def test_a_folder_whose_checkpoints_are_all_damaged_gives_none(tmp_path):
    for iteration in (1, 2, 3):
        checkpoint.save(tmp_path, make(iteration), keep=3)
        flip(tmp_path / f"{iteration:06d}" / "model.safetensors")
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and len(lines) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000001.damaged", "000002.damaged", "000003.damaged"]


def test_two_damaged_checkpoints_of_one_iteration_are_both_kept(tmp_path):
    for seed in (1, 2):
        checkpoint.save(tmp_path, make(5, seed), keep=3)
        flip(tmp_path / "000005" / "state.json")
        assert checkpoint.load_newest(tmp_path, set_aside=True)[0] is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000005.damaged", "000005.damaged-1"]


def test_a_checkpoint_of_another_schema_is_not_used(tmp_path):
    """The checksums are right and the version is not."""
    checkpoint.save(tmp_path, make(1), keep=3)
    state, sums = tmp_path / "000001" / "state.json", tmp_path / "000001" / "sha256"
    old = hashlib.sha256(state.read_bytes()).hexdigest()
    state.write_text(json.dumps(json.loads(state.read_text()) | {"schema_version": 2}))
    sums.write_text(sums.read_text().replace(old, hashlib.sha256(state.read_bytes()).hexdigest()))
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and "schema is 2" in lines[0]


def test_saving_that_fails_leaves_the_checkpoints_as_they_were(tmp_path):
    checkpoint.save(tmp_path, make(1), keep=1)
    bad = make(2)
    bad.progress.samples_due = object()  # nothing that JSON can hold
    with pytest.raises(TypeError):
        checkpoint.save(tmp_path, bad, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["000001"]
    assert checkpoint.load_newest(tmp_path, set_aside=True)[0].progress.iteration == 1


def test_a_folder_that_was_being_written_when_the_program_died_is_not_seen(tmp_path):
    checkpoint.save(tmp_path, make(1), keep=3)
    half = tmp_path / ".000002.4711.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found.progress.iteration == 1 and lines == []


def test_checkpoints_beyond_a_million_are_found_in_order(tmp_path):
    for k in (999999, 1000000):
        (tmp_path / str(k)).mkdir()
    assert [p.name for p in checkpoint.find(tmp_path)] == ["999999", "1000000"]


def test_reading_without_setting_aside_leaves_a_damaged_checkpoint_where_it_is(tmp_path):
    for iteration in (1, 2):
        checkpoint.save(tmp_path, make(iteration), keep=3)
    (tmp_path / "000002" / "state.json").write_text("")
    found, lines = checkpoint.load_newest(tmp_path, set_aside=False)
    assert found.progress.iteration == 1 and "000002 is damaged" in lines[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000001", "000002"]


@pytest.mark.parametrize("part, number", [("model", math.nan), ("model", math.inf), ("optimizer", -math.inf)])
def test_only_finite_numbers_are_saved_or_loaded(tmp_path, monkeypatch, part, number):
    good, bad = make(1), make(2)
    checkpoint.save(tmp_path, good, 3)
    name = next(name for name, tensor in getattr(bad, part).items() if tensor.is_floating_point() and tensor.numel())
    getattr(bad, part)[name].view(-1)[0] = number
    with pytest.raises(checkpoint.NotFinite, match=name):
        checkpoint.save(tmp_path, bad, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]
    with monkeypatch.context() as patched:  # as another program might have written it
        patched.setattr(checkpoint, "check_finite", lambda tensors: None)
        checkpoint.save(tmp_path, bad, 3)
    found, [line] = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found.progress == good.progress and f"({name} is not finite)" in line and "000002.damaged" in line


def test_a_checkpoint_for_which_memory_is_too_little_is_not_damaged(tmp_path, monkeypatch):
    def fail(content):
        raise MemoryError

    checkpoint.save(tmp_path, make(1), 3)
    monkeypatch.setattr(checkpoint, "load_bytes", fail)
    with pytest.raises(OSError, match="allocate"):
        checkpoint.load_newest(tmp_path, set_aside=True)
    with pytest.raises(OSError, match="allocate"):
        checkpoint.from_bytes_with_about((tmp_path / "000001" / "model.safetensors").read_bytes())
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]


def test_an_older_checkpoint_can_be_asked_for(tmp_path):
    for iteration in (1, 2, 3):
        checkpoint.save(tmp_path, make(iteration), 3)
    steps = [checkpoint.load_newest(tmp_path, False, before_step=step)[0] for step in (31, 30, 11, 10)]
    assert [found and found.progress.step for found in steps] == [30, 20, 10, None]
