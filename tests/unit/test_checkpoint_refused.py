"""Checkpoints that a run may not begin with: gone, damaged, of another network, or made by a stranger."""

import hashlib
import json
import logging
import os

import pytest
import torch
from checkpoints import FILES, assert_same, flip, make
from stand_ins import part_of_run

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.mpi.alone import Alone
from az_mpi.network import resnet
from az_mpi.run import bad_steps, resume
from az_mpi.run.run_files import RunFiles
from az_mpi.run.writers import Writers
from az_mpi.storage import checkpoint
from az_mpi.storage.checkpoint import Progress


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_without_the_option_to_begin_again(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    checkpoint.refuse_unusable(folder, restart=False)  # a new run
    for iteration in (1, 2):
        checkpoint.save(folder, make(iteration), keep=3)
    flip(folder / "000002" / "model.safetensors")
    checkpoint.refuse_unusable(folder, restart=False)
    flip(folder / "000001" / "state.json")
    for aside in (False, True):  # also once they were set aside
        with pytest.raises(Refusal, match="000001.*state.json") as refused:
            checkpoint.refuse_unusable(folder, restart=False)
        assert "--without_checkpoint" in str(refused.value) and str(tmp_path / "run") in str(refused.value)
        checkpoint.refuse_unusable(folder, restart=True)
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
    assert checkpoint.refuse_unusable(folder, restart=True) is None
    if not refused:
        assert checkpoint.refuse_unusable(folder, restart=False) is None
        return
    with pytest.raises(Refusal, match="after iteration 4") as caught:
        checkpoint.refuse_unusable(folder, restart=False)
    assert "--without_checkpoint" in str(caught.value) and "--logdir" in str(caught.value)


def test_a_checkpoint_that_is_gone_is_noticed_in_a_long_run(tmp_path):
    """The run's metrics.jsonl is larger than other text files may be."""
    text = record("checkpoint", 4, 60) + (record("iteration", 4, 60, note="x" * 2**20) * 17)
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(Refusal, match="after iteration 4"):
        checkpoint.refuse_unusable(tmp_path / "checkpoints", restart=False)


def test_a_whole_checkpoint_of_another_network_is_refused_and_left_where_it_is(tmp_path):
    """This holds where an older checkpoint is this run's, and where the run is to start again."""
    folder, ours = tmp_path / "checkpoints", make(1)
    folder.mkdir()
    checkpoint.save(folder, ours, keep=3)
    assert_same(checkpoint.refuse_unusable(folder, False, ours.model), ours)
    other = make(2)
    other.model["stem.weight"] = torch.zeros(16, 2, 3, 3)
    checkpoint.save(folder, other, keep=3)
    for look in (
        lambda: checkpoint.refuse_unusable(folder, False, ours.model),
        lambda: checkpoint.refuse_unusable(folder, True, ours.model),
        lambda: checkpoint.load_newest(folder, True, ours.model),
    ):
        with pytest.raises(Refusal, match=r"stem.weight is float32 \[16, .* float32 \[8, 2, 3, 3\]") as caught:
            look()
        assert "000002" in str(caught.value) and sorted(path.name for path in folder.iterdir()) == ["000001", "000002"]
    assert_same(checkpoint.load_newest(folder, True, ours.model, before_step=20)[0], ours)


def test_training_does_not_go_back_to_another_networks_checkpoint(tmp_path, caplog):
    """The checkpoint was put there during the run. It stays where it is, and training ends with the reason."""
    other = make(2)
    other.model["stem.weight"] = torch.zeros(16, 2, 3, 3)
    (tmp_path / "checkpoints").mkdir()
    checkpoint.save(tmp_path / "checkpoints", other, keep=3)
    network = resnet.build(games.make("tictactoe"), models.Network(blocks=1, channels=8), 1)
    learner = part_of_run(good_until=60, world=Alone(), failure=None)
    run = part_of_run(
        world=Alone(),
        setup={"folder": tmp_path},
        files=RunFiles(tmp_path, None, 600.0),
        training={"learner": learner, "network": network},
        progress=Progress(step=60),
        report={"warn": logging.getLogger("test").warning},
    )
    bad_steps.roll_back(run, "6 steps in a row were not finite")
    assert "training cannot continue" in learner.failure and "another network's" in caplog.text
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000002"]


def test_the_number_of_games_lost_under_way_is_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(resume.exchange, "refill", lambda run: None)
    monkeypatch.setattr(resume.weights, "broadcast_weights", lambda run: None)
    monkeypatch.setattr(resume.archive, "renew", lambda run: None)
    monkeypatch.setattr(resume.ranking, "renew", lambda run: None)
    logger = logging.getLogger("test")
    logger.setLevel(logging.INFO)
    run = part_of_run(
        world=Alone(),
        progress=make(2).progress,
        files=RunFiles(tmp_path, None, 600.0),
        start=2,
        writers=Writers.make(Alone(), 64),
        report={"say": logger.info},
        how_far=lambda: "2 iterations",
    )
    resume.resume(run)
    assert "lost: 3 games" in caplog.text


def test_a_refusal_lists_every_difference_between_networks(tmp_path):
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
    "huge": '{"schema_version": 1, "num_positions": 1e300}',
    "nan": '{"schema_version": 1, "samples_due": NaN}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("state", FOREIGN.values(), ids=FOREIGN)
def test_files_of_a_stranger_with_right_checksums_are_refused(tmp_path, state):
    checkpoint.save(tmp_path, make(1), keep=3)
    place = tmp_path / "000001"
    old, new = (hashlib.sha256(text).hexdigest() for text in ((place / "state.json").read_bytes(), state.encode()))
    (place / "state.json").write_text(state)
    (place / "sha256").write_text((place / "sha256").read_text().replace(old, new))
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
