"""Checkpoints: what is saved is what is loaded, and a damaged one is passed over, told about and kept."""

import errno
import gc
import json
import logging
import math
import os
from types import SimpleNamespace

import pytest
import torch
from helpers import make_config

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core import files
from az_mpi.core.problems import Refusal
from az_mpi.network import resnet
from az_mpi.run import bad_steps, resume
from az_mpi.run.run_files import RunFiles
from az_mpi.storage import checkpoint, run_folder
from az_mpi.storage.checkpoint import Checkpoint, Progress

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "sha256")


def make(iteration, seed=1):
    network = resnet.build(games.make("tictactoe"), models.Network(blocks=1, channels=8), seed)
    optimizer = {"stem.weight.exp_avg": torch.rand(8, 2, 3, 3), "stem.weight.step": torch.tensor(float(iteration))}
    progress = Progress(iteration, step=10 * iteration, samples_due=0.1 + iteration, games_num=7, positions_num=60,
                        unfinished_games=3)  # fmt: skip
    return Checkpoint(progress, network.state_dict(), optimizer)


def same_tensors(one, other):
    """Whether the names, types, shapes and bits are the same."""
    return list(sorted(one)) == list(sorted(other)) and all(
        one[k].dtype == other[k].dtype and one[k].shape == other[k].shape
        and one[k].contiguous().numpy().tobytes() == other[k].contiguous().numpy().tobytes()
        for k in one
    )  # fmt: skip


def assert_same(found, expected):
    assert found.progress == expected.progress
    assert same_tensors(found.model, expected.model) and same_tensors(found.optimizer, expected.optimizer)


def test_what_is_saved_is_what_is_loaded(tmp_path):
    """To the last bit, also numbers that are not plain, and tensors that do not lie in order."""
    saved = make(3)
    saved.model["stem.weight"][0, 0, 0, :3] = torch.tensor([3e38, -0.0, 1e-45])
    saved.model["turned"] = torch.arange(24.0).reshape(2, 3, 2, 2).to(memory_format=torch.channels_last)
    saved.optimizer["transposed"] = torch.arange(6.0).reshape(2, 3).t()
    saved.progress.samples_due = 0.1 + 0.2
    checkpoint.save(tmp_path, saved, keep=3)
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert_same(found, saved)
    assert lines == [] and sorted(p.name for p in (tmp_path / "000003").iterdir()) == sorted(FILES)


def test_what_was_saved_leaves_nothing_that_only_the_collector_of_cycles_can_free(tmp_path):
    """That one comes rarely in a program of so many objects: after hundreds of checkpoints."""
    state = make(1)
    checkpoint.to_bytes(state.model)
    gc.collect()
    gc.disable()
    try:
        checkpoint.to_bytes(state.model | state.optimizer, {"about": "this"})
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_sums_are_those_that_sha256sum_checks(tmp_path):
    checkpoint.save(tmp_path, make(1), keep=1)
    assert os.system(f"cd {tmp_path}/000001 && sha256sum --check --quiet --strict sha256") == 0


def test_an_optimizer_that_has_not_stepped_yet(tmp_path):
    saved = make(0)
    saved.optimizer = {}
    checkpoint.save(tmp_path, saved, keep=1)
    assert_same(checkpoint.load_newest(tmp_path, set_aside=True)[0], saved)


