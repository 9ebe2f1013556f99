"""Weights of one network for another: what is taken, and that a wider and deeper network computes the same."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import make_config, make_run
from stand_ins import part_of_run

from az_mpi import games, modes
from az_mpi.core import signals
from az_mpi.core.problems import Refusal
from az_mpi.mpi.alone import Alone
from az_mpi.network import resnet
from az_mpi.network.transfer import transfer
from az_mpi.run import beginning
from az_mpi.run.beginning import Origin
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint

OTHELLO6 = games.make("othello(size=6)")


def built(game, seed=1, **network):
    """Return a network whose weights are all drawn, as after a training."""
    config = make_config(game.name, network={"blocks": 2, "channels": 16, **network})
    made = resnet.build(game, config.network, seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
    return made.eval()


def fresh(game, **network):
    return resnet.build(
        game, make_config(game.name, network={"blocks": 2, "channels": 16, **network}).network, 7
    ).eval()


def outputs(network, game):
    rng = np.random.default_rng(1)
    planes = torch.from_numpy(rng.integers(0, 2, (5, *game.planes_shape))).float()
    with torch.inference_mode():
        return network(planes)


KINDS = ["residual", "global_pooling", "squeeze_excitation", "bottleneck"]


@pytest.mark.parametrize("block", KINDS)
@pytest.mark.parametrize("blocks, channels", [(2, 16), (4, 16), (2, 40), (4, 32)])
def test_a_wider_and_deeper_network_computes_the_same(block, blocks, channels):
    theirs, ours = built(OTHELLO6, block=block), fresh(OTHELLO6, block=block, blocks=blocks, channels=channels)
    found = transfer(theirs.state_dict(), ours.state_dict(), same_board=True)
    ours.load_state_dict(found.tensors)
    for name, output in outputs(theirs, OTHELLO6).items():
        assert torch.allclose(output, outputs(ours, OTHELLO6)[name], atol=1e-5), name
    assert bool(found.widened) == (channels > 16) and not set(found.taken) & set(found.widened)
    assert {layer.split(".")[1] for layer in found.new} == {str(k) for k in range(2, blocks)}


def test_heads_that_read_the_pooled_tower_of_a_wider_network_compute_the_same():
    """They read the means of all channels, then the maxima of all."""
    heads = ["policy", "value(any_size=True)", "moves_left", "score", "short_term_value", "opponent_reply"]
    theirs, ours = built(OTHELLO6, heads=heads), fresh(OTHELLO6, heads=heads, channels=40)
    found = transfer(theirs.state_dict(), ours.state_dict(), same_board=True)
    ours.load_state_dict(found.tensors)
    for name, output in outputs(theirs, OTHELLO6).items():
        assert torch.allclose(output, outputs(ours, OTHELLO6)[name], atol=1e-5), name
    assert {"heads.moves_left.hidden", "heads.score.hidden"} < set(found.widened) and not found.new


def test_what_is_new_can_learn():
    """Where a new channel is read by a 0, its own weights are none, so that both do not stay where they are."""
    theirs, ours = built(OTHELLO6), fresh(OTHELLO6, channels=32)
    ours.load_state_dict(transfer(theirs.state_dict(), ours.state_dict(), True).tensors)
    ours.train()
    planes = torch.from_numpy(np.random.default_rng(1).integers(0, 2, (5, *OTHELLO6.planes_shape))).float()
    found = ours(planes)
    (found["policy"].square().sum() + found["value"].sum()).backward()
    assert ours.tower[0].first.weight.grad[:16, 16:].abs().max() > 0
    assert ours.heads["policy"].conv.weight.grad[:, 16:].abs().max() > 0


def test_another_board_size_takes_the_tower_and_the_layers_of_cells():
    other = games.make("othello(size=8)")
    theirs, ours = built(OTHELLO6), fresh(other)
    found = transfer(theirs.state_dict(), ours.state_dict(), same_board=False)
    assert not found.widened and "tower.1.second" in found.taken and "heads.value.conv" in found.taken
    assert "heads.policy.out" in found.new and "heads.value.out" in found.new
    assert torch.equal(found.tensors["stem.weight"], theirs.state_dict()["stem.weight"])
    assert torch.equal(found.tensors["heads.value.out.weight"], ours.state_dict()["heads.value.out.weight"])


def test_another_board_size_takes_all_of_heads_for_any_size():
    heads = ("policy(any_size=True)", "value(any_size=True)")
    other = games.make("othello(size=8)")
    theirs, ours = built(OTHELLO6, heads=heads), fresh(other)  # whose heads are such by their size
    found = transfer(theirs.state_dict(), ours.state_dict(), same_board=False)
    assert not found.widened and not found.new
    ours.load_state_dict(found.tensors)
    assert outputs(ours, other)["policy"].shape == (5, other.num_actions)


def test_blocks_of_another_kind_are_not_taken_in_part():
    theirs, ours = built(OTHELLO6), fresh(OTHELLO6, block="squeeze_excitation")
    found = transfer(theirs.state_dict(), ours.state_dict(), True)
    assert not [layer for layer in found.taken + found.widened if layer.startswith("tower")]
    assert all(torch.equal(found.tensors[name], ours.state_dict()[name]) for name in found.tensors if "tower" in name)


@pytest.mark.parametrize(
    "game, network, why",
    [
        ("hex(size=6)", {}, "a network of othello"),
        ("othello(size=6)", {"channels": 8}, "none of its blocks fits"),
        ("othello(size=6)", {"block": "bottleneck"}, "none of its blocks fits"),
    ],
)
def test_a_network_that_gives_nothing_is_refused(game, network, why):
    made, config = games.make(game), make_config(game, network={"blocks": 2, "channels": 16, **network})
    origin = Origin("zoo:x", "othello(size=6)", OTHELLO6, built(OTHELLO6))
    with pytest.raises(Refusal, match=why):
        origin.check(config, made, resnet.build(made, config.network, 1))
    origin.check(
        make_config("othello(size=8)", network={"blocks": 2, "channels": 16}),
        games.make("othello"),
        fresh(games.make("othello")),
    )


def test_a_network_that_is_gone_is_refused_only_for_a_run_without_a_checkpoint(tmp_path):
    network, run = str(tmp_path / "first"), tmp_path / "run"
    with pytest.raises(Refusal, match="first"):
        modes.read_origin(network, run)
    assert modes.read_origin(str(make_run(tmp_path / "first")), run).name == "tictactoe"
    (tmp_path / "first").rename(tmp_path / "moved")
    make_run(run)
    assert modes.read_origin(network, run) is None


def test_the_start_up_of_a_run_that_begins_with_other_weights_counts_once(tmp_path):
    """The start resumes from the checkpoint that it has saved itself."""
    (tmp_path / "checkpoints").mkdir()
    world = Alone()
    world.broadcast = lambda content, source: content
    writer = SimpleNamespace(do=lambda path, write: write(lambda: None))
    learner = SimpleNamespace(network=fresh(OTHELLO6), optimizer_tensors=dict)
    run = part_of_run(
        world=world,
        setup={"folder": tmp_path, "game": OTHELLO6, "config": make_config("othello(size=6)", train={"hours": 1.0})},
        training={"network": fresh(OTHELLO6), "learner": learner},
        progress=checkpoint.Progress(),
        before_play=checkpoint.Progress(),
        hours_before=0.0,
        files={"folder": tmp_path, "writer": writer, "writes_no_more": False},
        report={"say": lambda *words: None, "metrics": SimpleNamespace(write=lambda *words: None)},
        mark=lambda: None,
    )
    run.hours = lambda: Run.hours(run)
    beginning.begin(run, "zoo:x", Origin("zoo:x", "othello(size=6)", OTHELLO6, built(OTHELLO6)))
    run.hours_before = checkpoint.read(tmp_path / "checkpoints/000000").progress.hours
    assert run.hours() == pytest.approx((time.monotonic() - signals.begun()) / 3600, rel=0.1)
