"""How much of a fit is done: what it writes beside its checkpoints, and what the next start takes from there."""

import json
from types import SimpleNamespace

import pytest
from helpers import make_config
from stand_ins import part_of_run

from az_mpi.core.signals import Stopped
from az_mpi.run import fit as fits
from az_mpi.run.training_phase import Outcome
from az_mpi.storage.checkpoint import Progress

BATCH = 10


@pytest.fixture
def start(tmp_path, world, monkeypatch):
    """Return start(progress, epochs): a fit of 100 positions, continued from a checkpoint with this progress. Its saves
    write no checkpoints."""

    def start(progress, epochs=4.0, minutes=0.0):
        run = part_of_run(
            world=world,
            setup={"folder": tmp_path, "config": make_config(train={"batch_size": BATCH, "batch_growth": 1.0})},
            files={
                "segments": lambda: [SimpleNamespace(iteration=0, num_games=10, num_positions=100)],
                "removed": lambda: (0, 0),
                "writes_no_more": False,
                "writer": SimpleNamespace(do=lambda path, action: action(lambda: None)),
            },
            training={"learner": None},
            progress=progress,
        )
        found = fits._Fit(run, fits.Task(epochs, minutes, 0.0))
        found.num_train = 100
        return found

    monkeypatch.setattr(fits.resume, "save", lambda run: False)
    return start


def train(fit, monkeypatch, steps, during=lambda: None, stop=False):
    """Let the trainers take so many steps, then call during(), which is before the call ends."""

    def learn(run, save, share):
        run.progress.step += steps
        run.progress.samples_due -= steps * BATCH
        during()
        return Outcome(steps, stop, None)

    def leave(run, failure):
        raise Stopped

    monkeypatch.setattr(fits.training_phase, "learn", learn)
    monkeypatch.setattr(fits.resume, "leave", leave)
    fit._call(steps * BATCH)


def done_at(start, step, **task):
    """Return how much is done for a start that finds a checkpoint after this step."""
    return start(Progress(phase="train", step=step, num_positions=100), **task).done


def test_a_start_that_finds_the_checkpoint_before_the_newest_trains_what_followed_it_again(start, monkeypatch):
    """The job was killed after fit.json was written, and before the checkpoint was."""
    fit = start(Progress())
    for _ in range(3):
        train(fit, monkeypatch, steps=4)
        fit._save()
    assert [done_at(start, step) for step in (12, 8, 4)] == pytest.approx([0.3, 0.2, 0.1])
    assert done_at(start, 7) == 0 and done_at(start, 0) == 0, "no save was made there"
    again = start(Progress(phase="train", step=8, num_positions=100))
    train(again, monkeypatch, steps=1)
    again._save()
    assert [row["step"] for row in json.loads((again.run.setup.folder / "fit.json").read_text())["saves"]] == [4, 8, 9]


def test_a_stop_counts_the_steps_of_the_call_that_it_ended(start, monkeypatch):
    fit = start(Progress())
    with pytest.raises(Stopped):
        train(fit, monkeypatch, steps=8, stop=True)
    assert done_at(start, 8) == pytest.approx(0.2)


def test_a_checkpoint_that_a_signal_asks_for_counts_the_steps_until_then(start, monkeypatch):
    fit = start(Progress())
    train(fit, monkeypatch, steps=8, during=fit._save)
    assert done_at(start, 8) == pytest.approx(0.2)


def test_checkpoints_that_are_no_longer_there_are_forgotten(start, monkeypatch):
    fit = start(Progress())
    for _ in range(30):
        train(fit, monkeypatch, steps=1)
        fit._save()
    assert len(fit.saves) == fit.run.setup.config.checkpoint.keep + fits.SPARE and done_at(start, 30) > 0


def test_a_file_of_an_older_version_tells_of_the_newest_checkpoint(start, tmp_path, monkeypatch):
    (tmp_path / "fit.json").write_text('{"iteration": 0, "done": 0.25}')
    assert done_at(start, 8) == 0.25 and done_at(start, 8, epochs=0.0, minutes=2.0) == 0.25
    fit = start(Progress(phase="train", step=8, num_positions=100))
    fit.run.progress.step = 9
    fit._save()
    assert done_at(start, 8) == 0.25, "the job was killed before it wrote the next checkpoint"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"iteration": 0}', '{"iteration": 1, "done": 0.5}'])
def test_a_file_that_is_damaged_or_of_another_iteration_tells_nothing(text, start, tmp_path):
    (tmp_path / "fit.json").write_text(text)
    assert done_at(start, 8) == 0