def test_the_newest_are_kept(tmp_path):
    for iteration in (1, 2, 3, 10, 11):
        checkpoint.save(tmp_path, make(iteration), keep=2)
    assert [p.name for p in checkpoint.find(tmp_path)] == ["000010", "000011"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000010", "000011"]
    assert checkpoint.load_newest(tmp_path, set_aside=True)[0].progress.iteration == 11


def test_an_old_one_is_never_seen_in_part(tmp_path, monkeypatch):
    """The file system fails, or the job is killed, in the middle of its removal."""
    checkpoint.save(tmp_path, make(1), keep=1)
    real = os.unlink

    def unlink(path, **where):
        if str(path).endswith("sha256"):
            raise OSError(errno.EIO, "made up")
        real(path, **where)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(OSError, match="made up"):
        checkpoint.save(tmp_path, make(2), keep=1)
    monkeypatch.undo()
    assert [p.name for p in checkpoint.find(tmp_path)] == ["000002"]
    assert all(checkpoint.damage(path) is None for path in checkpoint.find(tmp_path))
    files.remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["000002"]


def test_no_checkpoint(tmp_path):
    assert checkpoint.load_newest(tmp_path, set_aside=True) == (None, [])
    assert checkpoint.load_newest(tmp_path / "nowhere", set_aside=True) == (None, [])


def flip(path):
    """Flip one bit in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


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
    # It is told once, and its number is free for the checkpoint that comes instead.
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
    """state.json still reads well; it is not what was saved."""
    checkpoint.save(tmp_path, make(4), keep=3)
    state = tmp_path / "000004" / "state.json"
    assert '"step": 40' in state.read_text()
    state.write_text(state.read_text().replace('"step": 40', '"step": 41'))
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and "state.json" in lines[0]


def test_sums_of_another_checkpoint_do_not_serve(tmp_path):
    """Whole files, but of two checkpoints: refused."""
    for iteration in (1, 2):
        checkpoint.save(tmp_path, make(iteration, seed=iteration), keep=3)
    os.replace(tmp_path / "000001" / "model.safetensors", tmp_path / "000002" / "model.safetensors")
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and ["000002" in lines[0], "000001" in lines[1]] == [True, True]


def test_where_all_are_damaged_there_is_none(tmp_path):
    for iteration in (1, 2, 3):
        checkpoint.save(tmp_path, make(iteration), keep=3)
        flip(tmp_path / f"{iteration:06d}" / "model.safetensors")
    found, lines = checkpoint.load_newest(tmp_path, set_aside=True)
    assert found is None and len(lines) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000001.damaged", "000002.damaged", "000003.damaged"]


def test_damaged_twice_both_are_kept(tmp_path):
    for seed in (1, 2):
        checkpoint.save(tmp_path, make(5, seed), keep=3)
        flip(tmp_path / "000005" / "state.json")
        assert checkpoint.load_newest(tmp_path, set_aside=True)[0] is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000005.damaged", "000005.damaged-1"]


def test_another_schema_is_not_used(tmp_path):
    """Its sums are right; its version is not."""
    checkpoint.save(tmp_path, make(1), keep=3)
    state, sums = tmp_path / "000001" / "state.json", tmp_path / "000001" / "sha256"
    old = files.sha256(state)
    state.write_text(json.dumps(json.loads(state.read_text()) | {"schema_version": 2}))
    sums.write_text(sums.read_text().replace(old, files.sha256(state)))
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


def test_checkpoints_beyond_a_million(tmp_path):
    for k in (999999, 1000000):
        (tmp_path / str(k)).mkdir()
    assert [p.name for p in checkpoint.find(tmp_path)] == ["999999", "1000000"]


def test_whoever_only_looks_leaves_a_damaged_checkpoint_where_it_is(tmp_path):
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


def test_an_older_checkpoint_can_be_asked_for(tmp_path):
    for iteration in (1, 2, 3):
        checkpoint.save(tmp_path, make(iteration), 3)
    steps = [checkpoint.load_newest(tmp_path, False, before_step=step)[0] for step in (31, 30, 11, 10)]
    assert [found and found.progress.step for found in steps] == [30, 20, 10, None]


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_until_told_to_begin_anew(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    checkpoint.refuse_unusable(folder, anew=False)  # a new run
    for iteration in (1, 2):
        checkpoint.save(folder, make(iteration), keep=3)
    flip(folder / "000002" / "model.safetensors")
    checkpoint.refuse_unusable(folder, anew=False)
    flip(folder / "000001" / "state.json")
    for aside in (False, True):  # also once they were set aside
        with pytest.raises(Refusal, match="000001.*state.json") as refused:
            checkpoint.refuse_unusable(folder, anew=False)
        assert "--without_checkpoint" in str(refused.value) and str(tmp_path / "run") in str(refused.value)
        checkpoint.refuse_unusable(folder, anew=True)
        assert checkpoint.load_newest(folder, set_aside=aside)[0] is None


def record(kind, iteration, step, **values):
    return json.dumps({"kind": kind, "step": step, "iteration": iteration, **values}) + "\n"


# What metrics.jsonl says, and whether there must have been a checkpoint.
TOLD = {
    "nothing": ("", False),
    "none was due yet": (record("iteration", 1, 30) + record("evaluation", 1, 30), False),
    "a start that was stopped before its first step": (record("checkpoint", 0, 0), False),
    "a line that was cut off": (record("iteration", 1, 30) + record("checkpoint", 2, 60)[:40], False),
    "one": (record("iteration", 1, 30) + record("checkpoint", 4, 60), True),
    "one, by an earlier version": (record("iteration", 4, 60, save_s=0.1) + record("iteration", 5, 90), True),
}


@pytest.mark.parametrize("text, refused", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("how", ["removed", "empty"])
def test_a_run_whose_checkpoints_are_gone_is_refused_and_one_that_had_none_is_not(tmp_path, text, refused, how):
    folder = tmp_path / "checkpoints"
    if how == "empty":
        folder.mkdir()
    (tmp_path / "metrics.jsonl").write_text(text)
    assert checkpoint.refuse_unusable(folder, anew=True) is None
    if not refused:
        assert checkpoint.refuse_unusable(folder, anew=False) is None
        return
    with pytest.raises(Refusal, match="after iteration 4") as caught:
        checkpoint.refuse_unusable(folder, anew=False)
    assert "--without_checkpoint" in str(caught.value) and "--logdir" in str(caught.value)


def test_a_whole_checkpoint_of_another_network_is_refused_and_left_where_it_is(tmp_path):
    """Also where an older one is this run's, and where the run is to begin anew."""
    folder, ours = tmp_path / "checkpoints", make(1)
    folder.mkdir()
    checkpoint.save(folder, ours, keep=3)
    assert_same(checkpoint.refuse_unusable(folder, False, ours.model), ours)
    other = make(2)
    other.model["stem.weight"] = torch.zeros(16, 2, 3, 3)
    checkpoint.save(folder, other, keep=3)
    for look in (lambda: checkpoint.refuse_unusable(folder, False, ours.model),
                 lambda: checkpoint.refuse_unusable(folder, True, ours.model),
                 lambda: checkpoint.load_newest(folder, True, ours.model)):
        with pytest.raises(Refusal, match=r"stem.weight is float32 \[16, .* float32 \[8, 2, 3, 3\]") as caught:
            look()
        assert "000002" in str(caught.value) and sorted(path.name for path in folder.iterdir()) == ["000001", "000002"]
    assert_same(checkpoint.load_newest(folder, True, ours.model, before_step=20)[0], ours)


def test_training_does_not_go_back_to_another_networks_checkpoint(tmp_path, caplog):
    """It was put there while the run went on: it stays where it is, and training ends with the reason."""
    other = make(2)
    other.model["stem.weight"] = torch.zeros(16, 2, 3, 3)
    (tmp_path / "checkpoints").mkdir()
    checkpoint.save(tmp_path / "checkpoints", other, keep=3)
    network = resnet.build(games.make("tictactoe"), models.Network(blocks=1, channels=8), 1)
    world = SimpleNamespace(is_root=True, share=lambda values: values)
    learner, logger = SimpleNamespace(good_until=60, world=world, failure=None), logging.getLogger("test")
    run = SimpleNamespace(
        world=world, setup=SimpleNamespace(folder=tmp_path), files=RunFiles(tmp_path, None, 600.0, logger),
        training=SimpleNamespace(learner=learner, network=network), progress=Progress(step=60),
        report=SimpleNamespace(warn=logger.warning))  # fmt: skip
    bad_steps.roll_back(run, "6 steps in a row were not finite")
    assert "training cannot go on" in learner.failure and "another network's" in caplog.text
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000002"]


def test_games_that_were_under_way_are_told_of_once(tmp_path, monkeypatch, caplog):
    """By the first start that goes on from a checkpoint; the next one may find the same one."""
    monkeypatch.setattr(resume.exchange, "refill", lambda run: None)
    monkeypatch.setattr(resume.weights, "broadcast_weights", lambda run: None)
    world = SimpleNamespace(is_root=True, share=lambda values: values)
    config, logger = make_config(iterations=9), logging.getLogger("test")
    logger.setLevel(logging.INFO)
    told = []
    for iteration in (2, 2, 2, 3):
        progress = make(iteration).progress
        attempt = run_folder.prepare(tmp_path, config, [], False, newest=f"{iteration:06d}")
        run = SimpleNamespace(world=world, progress=progress, files=RunFiles(tmp_path, None, 600.0, logger),
                              attempt=attempt, report=SimpleNamespace(say=logger.info), how_far=lambda: "2 iterations")
        caplog.clear()
        resume.resume(run)
        told.append("lost: 3 games" in caplog.text)
    assert told == [True, False, False, True]


def test_all_that_differs_between_networks_is_told_of(tmp_path):
    ours, other = make(1).model, make(1)
    del other.model["stem.bias"]
    other.model["stem.weight"] = other.model["stem.weight"].double()
    other.model["more"] = torch.zeros(2)
    assert checkpoint.differences(ours, ours) == []
    missing, kind, shape = sorted(checkpoint.differences(other.model, ours))
    assert missing == "more is float32 [2], in this run's network missing"
    assert kind == "stem.bias is missing, in this run's network float32 [8]"
    assert shape.startswith("stem.weight is float64 [8, 2, 3, 3], in this run's network float32")
    other.model, other.optimizer["stem.bias.exp_avg"] = ours, torch.zeros(3)
    checkpoint.save(tmp_path, other, keep=3)
    with pytest.raises(Refusal, match=r"stem.bias.exp_avg is float32 \[3\]"):
        checkpoint.load_newest(tmp_path, True, ours)


FOREIGN = {
    "list": "[]",
    "no version": "{}",
    "unknown": '{"schema_version": 1, "iteration": 1, "evil": 2}',
    "text": '{"schema_version": 1, "iteration": "1"}',
    "negative": '{"schema_version": 1, "iteration": -1}',
    "huge": '{"schema_version": 1, "positions_num": 1e300}',
    "nan": '{"schema_version": 1, "samples_due": NaN}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("state", FOREIGN.values(), ids=FOREIGN)
def test_what_a_stranger_made_with_right_sums_is_refused(tmp_path, state):
    checkpoint.save(tmp_path, make(1), keep=3)
    place = tmp_path / "000001"
    old = files.sha256(place / "state.json")
    (place / "state.json").write_text(state)
    (place / "sha256").write_text((place / "sha256").read_text().replace(old, files.sha256(place / "state.json")))
    assert checkpoint.damage(place)


@pytest.mark.parametrize("name", FILES)
def test_a_link_or_a_pipe_in_a_checkpoint_is_damage(tmp_path, name):
    checkpoint.save(tmp_path, make(1), keep=3)
    (tmp_path / "000001" / name).rename(tmp_path / "moved")
    (tmp_path / "000001" / name).symlink_to(tmp_path / "moved")
    assert checkpoint.damage(tmp_path / "000001")
    (tmp_path / "000001" / name).unlink()
    os.mkfifo(tmp_path / "000001" / name)
    assert "not a plain file" in checkpoint.damage(tmp_path / "000001")
