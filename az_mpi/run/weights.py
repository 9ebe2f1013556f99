"""Sending root's weights to every rank."""

import numpy as np
import torch

from az_mpi.core.problems import Refusal
from az_mpi.network import resnet
from az_mpi.network.engines import int8
from az_mpi.network.engines.engine import NUM_CALIBRATION
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint


class WeightsDiffer(Exception):
    """After training, a trainer has other weights than root: the run cannot continue."""


def check_growth(network: resnet.ResNet, name: str) -> None:
    """Raise Refusal if the last block of a new network does not begin as the identity: then the tower of a run cannot
    grow. name: `network.block`. Not collective."""
    cells = torch.linspace(0, 1, 25).reshape(1, 1, 5, 5)
    x = torch.cat([cells.roll(shift, 3) for shift in range(network.stem.out_channels)], dim=1)
    with torch.inference_mode():
        same = torch.equal(network.tower[-1](x), x)
    if not same:
        raise Refusal(
            f'network.block = "{name}"\n  these blocks do not begin as the identity: a run cannot get more '
            "of them\n  give network.blocks as it was, or another --logdir for a new run"
        )


def grown(run: Run, model: checkpoint.Tensors) -> checkpoint.Tensors:
    """Return `model`, of an earlier, smaller network of the run, with the blocks that its tower lacks. New blocks begin
    as the identity, so it computes the same (Chen, Goodfellow, Shlens 2016, "Net2Net"). Not collective."""
    setup = run.setup
    if not checkpoint.added_blocks(model, run.training.network.state_dict()):
        return model
    begun = resnet.build(setup.game, setup.config.network, setup.config.seed).state_dict()
    return model | checkpoint.added_blocks(model, begun)


def broadcast_weights(run: Run) -> None:
    """Send root's weights to the ranks that only play, and load them into every rank's engine. Collective.

    Raises WeightsDiffer if the trainers' weights differ, NotFinite if a weight is not finite."""
    world, training = run.world, run.training
    rows = world.collect([_hashes(training, world), run.playing.engine.calibrates])
    digests = [digests for digests, _ in rows]
    if differing := [rank for rank in range(training.num_trainers) if digests[rank] != digests[0]]:
        raise WeightsDiffer(f"after step {run.progress.step} the weights of rank {differing} differ from rank 0's")
    if training.players:
        sent_before = world.sent_bytes
        _send(training.players, training.network)
        run.report.counters.broadcast_bytes += world.sent_bytes - sent_before
    checkpoint.check_finite(training.network.state_dict())
    if any(calibrates for _, calibrates in rows):
        run.playing.calibration = _calibration(run)
    run.playing.load_weights(training.network, run.games_iteration, digests[0][0])
    if remark := run.playing.engine.remark:
        run.report.logger.warning("rank %d %s", world.rank, remark)


def _hashes(training, world):
    """Return the SHA-256 of the weights that play, and of those that are trained if they are others; None on ranks that
    only play."""
    networks = [training.network] if training.learner or world.is_root else []
    if training.learner and training.learner.network is not training.network:
        networks.append(training.learner.network)
    return [resnet.weights_hash(network) for network in networks] or None


def _calibration(run):
    """Return (planes [NUM_CALIBRATION, C, H, W], legal actions) of positions that root draws from its part of the
    window, the same on every rank and in a run that is resumed here; if the window is empty, of random games.
    Collective."""
    replay, seed, game, states = run.training.replay, run.setup.config.seed, run.setup.game, None
    if run.world.is_root and replay and replay.num_positions:
        states = replay.states(np.random.default_rng([seed, run.games_iteration]), NUM_CALIBRATION)
    elif run.world.is_root:
        states = int8.random_states(game)
    states = run.world.broadcast(states)
    return game.planes(states), game.legal(states)


def _send(world, network):
    """Copy root's weights exactly into every rank's network. Collective over `world`.

    They are not compressed: lossless compression saves a fifth of the bytes but takes longer than sending them, over
    any network above 0.3 Gbit/s (benchmarks/weights.py). bf16 would save half, but then a rank that evaluates in fp32
    would play with another network than root."""
    tensors = list(network.state_dict().values())
    whole = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu().numpy() if world.is_root else None
    whole = torch.from_numpy(world.broadcast(whole))
    if not world.is_root:
        for tensor, part in zip(tensors, whole.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))
