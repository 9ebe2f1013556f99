"""After a broadcast every rank has root's weights to the bit, whichever ranks train, and weights travel only to those
that did not have them. Positions of root's window go to all when one rank's engine is calibrated, else to none."""

from types import SimpleNamespace

import numpy as np
import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config import schema as models
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.network.engines.engine import NUM_CALIBRATION, Engine
from az_mpi.run import weights
from az_mpi.run.state import Training
from az_mpi.telemetry.counters import Counters
from az_mpi.train.replay import Replay, Samples, sample_dtype


def check(world, num_trainers, calibrates):
    trains, loaded = world.rank < num_trainers, []
    engine = Engine()
    engine.calibrates = calibrates and world.rank == world.size - 1
    seed = 1 if trains else 2 + world.rank
    game = games.make("connect4")
    network = resnet.build(game, models.Network(blocks=2, channels=16), seed)
    if trains:  # values that no shorter format has
        with torch.no_grad():
            network.heads["policy"].out.weight.normal_(generator=torch.Generator().manual_seed(7))
    setup = SimpleNamespace(
        config=configuration.validate({"game": "connect4", "fault": {"copy_every": 0}}, "test"), game=game
    )
    training, report = Training.make(setup, world, None, num_trainers, network), SimpleNamespace(counters=Counters())
    training.learner = SimpleNamespace(network=network) if trains else None
    training.replay = window(game, network, world.rank) if trains else None

    def load_weights(network, iteration, digest):
        loaded.append(resnet.weights_hash(network))

    run = SimpleNamespace(
        world=world,
        setup=setup,
        training=training,
        report=report,
        games_iteration=0,
        playing=SimpleNamespace(load_weights=load_weights, engine=engine, calibration=None),
        progress=SimpleNamespace(step=0),
    )
    before, counted = resnet.weights_hash(network), World.sent_bytes
    weights.broadcast_weights(run)
    assert world.collect(loaded) == [loaded] * world.size and len(loaded) == 1
    assert (loaded == [before]) == trains
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    expected = size * (world.size - num_trainers) * world.is_root
    assert report.counters.broadcast_bytes == expected
    positions = NUM_CALIBRATION * game.state_dtype.itemsize * game.state_size * (world.size - 1) * world.is_root
    assert World.sent_bytes - counted == expected + positions * calibrates
    assert (run.playing.calibration is not None) == calibrates
    if calibrates:
        planes, legal = run.playing.calibration
        assert legal.shape == (NUM_CALIBRATION, game.num_actions) and legal.all()
        assert world.collect(planes.tolist()) == [planes.tolist()] * world.size and len(planes) == NUM_CALIBRATION
        assert {len(np.argwhere(board)) for board in planes} == {1}, "not root's positions"


def window(game, network, ply):
    """Return a window of four positions in which so many stones, and one more, have been set."""
    states, actions = game.initial(4), np.arange(4, dtype=np.int32)
    for _ in range(ply + 1):
        states = game.play(states, actions)
    rows = np.zeros(4, sample_dtype(game, network.heads))
    rows["state"], rows["index"] = states, np.arange(4)
    replay = Replay(game, network.heads)
    replay.add(Samples.of(rows, np.full((4, game.num_actions), 1 / game.num_actions)))
    return replay


def main():
    world = World.start()
    for num_trainers in range(1, world.size + 1):
        check(world, num_trainers, calibrates=False)
        check(world, num_trainers, calibrates=True)
    print("all checks passed")


main()
