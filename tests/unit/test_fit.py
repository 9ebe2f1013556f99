"""How much of a fit is done: what it writes beside its checkpoints, and what the next start takes from there."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import make_config
from stand_ins import part_of_run

from az_mpi import games
from az_mpi.core.signals import Stopped
from az_mpi.run import fit as fits
from az_mpi.run.training_phase import Outcome
from az_mpi.selfplay.record import GAME as GAME_ROW
from az_mpi.selfplay.record import POLICY, Record, position_dtype
from az_mpi.storage.checkpoint import Progress

BATCH = 10
CONFIG = make_config(train={"batch_size": BATCH, "batch_growth": 1.0}, replay={"window_min": 10, "window_max": 2000})
GAME = games.make("tictactoe")


@pytest.fixture
def start(tmp_path, world, monkeypatch):
    """Return start(progress, epochs, minutes, positions): a fit of so many positions, continued from a checkpoint with
    this progress, when it begins to train. Its saves write no checkpoints."""

    def start(progress, epochs=4.0, minutes=0.0, positions=(100,)):
        said = []
        run = part_of_run(
            world=world,
            setup={"folder": tmp_path, "config": CONFIG, "game": GAME},
            files={
                "segments": lambda: [
                    SimpleNamespace(path=n, iteration=0, num_games=1, num_positions=n) for n in positions
                ],
                "games_in": of_one_game,
                "folder": tmp_path,
                "removed": lambda: (0, 0),
                "writes_no_more": False,
                "writer": SimpleNamespace(do=lambda path, action: action(lambda: None)),
            },
            training={"learner": None, "replay": None},
            report={"say": lambda text, *values: said.append(text % values), "warn": print},
            progress=progress,
        )
        found = fits._Fit(run, fits.Task(epochs, minutes, 0.0))
        found.fill()
        found.said = said
        return found

    monkeypatch.setattr(fits.resume, "save", lambda run: False)
    monkeypatch.setattr(fits.exchange, "deal", lambda run, record, first_index: None)
    return start


def of_one_game(num_positions):
    """Return the record of a game with so many positions."""
    games_, positions = np.zeros(1, GAME_ROW), np.zeros(num_positions, position_dtype(GAME))
    games_["length"] = num_positions
    return Record(games_, positions, np.zeros(0, POLICY))


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
    return start(Progress(phase="train", step=step, num_positions=100), **task)._done_now()


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
    assert done_at(start, 8) == 0.25 and done_at(start, 8, epochs=0.0, minutes=2.0) == pytest.approx(0.25, abs=0.01)
    fit = start(Progress(phase="train", step=8, num_positions=100))
    fit.run.progress.step = 9
    fit._save()
    assert done_at(start, 8) == 0.25, "the job was killed before it wrote the next checkpoint"


def test_other_epochs_or_minutes_continue_from_what_was_trained(start, monkeypatch):
    """Two epochs of ten are a fifth, also if four were asked for at first."""
    fit = start(Progress(), epochs=4.0)
    train(fit, monkeypatch, steps=20)
    fit.minutes_before = 3.0
    fit._save()
    assert done_at(start, 20, epochs=4.0) == 0.5 and done_at(start, 20, epochs=10.0) == 0.2
    assert done_at(start, 20, epochs=1.0) == 1
    assert done_at(start, 20, epochs=0.0, minutes=30.0) == pytest.approx(0.1, abs=0.001)
    again = start(Progress(phase="train", step=20, num_positions=100), epochs=10.0)
    assert again.said == ["fit: 100 positions of 100 in the run, 0 held out, for 10 epochs, of which 2 are done"]
    train(again, monkeypatch, steps=1)
    again._save()
    assert done_at(start, 21, epochs=10.0) == pytest.approx(0.21)


@pytest.mark.parametrize("task", [{"epochs": 1.0}, {"epochs": 0.0, "minutes": 10.0}])
def test_games_that_were_imported_since_a_stop_count_as_not_yet_trained_on(task, start, monkeypatch):
    fit = start(Progress(), **task)
    train(fit, monkeypatch, steps=9)
    fit.minutes_before = 9.0
    fit._save()
    assert done_at(start, 9, **task) == pytest.approx(0.9, abs=0.001)
    assert done_at(start, 9, positions=(100, 800), **task) == pytest.approx(0.1, abs=0.001)
    assert done_at(start, 9, positions=(100, 1000, 1000), **task) < 0.001, "they fill the window"
    again = start(Progress(phase="train", step=9, num_positions=100), positions=(100, 800), **task)
    again._save()  # before its first step: the entry of that checkpoint must not change
    assert done_at(start, 9, positions=(100, 800), **task) == pytest.approx(0.1, abs=0.001)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"iteration": 0}', '{"iteration": 1, "done": 0.5}'])
def test_a_file_that_is_damaged_or_of_another_iteration_tells_nothing(text, start, tmp_path):
    (tmp_path / "fit.json").write_text(text)
    assert done_at(start, 8) == 0
