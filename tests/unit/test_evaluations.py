"""The best network so far, as it is found on disk."""

import json
import logging
import os

import pytest
import torch
from helpers import CONNECT4, make_config
from safetensors.torch import save_file
from stand_ins import part_of_run

from az_mpi.core import files
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
