"""The best network so far, as it is found on disk."""

import functools
import json
import logging
import os
from types import SimpleNamespace

import pytest
import torch
from helpers import CONNECT4, make_config
from safetensors.torch import save_file
from stand_ins import part_of_run

from az_mpi.core import files
from az_mpi.core.signals import Stopped
from az_mpi.network import resnet
from az_mpi.network.engines.engine import Engine
from az_mpi.run import evaluation_phase
from az_mpi.run.run_files import RunFiles
from az_mpi.run.state import Playing
from az_mpi.storage.checkpoint import Progress

OWN = """
from az_mpi.evaluate.opponents import Opponent

class Rival(Opponent):
    def __init__(self, best, seed):
        pass
"""


def test_the_newest_whole_best_network_is_found(tmp_path, caplog):
    (tmp_path / "best").mkdir()
    for number, value in ((1, 1.0), (2, 2.0), (3, float("nan")), (4, 4.0), (7, 7.0)):
        save_file({"w": torch.full((2,), value)}, tmp_path / "best" / f"{number:06d}.safetensors")
    (tmp_path / "best" / "000004.safetensors").write_bytes(b"torn")
    save_file({"w": torch.ones(3)}, tmp_path / "best" / "000005.safetensors")  # of another network
    save_file({"w": torch.ones(2)}, tmp_path / "best" / "copy of 000006.safetensors")  # a user's
    network, logger = torch.nn.ParameterDict({"w": torch.zeros(2)}), logging.getLogger("az_mpi")
    assert evaluation_phase._newest_best(tmp_path / "best", 7, network, logger)[0]["w"].tolist() == [2.0, 2.0]
    assert [text.split(".safetensors")[0][-6:] for text in caplog.messages] == ["000005", "000004", "000003"]
    assert evaluation_phase._newest_best(tmp_path / "best", 1, network, logger) is None


