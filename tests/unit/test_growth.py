"""A run's tower gets more blocks, and networks from before are used with it."""

import json

import pytest
import torch
from helpers import CONNECT4, float_planes, make_config, make_run, positions, trained, untrained
from learners import BATCH, HEADS, filled, resume, saved, train, weights
from stand_ins import part_of_run

from az_mpi.config import schema as models
from az_mpi.config.load import changes
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import BLOCKS
from az_mpi.network import resnet
from az_mpi.player import trained_network
from az_mpi.run.weights import check_growth, grown
from az_mpi.storage import checkpoint, run_folder
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.replay import Replay


def settings(blocks, kind="residual"):
    return models.Network(blocks=blocks, channels=16, block=kind)


def a_run(network, blocks):
    """Return what `grown` sees of a run."""
    config = make_config("connect4", seed=7, network={"blocks": blocks, "channels": 16})
    return part_of_run(setup={"game": CONNECT4, "config": config}, training={"network": network})


@pytest.mark.parametrize("kind", BLOCKS.names)
def test_a_larger_tower_computes_the_same(kind):
    """Its outputs are equal bit for bit, whatever the network has learnt."""
    small, large = trained(1, settings(2, kind)), untrained(7, settings(5, kind))
    added = checkpoint.added_blocks(small.state_dict(), large.state_dict())
    assert {name.split(".")[1] for name in added} == {"2", "3", "4"}
    large.load_state_dict(small.state_dict() | added)
    planes = float_planes(positions(40))
    with torch.inference_mode():
        before, after = small(planes), large(planes)
    assert before["policy"].std() > 0.01 and all(torch.equal(before[name], after[name]) for name in before)
    check_growth(large, kind)


def test_new_blocks_are_those_of_a_new_network_of_the_new_size():
    """The run's own blocks at these places have learnt, and are not used. The other tensors stay."""
    small, mine = trained(1, settings(2)), trained(2, settings(4))
    found, begun = grown(a_run(mine, 4), small.state_dict()), untrained(7, settings(4)).state_dict()
    assert found.keys() == begun.keys()
    for name, tensor in found.items():
        old = small.state_dict().get(name)
        assert torch.equal(tensor, begun[name] if old is None else old), name
    whole = mine.state_dict()
    assert grown(a_run(mine, 4), whole) is whole


def test_only_missing_blocks_at_the_end_are_no_difference():
    ours, small = untrained(settings=settings(3)).state_dict(), untrained(settings=settings(2)).state_dict()
    assert checkpoint.differences(small, ours) == []
    without = {name: tensor for name, tensor in ours.items() if not name.startswith("tower.1.")}
    nothing = {name: tensor for name, tensor in ours.items() if not name.startswith("tower.")}
    wide = untrained(settings=models.Network(blocks=2, channels=24)).state_dict()
    for wrong in (without, nothing, wide, small | {"extra": torch.ones(1)}):
        assert checkpoint.differences(wrong, ours)
    assert len(checkpoint.differences(ours, small)) == 4  # fewer blocks


@pytest.mark.parametrize("decay, optimizer", [(0.0, "adamw"), (0.9, "adamw"), (0.0, "sgd"), (0.0, "muon")])
def test_a_grown_network_trains_and_its_new_tensors_begin_without_moments(world, tmp_path, decay, optimizer):
    replay, learners = filled(Replay(CONNECT4, HEADS)), []
    for blocks in (1, 3):
        config = make_config(
            "connect4",
            seed=7,
            network={"blocks": blocks, "channels": 16},
            train={
                "batch_size": BATCH,
                "replay_ratio": 1.0,
                "mixed_precision": False,
                "ema_decay": decay,
                "optimizer": optimizer,
            },
        )
        learners.append(
            Learner(
                config,
                CONNECT4,
                resnet.build(CONNECT4, config.network, config.seed),
                backends.make("ddp", world, world, "cpu"),
                "cpu",
            )
        )
        learners[-1].progress = checkpoint.Progress()
    small, large = learners
    train(small, replay, 2)
    state = saved(small, tmp_path)
    checkpoint.check_fits(tmp_path, state, large.average.state_dict())
    state.model = grown(a_run(large.average, 3), state.model)
    resume(large, state)
    assert not any(key.startswith("tower.2.") and not key.endswith(".raw") for key in large.optimizer_tensors())
    planes = float_planes(positions(9))
    for one, other in ((small.average, large.average), (small.network, large.network)):
        assert torch.equal(one(planes)["policy"], other(planes)["policy"])
    before = weights(large.network)
    train(large, replay, 1)
    tensors = large.optimizer_tensors()
    if optimizer == "sgd":
        assert tensors["tower.2.second.weight.momentum_buffer"].any()
    else:
        assert tensors["stem.weight.step"] == 3
    if optimizer == "adamw":
        assert tensors["tower.2.second.weight.step"] == 1
    assert not torch.equal(large.network.state_dict()["tower.2.second.weight"], before["tower.2.second.weight"])


def test_the_number_of_blocks_may_rise_and_not_fall(tmp_path):
    few, many = (make_config(network={"blocks": blocks, "channels": 8}) for blocks in (2, 4))
    assert [change.may_change for change in (*changes(few, many), *changes(many, few))] == [True, False]
    run_folder.prepare(tmp_path, few, [], True)
    run_folder.prepare(tmp_path, many, [], False)
    with pytest.raises(Refusal, match="network.blocks: 4 in the run, 2 now.*rise"):
        run_folder.check_same_run(tmp_path, few)


def test_older_networks_of_a_grown_run_are_played(tmp_path):
    """This holds for its best networks too: they compute what they computed before."""
    folder = make_run(tmp_path / "run", checkpoints=(1,), best=(1, 2))
    before = [trained_network.read(folder / name) for name in ("checkpoints/000001", "best/000002.safetensors")]
    described = json.loads((folder / "config.json").read_text())
    described["config"]["network"]["blocks"] = 3
    (folder / "starts").mkdir()
    (folder / "starts" / "002.json").write_text(json.dumps(described))
    after = [trained_network.read(folder / name) for name in ("checkpoints/000001", "best/000002.safetensors")]
    for one, other in zip(before, [*after, trained_network.read(folder)]):
        planes = float_planes(positions(9, one.game), one.game)
        assert len(other.network.tower) == 3 and len(one.network.tower) == 1
        assert all(torch.equal(a, b) for a, b in zip(one.network(planes).values(), other.network(planes).values()))


class Shifting(torch.nn.Module):
    def forward(self, x):
        return x.roll(1, 3)


def test_blocks_that_are_not_the_identity_cannot_be_added():
    network = untrained(settings=settings(2))
    network.tower[-1] = Shifting()
    with pytest.raises(Refusal, match="begin as the identity"):
        check_growth(network, "own.py:Shifting")