@pytest.mark.parametrize("where", ["listdir", "open"])
def test_a_best_network_that_cannot_be_read_now_is_not_passed_over(tmp_path, monkeypatch, where):
    """Nor does a folder that cannot be read count as an empty one."""
    (tmp_path / "best").mkdir()
    for number in (1, 2):
        save_file({"w": torch.full((2,), float(number))}, tmp_path / "best" / f"{number:06d}.safetensors")
    network = torch.nn.ParameterDict({"w": torch.zeros(2)})
    real = getattr(os, where)

    def fail(path, *how, **named):
        if str(path).endswith(("best", "000002.safetensors")):
            raise OSError(5, "Input/output error")
        return real(path, *how, **named)

    monkeypatch.setattr(files, "READ_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, where, fail)
        with pytest.raises(OSError, match="Input/output"):
            evaluation_phase._newest_best(tmp_path / "best", 3, network, None)
    tensors, iteration, _ = evaluation_phase._newest_best(tmp_path / "best", 3, network, None)
    assert tensors["w"].tolist() == [2.0, 2.0] and iteration == 2


def test_networks_that_were_the_best_are_played_by_one_engine(tmp_path, world):
    """With the weights of the newest of them. An engine made for each could take memory that it never gives back."""
    (tmp_path / "best").mkdir()
    network, made = torch.nn.Linear(1, 1, bias=False), []

    class Noting(Engine):
        def load(self, network):
            self.weight = network.weight.item()

    def make_engine(network):
        made.append(Noting())
        made[-1].load(network)
        return made[-1], "noting"

    class Sized:
        batch_max = 8

    run = part_of_run(
        world=world,
        setup={"folder": tmp_path, "config": make_config(), "game": CONNECT4, "make_engine": make_engine},
        playing=Playing(Sized(), None, None),
        training={"network": network},
        files=RunFiles(tmp_path, None, 600.0),
        report={"logger": logging.getLogger("az_mpi")},
    )
    for number in (1, 2, 3):
        save_file({"weight": torch.full((1, 1), float(number))}, tmp_path / "best" / f"{number:06d}.safetensors")
        assert evaluation_phase.load_best(run, before=number + 1).engine.weight == number
    assert len(made) == 1


@pytest.mark.parametrize(("opponents", "read"), [(["random"], 0), ([], 0), (["random", "best"], 1), (["own"], 1)])
def test_the_best_network_is_read_only_if_it_is_played(opponents, read, tmp_path, world):
    """By the opponent "best", or by a class of the user's own that asks for it."""
    (tmp_path / "own.py").write_text(OWN)
    opponents = [f"{tmp_path}/own.py:Rival" if name == "own" else name for name in opponents]
    looked = []
    run = part_of_run(
        world=world,
        setup={"folder": tmp_path, "config": make_config(evaluate={"opponents": opponents}), "game": CONNECT4},
        playing={},
        training={"network": None},
        files={"read": lambda *what: looked.append(what)},
        report={"logger": None},
    )
    assert evaluation_phase.load_best(run, before=1) is None and len(looked) == read


def test_a_network_that_was_lost_and_trained_again_is_evaluated_again(tmp_path, world):
    """A tower that has grown since computes the same."""
    (tmp_path / "evaluations").mkdir()
    network = torch.nn.ModuleDict({"stem": torch.nn.Linear(1, 1), "tower": torch.nn.Linear(1, 1)})
    network.stem = network["stem"]
    run = part_of_run(
        world=world,
        files={"read": lambda path, look: look()},
        setup={"folder": tmp_path},
        training={"network": network},
        progress=Progress(iteration=3),
    )
    file = tmp_path / "evaluations" / "000003.json"
    assert not evaluation_phase.is_done(run)
    file.write_text(json.dumps({"stem": resnet.weights_hash(network.stem)}))
    torch.nn.init.zeros_(network["tower"].weight)
    assert evaluation_phase.is_done(run)
    torch.nn.init.ones_(network.stem.bias)
    assert not evaluation_phase.is_done(run)
    file.write_text("{}")  # of a version that kept nothing of the kind
    assert evaluation_phase.is_done(run)
    for damaged in ("{", "[]"):
        file.write_text(damaged)
        assert not evaluation_phase.is_done(run)


MATCHES = "match against best", "match against random", "match against rollout"


@pytest.fixture
def evaluate(tmp_path, world, monkeypatch):
    """Return evaluate(stop_in=None, simulations=0, bias=0): start the evaluation of a network, and return the titles of
    the matches that were played. A stop is asked for in the match `stop_in`."""
    (tmp_path / "evaluations").mkdir()
    (tmp_path / "best").mkdir()
    network = torch.nn.ModuleDict({"stem": torch.nn.Linear(1, 1)})
    network.stem, played = network["stem"], []

    def matches(world, config, game, ours, best, iteration, show, once=lambda title, play: play()):
        def play(title):
            played.append(title)
            if title == evaluate.stop_in:
                raise Stopped
            return {"score": 0.5 + len(title) / 100}

        found = {title.split()[-1]: once(title, functools.partial(play, title)) for title in MATCHES}
        return {"iteration": iteration, "matches": found}

    def evaluate(stop_in=None, simulations=0, bias=0.0):
        evaluate.stop_in = stop_in
        torch.nn.init.constant_(network.stem.bias, bias)
        run = part_of_run(
            world=world,
            setup={
                "folder": tmp_path,
                "config": make_config(evaluate={"simulations": simulations}),
                "game": CONNECT4,
                "callbacks": SimpleNamespace(evaluation=lambda result: None),
            },
            playing={"engine": Engine()},
            training={"network": network},
            files={
                "read": lambda path, look: look(),
                "writer": SimpleNamespace(do=lambda path, action: action(lambda: None)),
            },
            report={
                "status": SimpleNamespace(enter=lambda name: None),
                "say": lambda *what: None,
                "metrics": SimpleNamespace(write=lambda *what: None),
            },
            progress=Progress(iteration=3),
        )
        begun = len(played)
        try:
            evaluation_phase.evaluate(run, lambda total: None)
        except Stopped:
            pass
        return [title.split()[-1] for title in played[begun:]]

    monkeypatch.setattr(evaluation_phase, "load_best", lambda run, before: None)
    monkeypatch.setattr(evaluation_phase.ranking, "of_network", lambda run, iteration: float("nan"))
    monkeypatch.setattr(evaluation_phase.evaluation, "evaluate", matches)
    monkeypatch.setattr(evaluation_phase, "evaluation_lines", lambda result: [])
    return evaluate


def test_an_evaluation_that_was_stopped_continues_with_the_match_that_was_not_finished(evaluate, tmp_path):
    """Else one that takes longer than a job would begin again in each job."""
    assert evaluate(stop_in=MATCHES[1]) == ["best", "random"]
    assert evaluate(stop_in=MATCHES[2]) == ["random", "rollout"]
    assert evaluate() == ["rollout"]
    found = json.loads((tmp_path / "evaluations/000003.json").read_text())["matches"]
    assert found == {title.split()[-1]: {"score": 0.5 + len(title) / 100} for title in MATCHES}
    assert not (tmp_path / "evaluation.json").exists()


def test_matches_of_another_network_or_other_settings_are_played_again(evaluate, tmp_path):
    stopped = {"stop_in": MATCHES[1]}
    evaluate(**stopped)
    assert evaluate(bias=1.0, **stopped) == ["best", "random"]
    assert evaluate(bias=1.0, simulations=9, **stopped) == ["best", "random"]
    assert evaluate(bias=1.0, simulations=9, **stopped) == ["random"]
    for damaged in ("{", "[]", "{}"):
        (tmp_path / "evaluation.json").write_text(damaged)
        assert evaluate(bias=1.0, simulations=9, **stopped) == ["best", "random"]
